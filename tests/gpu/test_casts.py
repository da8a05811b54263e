"""Cast kernels give the bits of the torch casts on the CPU; transposes move every byte."""

from __future__ import annotations

import pytest
import torch

from deep_gemm import quant
from deep_gemm.errors import ArgumentError
from deep_gemm.kernels import cast, transpose
from deep_gemm.quant import torch_cast
from deep_gemm.testing import poison
from deep_gemm.testing.numerics import assert_bitwise_equal

E4M3, E5M2, INT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
RECIPES = {
    "token": quant.ROW_1X128,
    "token64": quant.by_granularity(1, 64),
    "row": quant.PER_CHANNEL,
    "block": quant.BLOCK_128X128,
    "channel": quant.by_granularity(128, 1),
    "channel32": quant.by_granularity(32, 1),
    "tensor": quant.PER_TENSOR,
    "column": quant.PER_COLUMN,
}
CASTS = {
    "token": quant.per_token_cast_to_fp8,
    "row": quant.per_row_cast_to_fp8,
    "block": quant.per_block_cast_to_fp8,
    "channel": quant.per_channel_cast_to_fp8,
    "tensor": quant.per_tensor_cast_to_fp8,
    "column": quant.per_column_cast_to_fp8,
}
SHAPES = (
    (1, 1),
    (1, 128),
    (3, 7),
    (129, 131),
    (64, 1000),
    (333, 1032),
    (130, 4104),
    (5, 9000),
    (2, 40000),
    (4099, 264),
    (1024, 7168),
)
every_recipe = pytest.mark.parametrize("name", RECIPES)
every_cast = pytest.mark.parametrize("name", CASTS)
every_source = pytest.mark.parametrize("source", [BF16, FP16, FP32], ids=str)
every_target = pytest.mark.parametrize("target", [E4M3, E5M2, INT8], ids=str)


