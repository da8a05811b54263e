"""Cast and transpose kernels without a GPU: machine code, geometry, launches, rounding."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm import quant
from deep_gemm.errors import ArgumentError
from deep_gemm.jit import driver, launch, sass
from deep_gemm.kernels import cast, cast_geometry, small_kernel, transpose
from deep_gemm.kernels import spec as spec_module
from deep_gemm.kernels.cast_geometry import CastParams
from deep_gemm.kernels.small_kernel import FastDivmod, SmallKernel
from deep_gemm.kernels.spec import KernelSpec
from deep_gemm.quant import torch_cast
from deep_gemm.testing.numerics import assert_bitwise_equal

from .fake_driver import LAUNCH, FakeDriver, forget_addresses
from .host_kit import Source, compile_host
from .script_kit import load_script

# Each kind, with the smallest and the largest detail that it can have.
KINDS = (
    ("token", 32),
    ("token", 128),
    ("token", 512),
    ("token_mn", 128),
    ("row", 32),
    ("row", 512),
    ("block", 0),
    ("channel", 32),
    ("channel", 128),
    ("precomputed", 0),
    ("precomputed_each", 0),
    ("tensor", 0),
    ("tensor", 1),
    ("column", 0),
)
TYPES = [(source, target) for source in cast_geometry.INPUTS for target in cast_geometry.OUTPUTS]
SM_REGISTERS, SM_SHARED = 65536, 228 << 10

# --- machine code -------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def kept_cache(kept_kernels):
    """Keep compiled kernels from run to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
        yield


def check_resources(kernel: KernelSpec) -> None:
    found, shape = kernel.build().resources, kernel.launch
    assert not found.spills and found.stack_bytes == 0
    assert found.registers * shape.threads * shape.ctas_per_sm <= SM_REGISTERS
    shared = found.shared_bytes + shape.smem_bytes + 1024  # the system's
    assert shared * shape.ctas_per_sm <= SM_SHARED


every_kind = pytest.mark.parametrize("kind, detail", KINDS, ids=str)


@pytest.mark.parametrize("source, target", TYPES, ids=str)
@every_kind
def test_cast_kernels_compile_without_local_memory(kind, detail, source, target):
    check_resources(cast_geometry.spec(kind, detail, source, target, True))


@pytest.mark.parametrize("source, target", TYPES[::4], ids=str)
@every_kind
def test_kernels_for_any_alignment_compile_without_local_memory(kind, detail, source, target):
    check_resources(cast_geometry.spec(kind, detail, source, target, False))


@pytest.mark.parametrize("aligned", [True, False])
def test_the_transpose_compiles_without_local_memory(aligned):
    check_resources(transpose.spec(aligned))


@pytest.mark.parametrize("kind, detail", [("token", 128), ("block", 0), ("tensor", 0)])
def test_chunks_of_16_bytes_are_loaded_by_one_instruction(kind, detail):
    kernel = cast_geometry.spec(kind, detail, torch.bfloat16, torch.float8_e4m3fn, True)
    found = {instruction.opcode for instruction in sass.disassemble(kernel.build().cubin)}
    assert {op for op in found if op.startswith("LDG")} <= {
        "LDG.E.128",
        "LDG.E.STRONG.SYS",
        "LDG.E.STRONG.GPU",
    }
    assert found & {"STG.E.64", "STG.E.EF.64"}
    assert not [op for op in found if op.endswith((".U8", ".U16"))]


def test_every_kernel_has_a_name_of_its_own():
    made = [
        cast_geometry.spec(kind, detail, source, target, aligned)
        for kind, detail in KINDS
        for source, target in TYPES
        for aligned in (True, False)
    ]
    assert len({kernel.name for kernel in made}) == len(made)
    token = cast_geometry.spec("token", 128, torch.bfloat16, torch.float8_e4m3fn, True)
    assert token.name == "cast_token128_bf16_e4m3"
    row = cast_geometry.spec("row", 32, torch.float32, torch.int8, False)
    assert row.name.endswith("fp32_int8_any")
    unit = made[0].unit
    assert unit.entry == unit.name and f"{unit.entry}(" in unit.source


