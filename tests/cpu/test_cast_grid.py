"""Cast and transpose kernels compiled as host C++, each thread run, compared with torch's casts.

Conversions of cuda/ptx/convert.cuh are replaced by plain C++.
"""

from __future__ import annotations

import array
import re

import pytest
import torch

from deep_gemm import quant
from deep_gemm.kernels import cast_geometry
from deep_gemm.kernels.cast_geometry import CastParams
from deep_gemm.kernels.small_kernel import FastDivmod
from deep_gemm.quant import torch_cast

from .host_kit import Source, compile_host

E4M3, E5M2, INT8 = cast_geometry.OUTPUTS
TOKEN_64, CHANNEL_32 = quant.by_granularity(1, 64), quant.by_granularity(32, 1)
CHANNEL = quant.by_granularity(128, 1)
RESIDENT = 2  # CTAs that run at a time, and at most in a cooperative grid

# Recipe, input and output dtype, rows, columns, row pitch of x, offset of x and q in bytes: aligned
# and not, and the smallest and largest that a kernel takes.
COMPUTED = [
    (quant.ROW_1X128, torch.bfloat16, E4M3, 5, 392, 400, 0),
    (quant.ROW_1X128, torch.float32, INT8, 7, 260, 260, 0),
    (quant.ROW_1X128, torch.float16, E5M2, 3, 131, 133, 2),
    (TOKEN_64, torch.bfloat16, INT8, 9, 72, 72, 0),
    (quant.PER_CHANNEL, torch.bfloat16, E4M3, 6, 264, 264, 0),
    (quant.PER_CHANNEL, torch.float16, E4M3, 2, 4104, 4104, 0),
    (quant.PER_CHANNEL, torch.float32, E5M2, 1, 17000, 0, 0),
    (quant.PER_CHANNEL, torch.bfloat16, INT8, 3, 1029, 1031, 2),
    (quant.BLOCK_128X128, torch.bfloat16, E4M3, 130, 136, 136, 0),
    (quant.BLOCK_128X128, torch.float32, INT8, 129, 131, 131, 4),
    (CHANNEL, torch.bfloat16, E4M3, 150, 72, 80, 0),
    (CHANNEL, torch.float32, E5M2, 129, 67, 67, 0),
    (CHANNEL_32, torch.float16, INT8, 70, 64, 64, 0),
    (quant.PER_TENSOR, torch.bfloat16, E4M3, 170, 1000, 1008, 0),
    (quant.PER_TENSOR, torch.float32, INT8, 3, 16001, 16001, 0),
    (quant.PER_TENSOR, torch.bfloat16, E5M2, 1, 70000, 0, 0),
    (quant.PER_COLUMN, torch.bfloat16, E4M3, 1900, 136, 136, 0),
    (quant.PER_COLUMN, torch.float32, INT8, 300, 131, 133, 4),
]
PRECOMPUTED = [
    (quant.PER_TENSOR, torch.bfloat16, E4M3, 5, 136, 144, 0),
    (quant.ROW_1X128, torch.float32, INT8, 7, 260, 260, 0),
    (quant.ROW_1X128, torch.float32, E4M3, 7, 260, 260, 0),  # zeros over a scale of zero, not NaN
    (quant.BLOCK_128X128, torch.float16, E5M2, 130, 131, 133, 2),
    (CHANNEL, torch.bfloat16, INT8, 150, 72, 72, 0),
    (quant.PER_COLUMN, torch.float32, E4M3, 9, 67, 67, 4),
]
CASES = [*COMPUTED, *PRECOMPUTED]


def kernel_of(index):
    """Return the geometry and the KernelSpec of a case."""
    recipe, source, target, rows, columns, pitch, offset = CASES[index]
    chunk = 16 // source.itemsize
    is_computed = index < len(COMPUTED)
    find = cast_geometry.geometry if is_computed else cast_geometry.precomputed_geometry
    geometry = find(recipe, rows, columns, chunk)
    assert geometry is not None
    aligned = (columns | pitch) % chunk == 0 and offset == 0
    return geometry, cast_geometry.spec(geometry.kind, geometry.detail, source, target, aligned)


def kernels_text():
    """Return a file that defines each case's Config<i>, as in its kernel's source.

    The macro DG_FOR_EACH_KERNEL(DO) is DO(function, Config<i>) for each of them.
    """
    structs, calls = [], []
    for i in range(len(CASES)):
        _, kernel = kernel_of(i)
        (members,) = re.findall(r"struct Config (\{.*?\};)", kernel.unit.source, re.DOTALL)
        structs.append(f"struct Config{i} {members}")
        calls.append(f"DO({kernel.function}, Config{i})")
    lines = ["namespace deep_gemm {", *structs, "}"]
    return "\n".join([*lines, f"#define DG_FOR_EACH_KERNEL(DO) {' '.join(calls)}\n"])


@pytest.fixture(scope="module")
def run():
    included = {"kernels.inc": kernels_text()}
    return compile_host(Source("casts", ("convert",), ("-ffp-contract=off",), included))


