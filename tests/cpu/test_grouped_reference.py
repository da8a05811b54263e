"""Grouped products on the CPU against a float64 loop, over groups that are easy to get wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, reference
from deep_gemm.dispatch import gemm
from deep_gemm.layouts import align, ceil_div
from deep_gemm.problem import GemmProblem, Grouping, GroupKind
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import (
    BLOCK_128X128,
    PER_CHANNEL,
    PER_TENSOR,
    ROW_1X128,
    ScaleRecipe,
)

N, K = 136, 208
CANARY = 77.0
E4M3, E5M2, INT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# Half a unit in the last place of the output, relative, and twice that for what float32 loses.
TOLERANCE = {BF16: 2.0**-8, FP16: 2.0**-11, FP32: 2.0**-18, torch.int32: 0.0}
KEPT, ZEROS = -1, -2

SIZES = {
    "one row": [1],
    "empty first": [0, 5, 130],
    "empty middle": [70, 0, 3],
    "empty last": [64, 128, 0],
    "all empty": [0, 0, 0],
    "uneven": [1, 63, 65, 127, 129],
}


@dataclass(frozen=True)
class Product:
    """Types and scales of a product; b_mn: N of B is contiguous."""

    a: torch.dtype
    b: torch.dtype
    d: torch.dtype
    scale_a: ScaleRecipe | None = None
    scale_b: ScaleRecipe | None = None
    fast: bool = False
    b_mn: bool = False


PRODUCTS = {
    "1d2d": Product(E4M3, E4M3, BF16, ROW_1X128, BLOCK_128X128),
    "1d2d mixed fp32": Product(E5M2, E4M3, FP32, ROW_1X128, BLOCK_128X128),
    "1d2d mn": Product(E4M3, E4M3, FP16, ROW_1X128, BLOCK_128X128, b_mn=True),
    "1d1d": Product(E4M3, E5M2, BF16, ROW_1X128, ROW_1X128),
    "vectors": Product(E4M3, E4M3, BF16, PER_CHANNEL, PER_CHANNEL),
    "vectors fast": Product(E4M3, E4M3, FP32, PER_CHANNEL, PER_TENSOR, fast=True),
    "tensors": Product(E4M3, E4M3, BF16, PER_TENSOR, PER_TENSOR),
    "fp8 alone": Product(E4M3, E4M3, FP32),
    "bf16": Product(BF16, BF16, BF16),
    "bf16 mn": Product(BF16, BF16, FP32, b_mn=True),
    "fp16": Product(FP16, FP16, FP16),
    "int8": Product(INT8, INT8, torch.int32),
    "int8 scaled": Product(INT8, INT8, BF16, PER_TENSOR, PER_CHANNEL),
}
every_product = pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def operand(shape: tuple[int, ...], dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    if dtype == INT8:
        return torch.randint(-128, 128, shape, generator=rng).to(INT8)
    return torch.randn(shape, generator=rng).to(dtype)


def scales(lead: tuple[int, ...], recipe: ScaleRecipe | None, mn: int, k: int, rng: Any) -> Any:
    """Positive scales in the shape of a recipe, columns of a wider buffer of NaN."""
    if recipe is None:
        return None
    shape = (*lead, *recipe.shape(mn, k))
    wide = torch.full((*shape[:-1], shape[-1] + 3), float("nan"))
    found = wide[..., : shape[-1]].copy_(torch.rand(shape, generator=rng) + 0.5)
    return found[:, 0, 0] if lead and recipe == PER_TENSOR else found


def weights(product: Product, groups: int, rng: Any, n: int = N, k: int = K) -> tuple[Any, Any]:
    b = operand((groups, n, k), product.b, rng)
    b = b.transpose(1, 2).contiguous().transpose(1, 2) if product.b_mn else b
    return b, scales((groups,), product.scale_b, n, k, rng)


def ruin(a: torch.Tensor, sfa: Any, product: Product, unused: torch.Tensor) -> None:
    """Fill the rows of A that no group has, and their scales, with NaN."""
    if product.a != INT8:
        wide = a.float()
        wide[unused] = float("nan")
        a.copy_(wide.to(a.dtype))
    if sfa is not None and product.scale_a != PER_TENSOR:
        sfa[unused] = float("nan")


def double(x: torch.Tensor, scale: Any, recipe: ScaleRecipe | None) -> torch.Tensor:
    """Return a matrix, dequantized element by element, in float64."""
    value = x.double()
    if recipe is None:
        return value
    mn, k = x.shape
    whole = scale.double().reshape(recipe.shape(mn, k))
    rows = torch.arange(mn) // (recipe.gran_mn or max(mn, 1))
    columns = torch.arange(k) // (recipe.gran_k or max(k, 1))
    return value * whole[rows][:, columns]


def judge(
    d: torch.Tensor, owner: list[int], a: Any, sfa: Any, b: Any, sfb: Any, product: Product
) -> None:
    """Compare each row of D with its owner's product, with zeros, or with the canary."""
    owners = torch.tensor(owner)
    assert (d[owners == KEPT].double() == CANARY).all(), "a row that is no group's was written"
    assert (d[owners == ZEROS].double() == 0).all(), "padding is not zero"
    for group in set(owner) - {KEPT, ZEROS}:
        rows = owners == group
        sf = sfa if sfa is None or product.scale_a == PER_TENSOR else sfa[rows]
        x = double(a[rows], sf, product.scale_a)
        w = double(b[group], None if sfb is None else sfb[group], product.scale_b)
        wanted, reach = x @ w.T, x.abs() @ w.abs().T
        error = (d[rows].double() - wanted).abs()
        inexact = product.d != torch.int32
        allowed = TOLERANCE[product.d] * wanted.abs() + 2.0**-20 * reach * inexact
        assert not d[rows].double().isnan().any() and (error <= allowed).all(), f"group {group}"


