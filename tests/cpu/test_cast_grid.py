"""The cast and transpose kernels run on the host, thread by thread, beside the torch casts."""

from __future__ import annotations

import re

import pytest
import torch

from deep_gemm import quant
from deep_gemm.kernels import cast, simple
from deep_gemm.quant import torch_cast

from .host_kit import PROGRAMS, compile_host

E4M3, E5M2, INT8 = cast.OUTPUTS
CONVERT = "deep_gemm/ptx/convert.cuh"
TOKEN_64, CHANNEL_32 = quant.by_granularity(1, 64), quant.by_granularity(32, 1)
CHANNEL = quant.by_granularity(128, 1)

# Recipe, input and output type, rows, columns, row pitch of x, offset in bytes: with whole chunks
# and without, and edges of each kernel.
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
GIVEN = [
    (quant.PER_TENSOR, torch.bfloat16, E4M3, 5, 136, 144, 0),
    (quant.ROW_1X128, torch.float32, INT8, 7, 260, 260, 0),
    (quant.BLOCK_128X128, torch.float16, E5M2, 130, 131, 133, 2),
    (CHANNEL, torch.bfloat16, INT8, 150, 72, 72, 0),
    (quant.PER_COLUMN, torch.float32, E4M3, 9, 67, 67, 4),
]


def plain(recipe, rows, columns, vector, given):
    find = cast.given_geometry if given else cast.geometry
    found = find(recipe, rows, columns, vector)
    assert found is not None
    return found


def variant_of(case, given):
    recipe, source, target, rows, columns, pitch, offset = case
    vector = 16 // source.itemsize
    shape = plain(recipe, rows, columns, vector, given)
    aligned = (columns | pitch) % vector == 0 and offset == 0
    return shape, cast.variant(shape.kind, shape.detail, source, target, aligned)


CASES = [(case, given) for given, cases in ((False, COMPUTED), (True, GIVEN)) for case in cases]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    structs, calls = [], []
    for i, (case, given) in enumerate(CASES):
        _, variant = variant_of(case, given)
        members = re.search(r"struct Config (\{.*?\};)", variant.unit().source, re.DOTALL)
        structs.append(f"struct Config{i} {members[1]}")
        calls.append(f"if (index == {i}) {variant.body}<Config{i}>(p);")
    body = "void run_case(uint32_t index, const CastParams& p) {\n" + "\n".join(calls) + "}"
    return compile_host(
        "casts",
        tmp_path_factory.mktemp("casts"),
        {
            "cases.h": "\n".join(["namespace deep_gemm {", *structs, body, "}"]),
            "grid.h": (PROGRAMS / "grid.h").read_text(),
            CONVERT: (PROGRAMS / "convert.h").read_text(),
        },
    )


