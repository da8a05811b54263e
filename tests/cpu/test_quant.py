"""Casts to FP8: scales, blocks, limits of the format, overflow; recipes and ScaledTensor."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm import quant
from deep_gemm.errors import ArgumentError, DeepGemmError, UnsupportedError
from deep_gemm.testing.numerics import assert_bitwise_equal

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CASTS = {
    "token": (quant.per_token_cast_to_fp8, (1, 128)),
    "block": (quant.per_block_cast_to_fp8, (128, 128)),
    "channel": (quant.per_channel_cast_to_fp8, (128, 1)),
    "row": (quant.per_row_cast_to_fp8, (1, 0)),
    "tensor": (quant.per_tensor_cast_to_fp8, (0, 0)),
}
every_cast = pytest.mark.parametrize("name", CASTS)


def blocks_of(shape, gran):
    """Yield the index of each scale and the slices of its block, by loops."""
    rows, columns = (g or extent for g, extent in zip(gran, shape, strict=True))
    for i, r in enumerate(range(0, shape[0], rows)):
        for j, c in enumerate(range(0, shape[1], columns)):
            yield (i, j), (slice(r, r + rows), slice(c, c + columns))


@every_cast
@pytest.mark.parametrize("shape", [(3, 128), (129, 200), (1, 1), (300, 16), (128, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_scale_is_amax_over_max_and_data_are_rounded_quotients(name, shape, dtype, rng):
    cast, gran = CASTS[name]
    x = torch.randn(shape, generator=rng).to(dtype)
    q, sf = cast(x)
    assert q.shape == x.shape and q.dtype == E4M3 and sf.dtype == torch.float32
    assert tuple(sf.shape) == quant.by_granularity(*gran).shape(*shape)
    for index, place in blocks_of(shape, gran):
        block = x[place].to(torch.float64)
        torch.testing.assert_close(sf[index].double(), block.abs().max() / 448, rtol=1e-7, atol=0)
        # Half a unit of 3 mantissa bits, or half of the smallest subnormal times the scale.
        error = (q[place].double() * sf[index].double() - block).abs()
        allowed = torch.maximum(block.abs() * 2.0**-4, sf[index].double() * 2.0**-10)
        assert (error <= allowed * (1 + 1e-5)).all()
        assert q[place].float().abs().max() == 448


@every_cast
def test_powers_of_two_are_the_next_ones_above_the_exact_scales(name, rng):
    cast, _ = CASTS[name]
    x = torch.randn(200, 300, generator=rng) * 7
    x[0] *= 1e-30
    exact, rounded = cast(x)[1].double(), cast(x, True)[1].double()
    assert (torch.log2(rounded) == torch.log2(rounded).round()).all()
    assert (rounded >= exact).all() and (rounded < 2 * exact).all()


def test_a_scale_that_is_a_power_of_two_is_kept():
    x = torch.zeros(1, 128)
    x[0, 5] = 448 * 2.0**-7
    assert quant.per_token_cast_to_fp8(x, True)[1].item() == 2.0**-7


@every_cast
@pytest.mark.parametrize("ue8m0", [False, True])
def test_zero_blocks_give_exact_zeros_and_a_finite_scale(name, ue8m0):
    cast, _ = CASTS[name]
    q, sf = cast(torch.zeros(130, 140), ue8m0)
    assert (q.float() == 0).all()
    assert torch.isfinite(sf).all() and torch.isfinite(1 / sf).all() and (sf > 0).all()


def test_a_zero_block_beside_a_full_one_is_not_touched(rng):
    x = torch.randn(2, 256, generator=rng)
    x[0, :128] = 0
    q, sf = quant.per_token_cast_to_fp8(x)
    assert (q[0, :128].float() == 0).all() and (q[0, 128:].float() != 0).any()
    assert_bitwise_equal(q[1:], quant.per_token_cast_to_fp8(x[1:])[0])
    assert torch.isfinite(sf).all()


@every_cast
@pytest.mark.parametrize("ue8m0", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tiny", [1e-40, 1.4e-45, 1e-36])
def test_tiny_amax_keeps_the_scale_and_its_inverse_finite(name, ue8m0, dtype, tiny):
    cast, _ = CASTS[name]
    q, sf = cast(torch.full((3, 130), tiny, dtype=dtype), ue8m0)
    assert torch.isfinite(1 / sf).all() and (sf >= 2.0**-126).all()
    assert torch.isfinite(q.float()).all()


@every_cast
def test_nan_makes_its_own_block_nan_and_no_other(name, rng):
    cast, gran = CASTS[name]
    x = torch.randn(260, 260, generator=rng)
    clean_q, clean_sf = cast(x)
    x[131, 129] = torch.nan
    q, sf = cast(x)
    for index, place in blocks_of(x.shape, gran):
        hit = place[0].start <= 131 < place[0].stop and place[1].start <= 129 < place[1].stop
        if hit:
            assert sf[index].isnan() and q[place].float().isnan().all()
        else:
            assert_bitwise_equal(sf[index], clean_sf[index])
            assert_bitwise_equal(q[place], clean_q[place])


@every_cast
@pytest.mark.parametrize("shape", [(0, 128), (5, 0), (0, 0)])
def test_empty_tensors(name, shape):
    cast, gran = CASTS[name]
    q, sf = cast(torch.empty(shape))
    assert tuple(q.shape) == shape and q.dtype == E4M3
    assert tuple(sf.shape) == quant.by_granularity(*gran).shape(*shape)
    assert torch.isfinite(sf).all()
    assert quant.dequantize(q, sf, quant.by_granularity(*gran)).shape == shape


@every_cast
def test_infinities_are_refused_with_count_and_value(name, rng):
    cast, _ = CASTS[name]
    x = torch.randn(64, 128, generator=rng)
    x[1, 2], x[3, 4] = torch.inf, -torch.inf
    with pytest.raises(ArgumentError, match=r"x: .* 2 of 8192 elements .* inf") as caught:
        cast(x)
    assert caught.value.tensor == "x" and "saturate" in caught.value.remedy
    assert isinstance(caught.value, RuntimeError)


@every_cast
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("ue8m0", [False, True])
def test_saturated_infinities_become_the_largest_of_the_format(name, dtype, ue8m0, rng):
    cast, _ = CASTS[name]
    x = torch.randn(64, 128, generator=rng)
    x[1, 2], x[3, 4] = torch.inf, -torch.inf
    q, sf = cast(x, ue8m0, dtype=dtype, overflow="saturate")
    assert torch.isfinite(q.float()).all() and torch.isfinite(sf).all()
    largest = torch.finfo(dtype).max
    assert q[1, 2].float() == largest and q[3, 4].float() == -largest


def test_float64_beyond_float32_is_refused_or_saturated():
    x = torch.full((1, 128), 1e300, dtype=torch.float64)
    with pytest.raises(ArgumentError, match="128 of 128 elements .* 1e\\+300"):
        quant.per_token_cast_to_fp8(x)
    q, sf = quant.per_token_cast_to_fp8(x, overflow="saturate")
    assert torch.isfinite(q.float() * sf).all() and (q.float() == 448).all()


@pytest.mark.parametrize("dtype, largest", [(E4M3, 448.0), (E5M2, 57344.0)])
def test_own_scales_overflow(dtype, largest):
    x = torch.tensor([[largest, -largest, 1.25 * largest, -3 * largest, 0.5, torch.inf]])
    sf = torch.ones(1, 1)
    with pytest.raises(ArgumentError, match="3 of 6 elements beyond it, the largest magnitude inf"):
        quant.cast_to_fp8(x, sf, quant.ROW_1X128, dtype=dtype)
    x[0, 5] = 0
    with pytest.raises(ArgumentError, match=f"2 of 6 elements .* {3 * largest:g}"):
        quant.cast_to_fp8(x, sf, quant.ROW_1X128, dtype=dtype)
    q = quant.cast_to_fp8(x, sf, quant.ROW_1X128, dtype=dtype, overflow="saturate")
    assert q.float().tolist() == [[largest, -largest, largest, -largest, 0.5, 0.0]]


def test_a_value_just_beyond_the_maximum_counts_as_overflow():
    with pytest.raises(ArgumentError, match="1 of 1"):
        quant.cast_to_fp8(torch.tensor([[448.5]]), torch.ones(1, 1), quant.ROW_1X128)


def test_own_scale_of_zero():
    zero = torch.zeros(1, 1)
    assert quant.cast_to_fp8(torch.zeros(1, 9), zero, quant.ROW_1X128).float().eq(0).all()
    with pytest.raises(ArgumentError, match="9 of 9"):
        quant.cast_to_fp8(torch.ones(1, 9), zero, quant.ROW_1X128)


def test_own_scales_reproduce_the_computed_cast(rng):
    x = torch.randn(130, 200, generator=rng)
    q, sf = quant.per_block_cast_to_fp8(x)
    assert_bitwise_equal(quant.cast_to_fp8(x, sf, quant.BLOCK_128X128), q)


@every_cast
def test_amax_of_every_magnitude_never_overflows_by_rounding(name):
    cast, _ = CASTS[name]
    exponents = torch.arange(-125.0, 127.0)
    if name not in ("token", "row"):  # one scale for several rows: a few magnitudes at a time
        exponents = exponents[::16]
    for mantissa in (1.0, 1.0000001, 1.3333334, 1.75, 1.9999999):
        x = (mantissa * 2.0**exponents).float()[:, None].expand(-1, 3)
        for rows in (x,) if name in ("token", "row") else x[:, None]:
            q, _ = cast(rows)  # raises if amax / (amax / 448) counted as overflow
            assert ((q.float() == 448) | (rows < 1e-35)).all()


@pytest.mark.parametrize("recipe", [quant.PER_TENSOR, quant.PER_CHANNEL, quant.ROW_1X128])
def test_dequantize_multiplies_each_block_by_its_scale(recipe, rng):
    q = torch.randn(5, 200, generator=rng).to(E4M3)
    sf = torch.rand(recipe.shape(5, 200), generator=rng)
    for dtype in (torch.float32, torch.float64):
        whole = quant.dequantize(q, sf, recipe, dtype)
        assert whole.dtype == dtype
        for index, place in blocks_of((5, 200), (recipe.gran_mn, recipe.gran_k)):
            assert_bitwise_equal(whole[place], q[place].to(dtype) * sf[index].to(dtype))


def test_leading_dimensions_are_cast_matrix_by_matrix(rng):
    x = torch.randn(3, 130, 200, generator=rng)
    q, sf = quant.per_block_cast_to_fp8(x)
    assert sf.shape == (3, 2, 2)
    for i in range(3):
        one_q, one_sf = quant.per_block_cast_to_fp8(x[i])
        assert_bitwise_equal(q[i], one_q)
        assert_bitwise_equal(sf[i], one_sf)


def test_views_are_cast_as_their_copies(rng):
    x = torch.randn(400, 300, generator=rng).T[::2, 3:]
    for cast, _ in CASTS.values():
        for got, wanted in zip(cast(x), cast(x.contiguous()), strict=True):
            assert got.is_contiguous()
            assert_bitwise_equal(got, wanted)


@given(
    rows=st.integers(1, 140),
    columns=st.integers(1, 270),
    gran_k=st.sampled_from([16, 32, 64, 128, 256]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_any_granularity_round_trips_within_half_a_unit(rows, columns, gran_k, seed):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    for cast, recipe in (
        (quant.per_token_cast_to_fp8, quant.by_granularity(1, gran_k)),
        (quant.per_block_cast_to_fp8, quant.by_granularity(128, gran_k)),
        (quant.per_channel_cast_to_fp8, quant.by_granularity(gran_k, 1)),
    ):
        q, sf = cast(x, False, gran_k)
        back = quant.dequantize(q, sf, recipe)
        assert ((back - x).abs() <= x.abs() * 2.0**-4 + float(sf.max()) * 2.0**-10).all()


def test_positional_order_and_blackwell_format(rng):
    x = torch.randn(4, 256, generator=rng)
    assert quant.per_token_cast_to_fp8(x, False, 64)[1].shape == (4, 4)
    with pytest.raises(UnsupportedError, match="Blackwell"):
        quant.per_token_cast_to_fp8(x, True, 128, True)


@pytest.mark.parametrize(
    "call, prop",
    [
        (lambda: quant.per_token_cast_to_fp8(torch.ones(2, 2, dtype=torch.int32)), "dtype"),
        (lambda: quant.per_token_cast_to_fp8(torch.ones(4)), "shape"),
        (lambda: quant.per_token_cast_to_fp8(torch.ones(2, 2), dtype=torch.bfloat16), "value"),
        (lambda: quant.per_token_cast_to_fp8(torch.ones(2, 2), overflow="wrap"), "value"),
        (lambda: quant.per_token_cast_to_fp8(torch.ones(2, 2), False, -1), "value"),
        (lambda: quant.cast_to_fp8(torch.ones(2, 2), torch.ones(1), quant.ROW_1X128), "shape"),
        (
            lambda: quant.dequantize(
                torch.ones(2, 2), torch.ones(2, 1), quant.ROW_1X128, torch.bfloat16
            ),
            "value",
        ),
    ],
)
def test_wrong_arguments_are_named(call, prop):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.prop.startswith(prop)
    assert isinstance(caught.value, DeepGemmError)


def test_recipe_shapes():
    assert quant.ROW_1X128.shape(7, 129) == (7, 2)
    assert quant.ROW_1X128.shape(7, 0) == (7, 0)
    assert quant.BLOCK_128X128.shape(129, 128) == (2, 1)
    assert quant.PER_CHANNEL.shape(7, 129) == (7, 1)
    assert quant.PER_TENSOR.shape(7, 129) == (1, 1)
    assert quant.by_granularity(1, 128) is quant.ROW_1X128
    assert quant.by_granularity(2, 64) == quant.ScaleRecipe("2x64", 2, 64)


def test_scaled_tensor_checks_its_parts(rng):
    q, sf = quant.per_block_cast_to_fp8(torch.randn(130, 200, generator=rng))
    whole = quant.ScaledTensor(q, sf, quant.BLOCK_128X128)
    data, scale = whole
    assert data is q and scale is sf and whole.shape == (130, 200)
    assert_bitwise_equal(whole.dequantize(), quant.dequantize(q, sf, quant.BLOCK_128X128))
    assert whole.dequantize(torch.float64).dtype == torch.float64
    with pytest.raises(ArgumentError, match=r"scale: shape .* must be \[130, 2\], got \[2, 2\]"):
        quant.ScaledTensor(q, sf, quant.ROW_1X128)
    with pytest.raises(ArgumentError, match="scale: dtype"):
        quant.ScaledTensor(q, sf.double(), quant.BLOCK_128X128)
    with pytest.raises(ArgumentError, match="data: dtype"):
        quant.ScaledTensor(q.float(), sf, quant.BLOCK_128X128)
    with pytest.raises(ArgumentError, match="scale: device"):
        quant.ScaledTensor(q, sf.to("meta"), quant.BLOCK_128X128)
    with pytest.raises(AttributeError):
        whole.scale = sf