# --- offsets ------------------------------------------------------------------------------------


def ends_of(sizes: list[int], alignment: int) -> list[int]:
    end, ends = 0, []
    for size in sizes:
        end = align(end, alignment) + size
        ends.append(end)
    return ends


def owner_by_ends(ends: list[int], m: int, alignment: int, zeros: bool) -> list[int]:
    owner, before = [KEPT] * m, 0
    for group, end in enumerate(ends):
        begin = align(before, alignment)
        before = max(0, min(end, m))
        for row in range(begin, before):
            owner[row] = group
        if zeros and before > begin:
            for row in range(before, min(align(before, alignment), m)):
                owner[row] = ZEROS
    return owner


def run_offsets(product, ends, m, alignment, zeros, rng, extents=(N, K)):
    n, k = extents
    groups = len(ends)
    a, sfa = operand((m, k), product.a, rng), scales((), product.scale_a, m, k, rng)
    b, sfb = weights(product, groups, rng, n, k)
    owner = owner_by_ends(ends, m, alignment, zeros)
    ruin(a, sfa, product, torch.tensor(owner) < 0)
    d = torch.full((m, n), CANARY).to(product.d)
    out = deep_gemm.grouped_matmul(
        a if sfa is None else (a, sfa), b if sfb is None else (b, sfb), d,
        offsets=torch.tensor(ends, dtype=torch.int32), alignment=alignment,
        zero_padding=zeros, fast_accum=product.fast, expected_m=5,
    )  # fmt: skip
    assert out is d
    judge(d, owner, a, sfa, b, sfb, product)