def test_the_parameter_has_the_size_and_the_offsets_that_the_kernels_assert():
    kernel = cast_geometry.spec("block", 0, torch.bfloat16, torch.float8_e4m3fn, True)
    assert kernel.params is CastParams
    source = kernel.unit.source
    assert f"static_assert(sizeof(Params) == {ctypes.sizeof(CastParams)}," in source
    for name, _ in CastParams._fields_:
        offset = getattr(CastParams, name).offset
        assert f"static_assert(DG_OFFSETOF(Params, {name}) == {offset}," in source


# --- arithmetic on the host ---------------------------------------------------------------------


def test_quotients_and_scales_are_those_of_division(seed):
    run = compile_host(Source("quotient", (), ("-O2", "-ffp-contract=off")))
    *wrong, bounds = run(f"{seed} 10000000\n")
    assert len(wrong) == 7
    assert all(data == 0 for data, _ in wrong), wrong
    # Of each format: what is surely no overflow, and where torch begins to count it, as float32.
    for index, dtype in enumerate((torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)):
        largest = torch_cast.largest_of(dtype)
        surely, overflow = (as_float(bits) for bits in bounds[2 * index : 2 * index + 2])
        assert overflow == as_float32(largest * (1 + 2.0**-22))
        assert largest < surely < overflow