def adversarial(rows, columns, dtype, rng, infinities=False):
    """Data of many magnitudes, a zero block, negative zeros, subnormals, NaN, maybe infinities."""
    x = torch.randn(rows, columns, generator=rng)
    x[:, : columns // 3] *= 2.0 ** torch.randint(-14, 14, (rows, 1), generator=rng)
    x[0, : min(columns, 200)] = 0
    x[rows // 2, columns // 2] = -0.0
    if dtype != FP16 and rows > 8:
        x[6], x[7] = 1e-36, x[7] * 1e37
    x = x.to(dtype)
    if rows > 4:
        x[1] = 1e-40 if dtype != FP16 else 6e-8
        x[3, columns // 3] = torch.nan
    if infinities:
        x[rows // 3, columns - 1], x[rows - 1, 0] = torch.inf, -torch.inf
    return x


def assert_same(found, wanted, what):
    """Fail unless the bits are equal, but for the sign of NaN."""
    found = found.cpu()
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if found.is_floating_point():
        nan = wanted.float().isnan()
        assert torch.equal(found.float().isnan(), nan), what
        found, wanted = found.float().masked_fill(nan, 0), wanted.float().masked_fill(nan, 0)
    assert_bitwise_equal(found, wanted, what)


def check(x, on_gpu, recipe, target, ue8m0=False):
    """Fail unless both casts agree; they saturate where x has infinities."""
    assert cast.serves(on_gpu, recipe)
    wanted = torch_cast.cast_computed(x, recipe, ue8m0, target, "saturate")
    found = quant.quantize(on_gpu, recipe, dtype=target, use_ue8m0=ue8m0, overflow="saturate")
    assert found.data.is_contiguous()
    assert_same(found.scale, wanted[1], "scales")
    assert_same(found.data, wanted[0], "data")


# --- values -------------------------------------------------------------------------------------


@every_target
@every_source
@pytest.mark.parametrize("infinities", [False, True], ids=["finite", "infinite"])
@every_recipe
def test_bits_are_those_of_the_reference(name, infinities, source, target, rng):
    for rows, columns in SHAPES:
        x = adversarial(rows, columns, source, rng, infinities)
        check(x, x.cuda(), RECIPES[name], target, ue8m0=rows % 2 == 0)


@every_source
@every_recipe
def test_rows_may_be_pitched_and_addresses_odd(name, source, rng):
    for rows, columns, pitch, first in ((67, 264, 272, 8), (67, 264, 265, 0), (67, 261, 272, 3)):
        wide = adversarial(rows, pitch + 8, source, rng)
        x, on_gpu = (w[:, first : first + columns] for w in (wide, wide.cuda()))
        check(x, on_gpu, RECIPES[name], E4M3)
    x = adversarial(200, 96, source, rng).T  # rows are not contiguous
    check(x, x.cuda(), RECIPES[name], E5M2)


@every_recipe
def test_leading_dimensions(name, rng):
    for rows in (128, 100):
        x = torch.randn(2, 3, rows, 264, generator=rng).to(BF16)
        check(x, x.cuda(), RECIPES[name], E4M3)


@every_recipe
def test_large_and_random_magnitudes(name, rng):
    bits = torch.randint(-(1 << 15), 1 << 15, (512, 4096), generator=rng).to(torch.int16)
    x = bits.view(BF16)
    check(x.masked_fill(x.isnan(), 1.0), x.masked_fill(x.isnan(), 1.0).cuda(), RECIPES[name], E4M3)
    exponents = torch.randint(-140, 120, (512, 1), generator=rng)
    x = torch.randn(512, 2048, generator=rng) * torch.exp2(exponents.float())
    check(x, x.cuda(), RECIPES[name], INT8)


def test_mn_major_scales(rng):
    for rows, columns in ((5, 300), (130, 1024), (4099, 264)):
        x = torch.randn(rows, columns, generator=rng).to(BF16)
        q, sf = quant.per_token_cast_to_fp8(x)
        got = quant.per_token_cast_to_fp8(x.cuda(), scale_layout="mn_major")
        assert got[1].stride() == (1, quant.align(rows, 4))
        assert quant.get_mn_major_tma_aligned_tensor(got[1]) is got[1]
        assert_same(got[0], q, "data")
        assert_same(got[1], sf, "scales")
    stack = torch.randn(3, 70, 256, generator=rng)
    got = quant.per_token_cast_to_fp8(stack.cuda(), scale_layout="mn_major")[1]
    assert_same(got, quant.per_token_cast_to_fp8(stack)[1], "scales of a stack")


@every_target
@every_source
@pytest.mark.parametrize("name", [*RECIPES, "odd"])
def test_precomputed_scales(name, source, target, rng):
    recipe = RECIPES.get(name, quant.by_granularity(3, 24))
    for rows, columns in ((1, 128), (129, 131), (64, 1000), (333, 1032)):
        x = adversarial(rows, columns, source, rng, infinities=True)
        sf = torch.rand(recipe.shape(rows, columns), generator=rng) * 0.1
        if sf.numel() > 30:
            sf.view(-1)[5:10] = torch.tensor([0.0, -0.01, torch.nan, torch.inf, 1e-40])
        assert cast.serves(x.cuda(), recipe, precomputed=True)
        wanted = torch_cast.cast_precomputed(x, sf, recipe, target, "saturate")
        got = quant.cast_to_fp8(x.cuda(), sf.cuda(), recipe, dtype=target, overflow="saturate")
        assert_same(got, wanted, name)
        transposed = sf.cuda().T.contiguous().T  # any strides
        again = quant.cast_to_fp8(x.cuda(), transposed, recipe, dtype=target, overflow="saturate")
        assert_bitwise_equal(again.view(torch.uint8), got.view(torch.uint8))


@every_recipe
def test_nothing_around_the_outputs_is_written(name, rng):
    recipe = RECIPES[name]
    for rows, columns in ((67, 264), (129, 131), (1, 9001)):
        x = torch.randn(rows, columns, generator=rng).to(BF16)
        q, data_intact = poison.canary(rows, columns, E4M3, "cuda", 8)
        sf, scales_intact = poison.canary(*recipe.shape(rows, columns), FP32, "cuda", 4)
        cast.cast(x.cuda(), q, sf, recipe)
        data_intact()
        scales_intact()
        wanted = torch_cast.cast_computed(x, recipe, False, E4M3, "error")
        assert_same(q, wanted[0], "data")
        assert_same(sf, wanted[1], "scales")


@every_cast
@pytest.mark.parametrize("shape", [(0, 128), (5, 0), (0, 0)])
def test_empty_tensors(name, shape):
    q, sf = CASTS[name](torch.empty(shape, device="cuda"))
    assert tuple(q.shape) == shape
    assert tuple(sf.shape) == RECIPES[name].shape(*shape) and (sf == 1).all()


# --- overflow -----------------------------------------------------------------------------------


@every_cast
def test_overflow_is_counted_and_told_as_on_the_cpu(name, rng):
    x = torch.randn(300, 1000, generator=rng).to(BF16)
    x[7, 9], x[211, 733] = torch.inf, -torch.inf
    with pytest.raises(ArgumentError, match="2 of 300000 elements .* inf") as on_cpu:
        CASTS[name](x)
    for _ in range(2):  # the counter starts from zero again
        with pytest.raises(ArgumentError) as on_gpu:
            CASTS[name](x.cuda())
        assert str(on_gpu.value) == str(on_cpu.value)
    CASTS[name](torch.ones(300, 1000, dtype=BF16, device="cuda"))


def test_a_nan_in_the_block_hides_infinities(rng):
    x = torch.randn(300, 1000, generator=rng)
    x[5, 6], x[290, 990] = torch.inf, torch.nan
    q, sf = quant.per_tensor_cast_to_fp8(x.cuda())  # nothing lies beyond a scale of NaN
    assert sf.isnan().all() and q.float().isnan().all()


def test_values_just_beyond_the_format_are_told_from_those_within():
    one = torch.ones(1, 1)
    for largest, dtype in ((448.0, E4M3), (57344.0, E5M2), (127.0, INT8)):
        for steps in range(8):
            bits = torch.tensor([[largest]]).view(torch.int32) + steps
            x = bits.view(FP32).expand(3, 9).contiguous()
            if steps <= 4:
                quant.cast_to_fp8(x.cuda(), one.cuda(), quant.PER_TENSOR, dtype=dtype)
                continue
            with pytest.raises(ArgumentError, match="27 of 27"):
                quant.cast_to_fp8(x.cuda(), one.cuda(), quant.PER_TENSOR, dtype=dtype)


# --- streams, graphs, repeats -------------------------------------------------------------------


@every_cast
def test_saturating_casts_can_be_captured_and_replayed(name, rng):
    x = torch.randn(300, 1032, generator=rng).to(BF16)
    on_gpu = x.cuda()
    CASTS[name](on_gpu, overflow="saturate")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = CASTS[name](on_gpu, overflow="saturate")
        second = CASTS[name](on_gpu, overflow="saturate")
    for _ in range(3):
        fresh = adversarial(300, 1032, BF16, rng, infinities=True)
        on_gpu.copy_(fresh)
        graph.replay()
        wanted = CASTS[name](fresh, overflow="saturate")
        for found in (first, second):
            assert_same(found[0], wanted[0], "data")
            assert_same(found[1], wanted[1], "scales")


@every_cast
def test_repeats_give_the_same_bits(name, rng):
    x = torch.randn(1024, 7168, generator=rng).to(BF16).cuda()
    first = [t.clone() for t in CASTS[name](x, overflow="saturate")]
    for _ in range(20):
        for found, wanted in zip(CASTS[name](x, overflow="saturate"), first, strict=True):
            assert_bitwise_equal(found, wanted)


@pytest.mark.parametrize("name", ["tensor", "column"])
def test_streams_do_not_share_scratch_memory(name, rng):
    streams = [torch.cuda.Stream() for _ in range(3)]
    inputs = [torch.randn(2048, 2048, generator=rng).to(BF16) * 4**i for i in range(3)]
    on_gpu = [x.cuda() for x in inputs]
    torch.cuda.synchronize()
    found = []
    for _ in range(10):
        for x, stream in zip(on_gpu, streams, strict=True):
            with torch.cuda.stream(stream):
                found.append(CASTS[name](x, overflow="saturate"))
    torch.cuda.synchronize()
    wanted = [CASTS[name](x, overflow="saturate") for x in inputs]
    for i, (q, sf) in enumerate(found):
        assert_same(q, wanted[i % 3][0], "data")
        assert_same(sf, wanted[i % 3][1], "scales")


# --- transposes ---------------------------------------------------------------------------------

TRANSPOSED = ((1, 1), (1, 300), (300, 1), (128, 128), (129, 250), (1000, 264), (4096, 7168))


@pytest.mark.parametrize("dtype", [E4M3, E5M2, INT8, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", TRANSPOSED, ids=str)
def test_transposes(shape, dtype):
    k, mn = shape
    rng = torch.Generator("cuda").manual_seed(k + mn)
    stored = torch.randint(0, 256, (k, mn + 16), device="cuda", generator=rng).to(torch.uint8)
    for first, columns in ((0, mn), (16, mn), (3, mn)):
        x = stored[:, first : first + columns].view(dtype).t()
        y = transpose.transposed(x)
        assert y.shape == (columns, k) and y.dtype == dtype
        assert y.stride(1) == 1 and y.stride(0) % 128 == 0 or columns == 1
        assert torch.equal(y.view(torch.uint8), x.view(torch.uint8))
    packed = stored[:, :mn].contiguous().view(dtype)
    assert torch.equal(
        transpose.transposed(packed.t()).view(torch.uint8), packed.t().view(torch.uint8)
    )


def test_a_transpose_writes_whole_units_of_16_bytes_and_no_more():
    x = torch.arange(70, dtype=torch.uint8, device="cuda").expand(37, 70).contiguous()
    y, intact = poison.canary(70, 48, torch.uint8, "cuda", 16)
    transpose.transpose_into(x, y[:, :37])
    intact()
    assert torch.equal(y[:, :37], x.t())


def test_empty_transposes_and_wrong_strides():
    for shape in ((0, 5), (5, 0)):
        x = torch.empty(shape, dtype=torch.uint8, device="cuda").t()
        assert transpose.transposed(x).shape == x.shape
    with pytest.raises(ArgumentError, match="strides"):
        transpose.transposed(torch.empty(4, 4, dtype=torch.uint8, device="cuda"))


def test_a_transpose_can_be_captured():
    x = torch.randint(0, 256, (512, 300), device="cuda").to(torch.uint8)
    transpose.transposed(x.t())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = transpose.transposed(x.t())
    x.add_(1)
    graph.replay()
    assert torch.equal(y, x.t())