@every_product
@every_size
def test_offsets(product, sizes, rng):
    for alignment, zeros in ((1, False), (8, True), (128, True), (100, False)):
        ends = ends_of(sizes, alignment)
        run_offsets(product, ends, align(ends[-1], alignment) + 3, alignment, zeros, rng)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    "ends, alignment",
    [
        ([5, 5, 20], 1), ([30, 70], 1), ([70, 90], 8), ([5, 3, 40], 8), ([0, 0, 17], 16),
        ([-7, 9], 1), ([-200, 9], 128), ([37], 64), ([33, 64], 64), ([2**31 - 1, 9], 128),
    ],
)  # fmt: skip
def test_ends_that_are_unusual(ends, alignment, zeros, rng):
    """Ends beyond M, before their beginning, below 0, and exactly M."""
    m = 64 if ends == [33, 64] else 50
    run_offsets(PRODUCTS["1d2d"], ends, m, alignment, zeros and alignment > 1, rng)


def test_one_group_of_many_rows_beside_one_of_none(rng):
    run_offsets(PRODUCTS["1d2d"], [4000, 4000], 4001, 1, False, rng, (16, 128))


# --- labels -------------------------------------------------------------------------------------


def labels_of(sizes: list[int], alignment: int, trailing: int = 0) -> list[int]:
    labels = []
    for group, size in enumerate(sizes):
        labels += [group] * size + [-1] * (align(size, alignment) - size)
    return labels + [-1] * trailing