def adversarial(rows, columns, dtype, rng):
    """Data of many magnitudes, a zero block, negative zeros, NaN, infinities and subnormals."""
    x = torch.randn(rows, columns, generator=rng)
    x[:, : columns // 3] *= 2.0 ** torch.randint(-14, 14, (rows, 1), generator=rng)
    x[0, : min(columns, 200)] = 0
    x[rows // 2, columns // 2] = -0.0
    x = x.to(dtype)
    if rows > 2:
        x[1] = 1e-40 if dtype != torch.float16 else 6e-8
        x[2, columns - 1] = torch.inf
    return x


def words(x):
    """The bits of x as numbers that are not negative."""
    size = x.element_size()
    signed = x.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[size]).long()
    return signed & (1 << 8 * size) - 1


def launch_of(index, x, sf, power_of_two):
    """The words that describe a launch to the program, and the words of its matrices."""
    case, given = CASES[index]
    recipe, source, _, rows, columns, pitch, offset = case
    shape, variant = variant_of(case, given)
    at_once = 2  # CTAs; no more of them can meet
    blocks = min(shape.blocks, at_once) if variant.cooperative else shape.blocks
    assert shape.kind != "column" or blocks % shape.per_row == 0
    pitched = torch.zeros(rows, max(pitch, columns), dtype=source)
    pitched[:, :columns] = x
    dividers = [shape.per_row, recipe.gran_mn or rows, recipe.gran_k or columns]
    found = [simple.Divider.by(d) for d in dividers]
    numbers = [index, blocks, variant.threads, at_once, pitch, columns, *sf.stride(), rows, columns]
    numbers += [n for d in found for n in (d.divisor, d.multiplier, d.shift)]
    numbers += [power_of_two, offset, source.itemsize]
    numbers += [pitched.numel(), rows * columns, sf.numel()]
    return [*numbers, *words(pitched).flatten().tolist(), *words(sf).flatten().tolist()]


def outcome(run, index, x, sf, power_of_two=0):
    case, given = CASES[index]
    text = " ".join(map(str, launch_of(index, x, sf, power_of_two)))
    lines = run(text)
    q, scales, (beyond,), scratch = lines
    assert not any(scratch)
    data = torch.tensor(q, dtype=torch.uint8).view(case[2]).reshape(x.shape)
    bits = torch.tensor(scales).to(torch.int32)
    return data, bits.view(torch.float32).reshape(sf.shape), beyond


def same(found, wanted):
    found, wanted = found.float(), wanted.float()
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(*(words(x.nan_to_num(nan=0.0, posinf=torch.inf)) for x in (found, wanted)))


@pytest.mark.parametrize("nan", [False, True], ids=["", "nan"])
@pytest.mark.parametrize("index", range(len(COMPUTED)), ids=lambda i: COMPUTED[i][0].name)
def test_computed_scales_and_data_are_those_of_torch(index, nan, run, rng):
    recipe, source, target, rows, columns, *_ = COMPUTED[index]
    x = adversarial(rows, columns, source, rng)
    if nan:
        x[rows - 1, columns // 2] = torch.nan
    wanted, scales = torch_cast.cast_computed(x, recipe, nan, target, "saturate")
    q, sf, beyond = outcome(run, index, x, torch.zeros_like(scales), int(nan))
    same(sf, scales)
    same(q, wanted)
    one = torch.ones(rows, columns, dtype=torch.int8)
    scale_of_each = quant.dequantize(one, scales, recipe)
    assert beyond == int((x.isinf() & ~scale_of_each.isnan()).sum())


@pytest.mark.parametrize("index", range(len(GIVEN)), ids=lambda i: GIVEN[i][0].name)
def test_given_scales_are_divided_by_as_in_torch(index, run, rng):
    recipe, source, target, rows, columns, *_ = GIVEN[index]
    x = adversarial(rows, columns, source, rng)
    x[rows - 1, columns // 2] = torch.nan
    _, sf = torch_cast.cast_computed(x[:1], quant.PER_TENSOR, False, target, "saturate")
    sf = torch.rand(recipe.shape(rows, columns), generator=rng) * 4 / torch_cast.largest_of(target)
    special = torch.tensor([0.0, -0.01, 1e-30, torch.inf, torch.nan, 1e-40])
    if sf.numel() > 12:
        sf.flatten()[: len(special)] = special
    wanted = torch_cast.cast_given(x, sf, recipe, target, "saturate")
    q, _, beyond = outcome(run, len(COMPUTED) + index, x, sf)
    same(q, wanted)
    blocks = torch_cast.blocked(x.float(), recipe)
    scaled = torch_cast.unblocked(blocks / sf[:, None, :, None], x.shape)
    assert beyond == int((scaled.abs() > torch_cast.largest_of(target) * (1 + 2.0**-22)).sum())
    assert beyond > 0


def test_transposes(tmp_path):
    run = compile_host("transpose", tmp_path, {"grid.h": (PROGRAMS / "grid.h").read_text()})
    shapes = [(1, 128, 128, 128, 128), (1, 300, 272, 288, 304), (1, 5, 144, 144, 128)]
    shapes += [(1, 129, 250, 256, 256), (0, 130, 131, 131, 256), (0, 1, 1, 1, 16)]
    found = run("\n".join(" ".join(map(str, shape)) for shape in shapes))
    assert found == [[0, 0]] * len(shapes)