def as_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def as_float32(value):
    """Round to the nearest float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


@given(st.integers(1, 2**31), st.integers(0, 2**31 - 1))
@settings(max_examples=300, deadline=None)
def test_fast_divmod_divides(divisor, n):
    d = FastDivmod.by(divisor)
    for value in {n, n - n % divisor, max(0, n - n % divisor - 1), 2**31 - 1}:
        total = ((value * d.multiplier) >> 32) + value
        assert total < 2**32 and total >> d.shift == value // divisor


# --- geometry -----------------------------------------------------------------------------------

RECIPES = {
    "token": quant.ROW_1X128,
    "row": quant.PER_CHANNEL,
    "block": quant.BLOCK_128X128,
    "channel": quant.by_granularity(128, 1),
    "tensor": quant.PER_TENSOR,
    "column": quant.PER_COLUMN,
}


@given(rows=st.integers(1, 5000), columns=st.integers(1, 9000), chunk=st.sampled_from([4, 8]))
@settings(max_examples=100, deadline=None)
def test_a_grid_covers_the_matrix_and_has_no_cta_too_many(rows, columns, chunk):
    across = -(-columns // chunk)
    for kind, recipe in RECIPES.items():
        found = cast_geometry.geometry(recipe, rows, columns, chunk)
        assert found is not None and found.kind == kind
        source = torch.float32 if chunk == 4 else torch.bfloat16
        kernel = cast_geometry.spec(kind, found.detail, source, torch.float8_e4m3fn, True)
        threads, ctas = kernel.launch.threads, found.ctas
        # What a CTA takes at a time, and how much of it there is.
        if kind == "token":
            per_cta, needed = threads // (128 // 16) * (chunk // 4), rows * found.per_row
        elif kind == "row":
            per_cta, needed = threads // found.detail, rows
        elif kind in ("block", "channel"):
            per_cta, needed = 1, recipe.shape(rows, columns)[0] * found.per_row
        elif kind == "tensor":
            per_cta, needed = threads, rows * across
        else:
            lanes = cast_geometry.COLUMN_STRIDE.lanes
            assert found.per_row == -(-across // lanes) and ctas % found.per_row == 0
            per_cta, needed, ctas = threads // lanes, rows, ctas // found.per_row
        assert (ctas - 1) * per_cta < needed <= ctas * per_cta
        assert kernel.launch.cooperative == (kind in ("tensor", "column"))


def test_a_row_gets_a_team_whose_registers_hold_it():
    for columns, team in ((1, 32), (1024, 32), (1025, 128), (4096, 128), (8192, 256), (8193, 512)):
        assert cast_geometry.geometry(quant.PER_CHANNEL, 7, columns, 8).detail == team
    assert cast_geometry.geometry(quant.PER_CHANNEL, 1 << 20, 1 << 20, 8).detail == 512


def test_granularities_without_a_kernel_are_left_to_torch():
    for recipe in ((1, 24), (2, 128), (128, 64), (48, 1)):
        assert cast_geometry.geometry(quant.by_granularity(*recipe), 100, 1000, 8) is None
    for gran_k, kind in ((24, "precomputed"), (1, "precomputed_each")):
        recipe = quant.by_granularity(3, gran_k)
        assert cast_geometry.precomputed_geometry(recipe, 100, 1000, 8).kind == kind
    assert cast_geometry.precomputed_geometry(quant.by_granularity(3, 4), 100, 1000, 8) is None
    assert not cast.serves(torch.ones(4, 4), quant.ROW_1X128)  # not on CUDA


def test_mn_major_scales_have_a_kernel_of_their_own():
    found = cast_geometry.geometry(quant.ROW_1X128, 5, 256, 8, scales_mn_major=True)
    assert found.kind == "token_mn" and found.ctas == 1


# --- launches on a fake driver ------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch):
    """Launch kernels on a fake driver; return the grid, parameter and attributes of each launch.

    Tensors of the CPU are cast as if they were on the current device.
    """
    fake, seen = FakeDriver(monkeypatch), []

    def launch_kernel(config: int, handle: int, params: int, extra: int | None) -> int:
        copy = launch.LaunchConfig.from_buffer_copy(ctypes.string_at(config, 56))
        block = ctypes.string_at(ctypes.c_void_p.from_address(params).value, PARAMS)
        ids = [copy.attrs[i].id for i in range(copy.numAttrs)]
        seen.append((copy.gridDimX, CastParams.from_buffer_copy(block), ids))
        return 0

    fake.serve("cuLaunchKernelEx", LAUNCH, launch_kernel)
    function = driver.Function(1, "k", 0, 64, 0, 0, 232448)
    monkeypatch.setattr(driver, "load", lambda built, index: function)
    monkeypatch.setattr(driver, "max_active_clusters", lambda *args: 264)
    monkeypatch.setattr(spec_module, "build", lambda unit: None)
    monkeypatch.setattr(cast, "small_kernel", lambda kernel, index: SmallKernel(kernel, 0, True))
    monkeypatch.setattr(cast, "current_device", lambda: None)  # a CPU tensor's device has no index
    monkeypatch.setattr(small_kernel, "current_device", lambda: 0)
    for module in (cast, small_kernel):
        monkeypatch.setattr(module, "current_stream", lambda index: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    scratch = torch.zeros(4, dtype=torch.int32)
    monkeypatch.setattr(cast, "_memory", lambda index: SimpleNamespace(scratch=scratch))
    yield seen
    forget_addresses()


PARAMS = ctypes.sizeof(CastParams)


def cast_on_fake(x, recipe, **options):
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    sf = torch.empty(*x.shape[:-2], *recipe.shape(*x.shape[-2:]))
    assert not cast.cast(x, q, sf, recipe, **options)
    return q, sf


def test_a_launch_has_addresses_strides_and_grid(launches):
    x = torch.ones(300, 1024)[:, :1000]
    q, sf = cast_on_fake(x, quant.ROW_1X128, power_of_two=True)
    ((grid, p, ids),) = launches
    assert (p.x, p.q, p.scales) == (x.data_ptr(), q.data_ptr(), sf.data_ptr())
    assert (p.pitch_x, p.pitch_q, p.scale_row, p.scale_column) == (1024, 1000, 8, 1)
    assert (p.rows, p.columns, p.per_row.divisor, p.power_of_two) == (300, 1000, 8, 1)
    assert (p.overflow_count, p.scratch) == (0, 0)
    assert grid == 300 * 8 / 32 and ids == [6]  # programmatic


def test_cooperative_grids_are_resident_and_not_programmatic(launches):
    cast_on_fake(torch.ones(4096, 4096), quant.PER_TENSOR)
    cast_on_fake(torch.ones(300, 1300), quant.PER_COLUMN)
    cast_on_fake(torch.ones(8, 270), quant.PER_COLUMN)
    cast_on_fake(torch.ones(300, 1600), quant.PER_COLUMN)
    (grid, p, ids), (large, q, _), (small, *_), (rounded, r, _) = launches
    assert grid == 264 and ids == [2]  # cooperative
    assert (p.rows, p.columns) == (1, 4096 * 4096) and p.scratch  # one row
    assert (q.rows, q.columns, q.per_row.divisor) == (300, 1300, 11)
    # Multiples of the strips: 11, 3 and 13.
    assert large == 264 and small == 3
    assert r.per_row.divisor == 13 and rounded == 260


def test_columns_beyond_one_grid_are_cast_by_several_launches(launches):
    columns = 600 * 128 + 4
    x = torch.ones(3, columns)
    q, sf = cast_on_fake(x, quant.PER_COLUMN)
    end = 0
    for grid, p, _ in launches:
        assert p.x == x.data_ptr() + 4 * end and p.q == q.data_ptr() + end
        assert p.scales == sf.data_ptr() + 4 * end and p.pitch_x == p.pitch_q == columns
        assert grid == p.per_row.divisor == -(-p.columns // 128) <= 264
        end += p.columns
    assert end == columns and len(launches) == 4


def test_matrices_share_a_launch_where_no_scale_block_spans_two(launches):
    cast_on_fake(torch.ones(3, 256, 128), quant.BLOCK_128X128)
    cast_on_fake(torch.ones(3, 5, 128), quant.ROW_1X128)
    assert [(p.rows, grid) for grid, p, _ in launches] == [(768, 6), (15, 1)]
    launches.clear()
    cast_on_fake(torch.ones(3, 100, 128), quant.BLOCK_128X128)
    cast_on_fake(torch.ones(2, 5, 128), quant.PER_COLUMN)
    assert [p.rows for _, p, _ in launches] == [100] * 3 + [5] * 2


def test_rows_that_are_not_contiguous_are_copied_first(launches):
    x = torch.ones(64, 200).T
    cast_on_fake(x, quant.ROW_1X128)
    ((_, p, _),) = launches
    assert p.x != x.data_ptr() and (p.rows, p.columns, p.pitch_x) == (200, 64, 64)


# --- INT8 and columns in torch ------------------------------------------------------------------

CASTS = {
    "token": (quant.per_token_cast_to_fp8, quant.ROW_1X128),
    "block": (quant.per_block_cast_to_fp8, quant.BLOCK_128X128),
    "channel": (quant.per_channel_cast_to_fp8, quant.by_granularity(128, 1)),
    "row": (quant.per_row_cast_to_fp8, quant.PER_CHANNEL),
    "tensor": (quant.per_tensor_cast_to_fp8, quant.PER_TENSOR),
    "column": (quant.per_column_cast_to_fp8, quant.PER_COLUMN),
}
every_cast = pytest.mark.parametrize("name", CASTS)


@given(rows=st.integers(1, 140), columns=st.integers(1, 270), seed=st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_int8_is_the_nearest_of_255_steps(rows, columns, seed):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    for cast_it, recipe in CASTS.values():
        q, sf = cast_it(x, dtype=torch.int8)
        assert q.dtype == torch.int8 and tuple(sf.shape) == recipe.shape(rows, columns)
        assert q.abs().max() == 127 and q.min() >= -127
        scale = quant.dequantize(torch.ones(rows, columns), sf, recipe)
        # In float64, so that rounding it gives the float32 quotient.
        right = (x.double() / scale.double()).float().clamp(-127, 127)
        assert torch.equal(right.round(), q.float())
        assert torch.equal(quant.dequantize(q, sf, recipe), q * scale)


def test_int8_rounds_halves_to_even_and_clamps():
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.0, -127.0]])
    one = torch.ones(1, 1)
    got = quant.cast_to_fp8(x, one, quant.ROW_1X128, dtype=torch.int8)
    assert got.tolist() == [[0, 2, 2, 0, -2, -2, 126, 127, -127]]
    with pytest.raises(ArgumentError, match="within 127 .* 1 of 9 elements"):
        quant.cast_to_fp8(x * 1.001 * (x != -127), one, quant.ROW_1X128, dtype=torch.int8)
    far = torch.tensor([[300.0, -torch.inf, -128.0]])
    got = quant.cast_to_fp8(far, one, quant.ROW_1X128, dtype=torch.int8, overflow="saturate")
    assert got.tolist() == [[127, -127, -127]]


@every_cast
def test_int8_of_nan_is_zero_with_a_scale_of_nan(name):
    x = torch.ones(2, 3)
    x[1, 1] = torch.nan
    q, sf = CASTS[name][0](x, dtype=torch.int8)
    assert q[1, 1] == 0 and sf.isnan().any()
    scale = quant.dequantize(torch.ones(2, 3), sf, CASTS[name][1])
    assert torch.equal(q == 0, scale.isnan())


@every_cast
def test_int8_of_zeros_and_powers_of_two(name):
    q, sf = CASTS[name][0](torch.zeros(130, 140), dtype=torch.int8)
    assert not q.any() and (sf == 1).all()
    q, sf = CASTS[name][0](torch.full((3, 4), 128.0), True, dtype=torch.int8)
    assert (sf == 2).all() and (q == 64).all()


def test_a_column_has_one_scale_over_all_rows(rng):
    x = torch.randn(300, 70, generator=rng) * torch.logspace(-20, 20, 70)
    q, sf = quant.per_column_cast_to_fp8(x)
    row_q, row_sf = quant.per_row_cast_to_fp8(x.T)
    assert sf.shape == (1, 70) and quant.by_granularity(0, 1) is quant.PER_COLUMN
    assert_bitwise_equal(q, row_q.T)
    assert_bitwise_equal(sf, row_sf.T)


def test_scales_can_be_mn_major(rng):
    x = torch.randn(130, 300, generator=rng)
    row_major = quant.per_token_cast_to_fp8(x)
    aligned = quant.per_token_cast_to_fp8(x, scale_layout="mn_major")
    assert aligned[1].stride() == (1, 132)
    for one, other in zip(row_major, aligned, strict=True):
        assert_bitwise_equal(one, other)
    assert quant.get_mn_major_tma_aligned_tensor(aligned[1]) is aligned[1]
    with pytest.raises(ArgumentError, match="scale_layout"):
        quant.per_token_cast_to_fp8(x, scale_layout="columns")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
@every_cast
def test_quantize_keeps_data_and_scales_together(name, dtype, rng):
    x = torch.randn(130, 200, generator=rng)
    cast_it, recipe = CASTS[name]
    whole = quant.quantize(x, recipe, dtype=dtype, use_ue8m0=True)
    q, sf = cast_it(x, True, dtype=dtype)
    assert whole.recipe == recipe
    assert_bitwise_equal(whole.data, q)
    assert_bitwise_equal(whole.scale, sf)
    assert whole.dequantize().shape == x.shape


def test_a_transpose_refuses_cpu_tensors_and_wide_elements():
    for x in (torch.ones(4, 4, dtype=torch.int8), torch.ones(4, 4)):
        with pytest.raises(ArgumentError, match="one byte an element"):
            transpose.transposed(x.t())


# --- benchmarks/casts.py ------------------------------------------------------------------------


def test_rates_count_the_bytes_that_must_move():
    casts = load_script("casts")
    names = [name for name, _ in casts.cast_calls()]
    assert names[:6] == list(casts.RECIPES) and set(casts.TWICE) <= set(names)
    assert casts.recipe_of("1x128 mn") == quant.ROW_1X128
    assert casts.recipe_of("128x128") == quant.BLOCK_128X128
    moved = casts.moved_bytes(quant.ROW_1X128, 1024, 7168)
    assert moved == 3 * 1024 * 7168 + 4 * 1024 * 56
    found = casts.Measured("per tensor", 1024, 7168, 10.0, 8.0, moved, 2 * 1024 * 7168)
    text = casts.line(found)
    assert "2225 GB/s" in text and "80% of copy_" in text and "under 85%" in text
    assert "3693 GB/s, 133%, with the second read" in text
    for _, call in casts.cast_calls():
        call(torch.ones(130, 200, dtype=torch.bfloat16))
