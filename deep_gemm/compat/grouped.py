"""Groups of rows, contiguous or stacked, under the names of the DeepGEMM interface.

The `fp8_fp4_` names are the same functions: FP8 is what this GPU generation multiplies.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from .. import settings
from ..dispatch import gemm
from ..errors import ArgumentError, UnsupportedError
from ..grouped import bucketed, group_options
from ..operands import Pair, stack_to_nt
from ..problem import GroupKind, checks
from ..problem.request import Options, Tensors
from .fp8 import Granularity, Recipe, check_compiled_dims, options_of, unpack_fp8

T = TypeVar("T")


def m_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    m_indices: torch.Tensor | None = None,
    static_b: bool = False,
) -> None:
    """Write D, each block of rows being those of A times the B of their group, transposed.

    Arguments:
        a: (A float8_e4m3fn or float8_e5m2 [M, K], sfa float32 [M, ceil(K / 128)]), tuple or list.
        b: (B the same [G, N, K], sfb float32 [G, ceil(N / 128), ceil(K / 128)], or with the recipe
            (1, 1, 128) [G, N, ceil(K / 128)]).
        d: bfloat16, float16 or float32 [M, N], written in place.
        grouped_layout: int32 on the same device; m_indices is its older name. [M]: the group of
            each row, -1 for none; in blocks of get_mk_alignment_for_contiguous_layout() rows, 64 or
            128, whose first row speaks for all. With use_psum_layout [G]: the end of each group,
            which begins at the end of the one before, rounded up to that alignment, which may then
            be any.
        recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast: as of fp8_gemm_nt().
        use_psum_layout: grouped_layout holds ends.
        ensure_zero_padding: rows of D from a group's end to the next multiple of the alignment
            become zeros. Of labels, halves of 64 rows that begin with -1 do, always.
        expected_m_for_psum_layout: rows to expect of a group; only with use_psum_layout, and only
            speed depends on it.
        static_b: as of matmul().

    Which rows are written, requirements, costs and errors as grouped_matmul(), which takes all
    other types and scales.
    """
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    groups = one_of("grouped_layout", grouped_layout, "m_indices", m_indices)
    psum = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    _contiguous("nt", unpack_fp8("a", a), unpack_fp8("b", b), d, groups, psum, options)


def m_grouped_fp8_gemm_nn_contiguous(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    *,
    m_indices: torch.Tensor | None = None,
    static_b: bool = False,
) -> None:
    """Write D: m_grouped_fp8_gemm_nt_contiguous() with B as [G, K, N], its scales transposed too.

    A B that is stored so, with N contiguous, is copied first.
    """
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    groups = one_of("grouped_layout", grouped_layout, "m_indices", m_indices)
    psum = use_psum_layout, ensure_zero_padding, None
    _contiguous("nn", unpack_fp8("a", a), unpack_fp8("b", b), d, groups, psum, options)


def m_grouped_fp8_gemm_nt_masked(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    enable_overlap: bool = False,
    max_block_n: int = 256,
    signal: torch.Tensor | None = None,
    static_b: bool = False,
) -> None:
    """Write D[i] = A[i] @ B[i]^T for the valid rows of each group of a stack.

    Arguments:
        a: (A float8_e4m3fn or float8_e5m2 [G, M, K], sfa float32 [G, M, ceil(K / 128)]).
        b: (B the same [G, N, K], sfb float32 [G, ceil(N / 128), ceil(K / 128)], or with the recipe
            (1, 1, 128) [G, N, ceil(K / 128)]).
        d: bfloat16, float16 or float32 [G, M, N], written in place. M may be any.
        masked_m: int32 [G] on the same device: valid rows, the first ones. Rows behind them
            stay as they are in D, and may hold anything in A.
        expected_m: rows to expect of a group that has any; any int, as only speed depends on it.
        recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast: as of fp8_gemm_nt().
        enable_overlap: True raises UnsupportedError: there are no signals of finished blocks.
        max_block_n, signal: no effect.
        static_b: as of matmul().

    Requirements, costs and errors as grouped_matmul().
    """
    if enable_overlap:
        reason = "blocks are not signalled one by one; set_num_sms() leaves SMs to other kernels"
        raise UnsupportedError("enable_overlap=True", [reason])
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    _masked(unpack_fp8("a", a), unpack_fp8("b", b), d, masked_m, expected_m, options)


m_grouped_fp8_fp4_gemm_nt_contiguous = m_grouped_fp8_gemm_nt_contiguous
m_grouped_fp8_fp4_gemm_nn_contiguous = m_grouped_fp8_gemm_nn_contiguous
m_grouped_fp8_fp4_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked


def m_grouped_bf16_gemm_nt_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
    *,
    m_indices: torch.Tensor | None = None,
    static_b: bool = False,
) -> None:
    """Write D: m_grouped_fp8_gemm_nt_contiguous() of bfloat16 operands without scales.

    Arguments:
        a: A bfloat16 [M, K].
        b: B bfloat16 [G, N, K]; N may be contiguous in place of K.
        d: bfloat16, float16 or float32 [M, N], written in place.
        others: as of m_grouped_fp8_gemm_nt_contiguous().
    """
    groups = one_of("grouped_layout", grouped_layout, "m_indices", m_indices)
    psum = use_psum_layout, ensure_zero_padding, expected_m_for_psum_layout
    options = _bf16_options(a, b, compiled_dims, static_b)
    _contiguous("nt", (a, None), (b, None), d, groups, psum, options)


def m_grouped_bf16_gemm_nn_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    grouped_layout: torch.Tensor | None = None,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    *,
    m_indices: torch.Tensor | None = None,
    static_b: bool = False,
) -> None:
    """Write D: m_grouped_bf16_gemm_nt_contiguous() with B as [G, K, N]."""
    groups = one_of("grouped_layout", grouped_layout, "m_indices", m_indices)
    psum = use_psum_layout, ensure_zero_padding, None
    options = _bf16_options(a, b, compiled_dims, static_b)
    _contiguous("nn", (a, None), (b, None), d, groups, psum, options)


def m_grouped_bf16_gemm_nt_masked(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
    compiled_dims: str = "nk",
    *,
    static_b: bool = False,
) -> None:
    """Write D[i] = A[i] @ B[i]^T: m_grouped_fp8_gemm_nt_masked() of bfloat16 without scales.

    Arguments:
        a: A bfloat16 [G, M, K].
        b: B bfloat16 [G, N, K]; N may be contiguous in place of K.
        d: bfloat16, float16 or float32 [G, M, N], written in place.
        others: as of m_grouped_fp8_gemm_nt_masked().
    """
    options = _bf16_options(a, b, compiled_dims, static_b)
    _masked((a, None), (b, None), d, masked_m, expected_m, options)


bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked

Unpacked = tuple[torch.Tensor, torch.Tensor | None]
Psum = tuple[bool, bool, int | None]


def one_of(name: str, value: T | None, other_name: str, other: T | None) -> T:
    """Return the argument that is given of two spellings; ArgumentError for both or neither."""
    if value is not None and other is None:
        return value
    if other is not None and value is None:
        return other
    got = "none" if value is None else "both"
    raise ArgumentError(f"{name}, {other_name}", "presence", "one of the two spellings", got)


def _contiguous(
    layout: str,
    a: Unpacked,
    b: Unpacked,
    d: torch.Tensor,
    groups: torch.Tensor,
    psum: Psum,
    options: Options,
) -> None:
    """psum: whether `groups` holds ends, whether gaps become zeros, and the rows to expect."""
    by_ends, zeros, expected = psum
    w, sfb = stack_to_nt(layout, *b)
    if expected is not None and not by_ends:
        wanted = "None without use_psum_layout"
        raise ArgumentError("expected_m_for_psum_layout", "value", wanted, expected)
    found = group_options(
        options.scales,
        GroupKind.OFFSETS if by_ends else GroupKind.LABELS,
        _extent("b", w, 3, 0),
        alignment=settings.current().mk_alignment,
        expected_m=bucketed(expected, _extent("a", a[0], 2, 0)),
        zero_padding=bool(by_ends and zeros),
        static_b=options.static_b,
    )
    gemm(Tensors(*a, w, sfb, None, d, groups), found)


def _masked(
    a: Unpacked,
    b: Unpacked,
    d: torch.Tensor,
    counts: torch.Tensor,
    expected: int,
    options: Options,
) -> None:
    hint = bucketed(expected, _extent("a", a[0], 3, 1))
    groups = _extent("b", b[0], 3, 0)
    found = group_options(
        options.scales, GroupKind.MASKED, groups, expected_m=hint, static_b=options.static_b
    )
    gemm(Tensors(*a, *b, None, d, counts), found)


def _extent(name: str, value: torch.Tensor, dims: int, which: int) -> int:
    """Return an extent of a tensor with so many dimensions; ArgumentError for any other."""
    if checks.tensor(name, value).dim() != dims:
        raise ArgumentError(name, "number of dimensions", dims, value.dim())
    return value.shape[which]


def _bf16_options(a: torch.Tensor, b: torch.Tensor, compiled_dims: str, static_b: bool) -> Options:
    check_compiled_dims(compiled_dims)
    for name, value in (("a", a), ("b", b)):
        remedy = "grouped_matmul() takes other types"
        checks.dtype(name, checks.tensor(name, value), torch.bfloat16, remedy)
    return Options(static_b=static_b)