def special_values(rows, columns, dtype, rng):
    """Return x of many magnitudes, with a zero block, -0, subnormal numbers and an infinity."""
    x = torch.randn(rows, columns, generator=rng)
    x[:, : columns // 3] *= 2.0 ** torch.randint(-14, 14, (rows, 1), generator=rng)
    x[0, : min(columns, 200)] = 0
    x[rows // 2, columns // 2] = -0.0
    x = x.to(dtype)
    if rows > 2:
        x[1] = 1e-40 if dtype != torch.float16 else 6e-8
        x[2, columns - 1] = torch.inf
    return x


def bits_of(x):
    """Return the bits of x as unsigned numbers."""
    size = x.element_size()
    signed = x.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[size]).long()
    return signed & (1 << 8 * size) - 1


def launch_words(index, x, sf, power_of_two):
    """Return a launch and its matrices as host/casts.cpp reads them."""
    recipe, source, _, rows, columns, pitch, offset = CASES[index]
    geometry, kernel = kernel_of(index)
    launch = kernel.launch
    ctas = min(geometry.ctas, RESIDENT) if launch.cooperative else geometry.ctas
    assert geometry.kind != "column" or ctas % geometry.per_row == 0
    pitched = torch.zeros(rows, max(pitch, columns), dtype=source)
    pitched[:, :columns] = x
    divisors = geometry.per_row, recipe.gran_mn or rows, recipe.gran_k or columns
    addresses = [0] * 6  # the program has its own
    params = CastParams(
        *addresses, pitch, columns, *sf.stride(), rows, columns,
        *map(FastDivmod.by, divisors), power_of_two,
    )  # fmt: skip
    return [
        *(index, ctas, launch.threads, RESIDENT, offset, source.itemsize),
        *(pitched.numel(), rows * columns, sf.numel()),
        *array.array("I", bytes(params)),
        *bits_of(pitched).flatten().tolist(),
        *bits_of(sf).flatten().tolist(),
    ]


def cast_on_host(run, index, x, sf, power_of_two=0):
    """Return the data, the scales and the overflow count of a case's kernel."""
    words = launch_words(index, x, sf, power_of_two)
    q, scales, (overflow_count,), scratch = run(" ".join(map(str, words)))
    assert not any(scratch)  # as it was before the launch
    data = torch.tensor(q, dtype=torch.uint8).view(CASES[index][2]).reshape(x.shape)
    sf = torch.tensor(scales).to(torch.int32).view(torch.float32).reshape(sf.shape)
    return data, sf, overflow_count


def assert_same_bits(found, wanted):
    """Compare values as float32, signs of zeros too; a NaN is as good as any other."""
    found, wanted = found.float(), wanted.float()
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(*(bits_of(x.nan_to_num(nan=0.0, posinf=torch.inf)) for x in (found, wanted)))


@pytest.mark.parametrize("nan", [False, True], ids=["", "nan"])
@pytest.mark.parametrize("index", range(len(COMPUTED)), ids=lambda i: COMPUTED[i][0].name)
def test_computed_scales_and_data_are_those_of_torch(index, nan, run, rng):
    recipe, source, target, rows, columns, *_ = COMPUTED[index]
    x = special_values(rows, columns, source, rng)
    if nan:
        x[rows - 1, columns // 2] = torch.nan
    wanted, scales = torch_cast.cast_computed(x, recipe, nan, target, "saturate")
    q, sf, overflow_count = cast_on_host(run, index, x, torch.zeros_like(scales), int(nan))
    assert_same_bits(sf, scales)
    assert_same_bits(q, wanted)
    ones = torch.ones(rows, columns, dtype=torch.int8)
    scale_of_each = quant.dequantize(ones, scales, recipe)
    assert overflow_count == int((x.isinf() & ~scale_of_each.isnan()).sum())


@pytest.mark.parametrize("index", range(len(PRECOMPUTED)), ids=lambda i: PRECOMPUTED[i][0].name)
def test_data_of_precomputed_scales_are_those_of_torch(index, run, rng):
    recipe, source, target, rows, columns, *_ = PRECOMPUTED[index]
    x = special_values(rows, columns, source, rng)
    x[rows - 1, columns // 2] = torch.nan
    largest = torch_cast.largest_of(target)
    sf = torch.rand(recipe.shape(rows, columns), generator=rng) * 4 / largest
    special = torch.tensor([0.0, -0.01, 1e-30, torch.inf, torch.nan, 1e-40])
    if sf.numel() > 12:
        sf.flatten()[: len(special)] = special
    wanted = torch_cast.cast_precomputed(x, sf, recipe, target, "saturate")
    q, _, overflow_count = cast_on_host(run, len(COMPUTED) + index, x, sf)
    assert_same_bits(q, wanted)
    blocks = torch_cast.blocked(x.float(), recipe)
    scaled = torch_cast.unblocked(blocks / sf[:, None, :, None], x.shape)
    assert overflow_count == int((scaled.abs() > largest * (1 + 2.0**-22)).sum())
    assert overflow_count > 0


def test_transposed_rows_are_right_and_nothing_behind_them_is_written():
    run = compile_host(Source("transpose"))
    # Whether x is aligned, rows, columns, pitch of x, pitch of the result.
    shapes = [(1, 128, 128, 128, 128), (1, 300, 272, 288, 304), (1, 5, 144, 144, 128)]
    shapes += [(1, 129, 250, 256, 256), (0, 130, 131, 131, 256), (0, 1, 1, 1, 16)]
    found = run("\n".join(" ".join(map(str, shape)) for shape in shapes))
    assert found == [[0, 0]] * len(shapes)