def owner_by_labels(labels: list[int], groups: int, alignment: int) -> list[int]:
    owner = []
    for row in range(len(labels)):
        first = labels[row // alignment * alignment]
        if not 0 <= first < groups:
            owner.append(KEPT)
        else:
            owner.append(first if labels[row // 64 * 64] >= 0 else ZEROS)
    return owner


def run_labels(product, labels, groups, alignment, rng, padding_is_nan=True):
    m = len(labels)
    a, sfa = operand((m, K), product.a, rng), scales((), product.scale_a, m, K, rng)
    b, sfb = weights(product, groups, rng)
    owner = owner_by_labels(labels, groups, alignment)
    if padding_is_nan:
        ruin(a, sfa, product, torch.tensor(labels) < 0)
    d = torch.full((m, N), CANARY).to(product.d)
    deep_gemm.grouped_matmul(
        a if sfa is None else (a, sfa), b if sfb is None else (b, sfb), d,
        labels=torch.tensor(labels, dtype=torch.int32), alignment=alignment,
        fast_accum=product.fast,
    )  # fmt: skip
    if padding_is_nan:
        computed = [row for row, group in enumerate(owner) if group >= 0]
        padding = [row for row in computed if labels[row] < 0]
        others = [row for row in range(m) if row not in set(padding)]
        if product.a != INT8:
            assert d[padding].isnan().all(), "a padding row of a computed half is computed"
        a, sfa, d = a[others], _rows(sfa, others, product), d[others]
        owner = [owner[row] for row in others]
    judge(d, owner, a, sfa, b, sfb, product)


def _rows(sfa, rows, product):
    return sfa if sfa is None or product.scale_a == PER_TENSOR else sfa[rows]


@every_product
@every_size
def test_labels(product, sizes, rng):
    for alignment, trailing in ((128, 0), (64, 70), (128, 300)):
        labels = labels_of(sizes, alignment, trailing)
        run_labels(product, labels or [-1], len(sizes), alignment, rng)


@pytest.mark.parametrize("padding_is_nan", [False, True])
@pytest.mark.parametrize("alignment", [64, 128])
def test_labels_that_are_unusual(alignment, padding_is_nan, rng):
    """Skipped blocks between groups, a label of no group, M that ends inside a block and a half."""
    labels = [-1] * 128 + [2] * 128 + [-1] * 128 + [3] * 128 + [7] * 128 + [0] * 70
    run_labels(PRODUCTS["1d2d"], labels, 4, alignment, rng, padding_is_nan)
    for rows in (1, 63, 64, 65, 127):
        run_labels(PRODUCTS["1d2d"], [0] * rows, 1, alignment, rng, padding_is_nan)
    halves = [0] * 3 + [-1] * 125 + [1] * 64 + [-1] * 64 + [-1] * 64 + [1] * 64
    run_labels(PRODUCTS["bf16"], halves, 2, alignment, rng, padding_is_nan)


def test_labels_name_groups_in_any_order(rng):
    run_labels(PRODUCTS["1d1d"], [2] * 128 + [0] * 128 + [2] * 64, 3, 128, rng, False)


# --- stacks -------------------------------------------------------------------------------------


def run_stack(product, counts, m, rng, masked=True):
    groups = len(counts)
    a = operand((groups, m, K), product.a, rng)
    sfa = scales((groups,), product.scale_a, m, K, rng)
    b, sfb = weights(product, groups, rng)
    valid = [max(0, min(count, m)) for count in counts] if masked else [m] * groups
    for group, rows in enumerate(valid):
        ruin(a[group], None if sfa is None else sfa[group], product, torch.arange(m) >= rows)
    # Groups of D lie between each other's rows.
    d = torch.full((m, groups, N), CANARY).to(product.d).transpose(0, 1)
    deep_gemm.grouped_matmul(
        a if sfa is None else (a, sfa), b if sfb is None else (b, sfb), d,
        counts=torch.tensor(counts, dtype=torch.int32) if masked else None,
        fast_accum=product.fast, expected_m=-3,
    )  # fmt: skip
    for group, rows in enumerate(valid):
        sf = None if sfa is None else sfa[group]
        owner = [group] * rows + [KEPT] * (m - rows)
        judge(d[group], owner, a[group], sf, b, sfb, product)


@every_product
def test_counts(product, rng):
    for m in (1, 8, 33, 96):
        run_stack(product, [m, 0, 1, m + 5, -4, m // 2], m, rng)
    run_stack(product, [0, 0], 16, rng)


@every_product
def test_every_row_of_a_stack_without_counts(product, rng):
    run_stack(product, [0, 0, 0], 17, rng, masked=False)


def test_scales_of_all_of_each_group_and_of_each_row_are_told_apart(rng):
    groups, m = 3, 5
    a, b = operand((groups, m, K), E4M3, rng), operand((groups, N, K), E4M3, rng)
    one, each = torch.tensor(0.75), torch.tensor([0.5, 2.0, 3.0])
    rows, columns = torch.rand(groups, m), torch.rand(groups, N)
    for sfa in (one, one[None], each, rows, rows[:, :, None], None):
        for sfb in (one, one[None], each, columns, columns[:, :, None], None):
            out = deep_gemm.grouped_matmul(
                a if sfa is None else (a, sfa), b if sfb is None else (b, sfb), out_dtype=FP32
            )
            parts = zip(*(_per_group(sf, groups) for sf in (sfa, sfb)), strict=True)
            for group, (scale_a, scale_b) in enumerate(parts):
                wanted = a[group].double() * scale_a @ (b[group].double() * scale_b).T
                assert torch.allclose(out[group].double(), wanted, rtol=1e-5, atol=1e-4)


def _per_group(scale: Any, groups: int) -> list[Any]:
    if scale is None or scale.numel() == 1:
        return [1.0 if scale is None else scale.double().reshape(1, 1)] * groups
    return [part.double().reshape(-1, 1) for part in scale]


def test_rows_are_those_of_matmul_bit_for_bit(rng):
    for name in ("1d2d", "1d1d", "vectors", "fp8 alone", "bf16", "int8"):
        product = PRODUCTS[name]
        a, sfa = operand((3, 20, K), product.a, rng), scales((3,), product.scale_a, 20, K, rng)
        b, sfb = weights(product, 3, rng)
        pairs = ((a, sfa), (b, sfb))
        out = deep_gemm.grouped_matmul(*(x if sf is None else (x, sf) for x, sf in pairs))
        for group in range(3):
            each = (x[group] if sf is None else (x[group], sf[group]) for x, sf in pairs)
            assert torch.equal(out[group], deep_gemm.matmul(*each))


# --- groups along K -----------------------------------------------------------------------------

EXTENTS = {
    "one": [128],
    "equal": [128, 128],
    "unaligned": [16, 144, 272],
    "empty first": [0, 64],
    "empty middle": [64, 0, 0, 208],
    "empty last": [208, 0],
    "all empty": [0, 0, 0],
}


def buffers(extents: list[int], rows: int, dtype: torch.dtype, rng: Any) -> tuple[Any, Any, Any]:
    """Return the matrices of the groups, the buffer of them, and their scales."""
    parts = [operand((rows, k), dtype, rng) for k in extents]
    flat = torch.cat([part.reshape(-1) for part in parts])
    columns = sum(ceil_div(k, 128) for k in extents)
    sf = torch.rand(columns + 1, rows, generator=rng).t()
    sf[:, columns:] = float("nan")
    return parts, flat, sf


def wanted_along_k(parts_a, parts_b, c, sfa=None, sfb=None):
    results, column = [], 0
    for group, (a, b) in enumerate(zip(parts_a, parts_b, strict=True)):
        end = column + ceil_div(a.shape[1], 128)
        if sfa is not None:
            a = double(a, sfa[:, column:end], ROW_1X128)
            b = double(b, sfb[:, column:end], ROW_1X128)
        column = end
        results.append(a.double() @ b.double().T + (0 if c is None else c[group].double()))
    return torch.stack(results)


def c_and_d(which: str, shape: tuple[int, ...], rng: Any) -> tuple[Any, Any, Any]:
    """Return D, C as it is passed, and C's values."""
    values = torch.randn(shape, generator=rng)
    d = torch.full(shape, CANARY)
    if which == "none":
        return d, None, None
    if which == "in place":
        d.copy_(values)
        return d, d, values
    return d, values, values.clone()


@pytest.mark.parametrize("extents", EXTENTS.values(), ids=EXTENTS)
@pytest.mark.parametrize("which", ["none", "in place", "apart"])
@pytest.mark.parametrize("behind", [0, 48], ids=["whole", "more than the groups"])
def test_fp8_groups_along_k(extents, which, behind, rng):
    m, n = 33, 24
    parts_a, a, sfa = buffers(extents, m, E4M3, rng)
    parts_b, b, sfb = buffers(extents, n, E5M2, rng)
    a = torch.cat([a, torch.full((m * behind,), float("nan")).to(E4M3)])
    b = torch.cat([b, torch.full((n * behind,), float("nan")).to(E5M2)])
    d, c, values = c_and_d(which, (len(extents), m, n), rng)
    out = deep_gemm.k_grouped_matmul(
        (a, sfa), (b, sfb), d, extents=torch.tensor(extents, dtype=torch.int32), c=c
    )
    assert out is d
    wanted = wanted_along_k(parts_a, parts_b, values, sfa, sfb)
    assert torch.allclose(d.double(), wanted, rtol=1e-5, atol=1e-4)
    assert which != "apart" or torch.equal(c, values)


@pytest.mark.parametrize("extents", [[1, 7, 100], *EXTENTS.values()], ids=str)
@pytest.mark.parametrize("which", ["none", "in place", "apart"])
@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_16_bit_groups_along_k(extents, which, dtype, rng):
    m, n, behind = 33, 24, 5
    parts_a, parts_b = ([operand((rows, k), dtype, rng) for k in extents] for rows in (m, n))
    poison = [torch.full((rows, behind), float("nan")).to(dtype) for rows in (m, n)]
    a = torch.cat([*parts_a, poison[0]], 1).t().contiguous()
    b = torch.cat([*parts_b, poison[1]], 1).t().contiguous()
    d, c, values = c_and_d(which, (len(extents), m, n), rng)
    deep_gemm.k_grouped_matmul(a, b, d, extents=torch.tensor(extents, dtype=torch.int32), c=c)
    wanted = wanted_along_k(parts_a, parts_b, values)
    assert torch.allclose(d.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("extents", [[-16, 32], [128, 144], [300]])
def test_extents_that_do_not_fit_are_refused_before_anything_is_written(extents, rng):
    m, n, k = 8, 16, 256
    a, b = operand((k, m), BF16, rng), operand((k, n), BF16, rng)
    d = torch.full((len(extents), m, n), CANARY)
    with pytest.raises(ArgumentError, match="extents: values must be at least 0, and 256 or less"):
        deep_gemm.k_grouped_matmul(a, b, d, extents=torch.tensor(extents, dtype=torch.int32))
    assert (d == CANARY).all()


def test_groups_need_scales_of_their_own(rng):
    """256 elements of K are 2 blocks in one group, and 3 in groups of 16, 128 and 112."""
    m = n = 8
    extents = torch.tensor([16, 128, 112], dtype=torch.int32)
    a, b = operand((m * 256,), E4M3, rng), operand((n * 256,), E4M3, rng)
    d, good, short = torch.full((3, m, n), CANARY), torch.ones(m, 3), torch.ones(m, 2)
    with pytest.raises(ArgumentError, match="sfb: number of columns must be at least 3"):
        deep_gemm.k_grouped_matmul((a, good), (b, short), d, extents=extents)
    assert (d == CANARY).all()
    deep_gemm.k_grouped_matmul((a, good), (b, good), d, extents=extents)


# --- nothing to do ------------------------------------------------------------------------------


def test_no_k_writes_zeros_and_no_extent_nothing():
    """Operands without K, as where no token is routed, have any strides."""
    a, b, d = torch.zeros(224, 0).bfloat16(), torch.zeros(4, 0, 256).bfloat16(), None
    d = torch.full((224, 256), CANARY).bfloat16()
    ends = torch.zeros(4, dtype=torch.int32)
    deep_gemm.grouped_matmul(a, b, d, offsets=ends, layout="nn")
    assert (d == 0).all()
    d = torch.full((4, 0, 256), CANARY).bfloat16()
    rows = torch.zeros(4, 0, 64).bfloat16()
    deep_gemm.grouped_matmul(rows, torch.zeros(4, 256, 64).bfloat16(), d, counts=ends)
    none = torch.zeros(0, 64).bfloat16(), torch.zeros(0, 256, 64).bfloat16()
    assert deep_gemm.grouped_matmul(*none, labels=ends[:0]).shape == (0, 256)
    d = torch.full((5, 256), CANARY).bfloat16()
    deep_gemm.grouped_matmul(torch.zeros(5, 64).bfloat16(), none[1], d, offsets=ends[:0])
    assert (d == CANARY).all()
    d = torch.full((2, 8, 16), CANARY)
    empty = torch.zeros(0, 8).bfloat16(), torch.zeros(0, 16).bfloat16()
    deep_gemm.k_grouped_matmul(*empty, d, extents=ends[:2], c=d)
    assert (d == CANARY).all()
    deep_gemm.k_grouped_matmul(*empty, d, extents=ends[:2])
    assert (d == 0).all()


def test_the_reference_takes_problems_with_groups_alone():
    problem = GemmProblem.block_scaled(8, 8, 128)
    x = torch.zeros(8, 128)
    with pytest.raises(ArgumentError, match="problem: grouping"):
        reference.grouped_gemm(problem, Tensors(x, None, x, None, None, x))


def test_alpha_multiplies_groups_too(rng):
    a, b = operand((2, 5, K), BF16, rng), operand((2, N, K), BF16, rng)
    once, twice = torch.empty(2, 5, N), torch.empty(2, 5, N)
    options = Options(grouping=Grouping(GroupKind.BATCHED, 2))
    gemm(Tensors(a, None, b, None, None, once), options)
    gemm(Tensors(a, None, b, None, None, twice), options, alpha=2.0)
    assert torch.equal(twice, 2 * once)
