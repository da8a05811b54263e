"""A request for a grouped product, checked and turned into a GemmProblem with its Grouping.

Shapes, with `groups` the int32 tensor (problem.Grouping says what it holds):

| kind | A | B | D | groups |
|---|---|---|---|---|
| labels | [M, K] | [G, N, K] | [M, N] | [M] |
| offsets | [M, K] | [G, N, K] | [M, N] | [G] |
| masked | [G, M, K] | [G, N, K] | [G, M, N] | [G] |
| batched | [G, M, K] | [G, N, K] | [G, M, N] | none |
| k | [M, K] | [N, K] | [G, M, N] | [G] |

With kind "k", a 16-bit A is MN-major, and an FP8 A is a contiguous buffer of M * K elements in
which the [M, k_i] of the groups follow one another, K-major; so is B.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from . import checks
from .dtypes import FP32, DType
from .errors import ArgumentError, UnsupportedError
from .problem import GROUPINGS, GemmProblem, Grouping
from .request_scales import (
    Recipes,
    Side,
    exact_factors,
    operand_dtypes,
    output_dtype,
    recipes,
)

if TYPE_CHECKING:
    from .request import Options, Tensors

LABEL_ALIGNMENTS = (64, 128)
# The groups tensor in words of grouped_matmul() and of the drop-in names.
_NAMES = {
    "labels": "labels (grouped_layout, m_indices)",
    "offsets": "offsets (grouped_layout)",
    "masked": "counts (masked_m)",
    "k": "extents (grouped_layout, ks_tensor)",
}


def name_of(grouping: Grouping | None) -> str:
    """Return what errors call the groups tensor."""
    return _NAMES.get(grouping.kind, "groups") if grouping else "groups"


def problem_of(
    t: Tensors, options: Options, grouping: Grouping, alpha: float, beta: float
) -> GemmProblem:
    """Check everything but addresses and what only TMA asks; return what is to be computed.

    The contents of `groups` are not looked at. Raises ArgumentError or UnsupportedError.
    """
    _check_grouping(grouping)
    along_k = grouping.kind == "k"
    dims = {"a": 2 + grouping.stacked, "b": 2 if along_k else 3}
    dims["d"] = 3 if along_k or grouping.stacked else 2
    for name, wanted in dims.items():
        if checks.tensor(name, getattr(t, name)).dim() != wanted:
            got = getattr(t, name).dim()
            remedy = f"groups of kind {grouping.kind}"
            raise ArgumentError(name, "number of dimensions", wanted, got, remedy)
    a_dtype, b_dtype = operand_dtypes(t.a, t.b)
    (m, k), n = t.a.shape[-2:], t.b.shape[-2]
    _check_shapes(t, grouping, (m, n, k))
    scale_a, scale_b = _recipes(t, options, grouping, a_dtype)
    d_dtype = output_dtype(t.d, a_dtype, scaled=scale_a is not None or scale_b is not None)
    if along_k and d_dtype != FP32:
        raise ArgumentError("d", "dtype", torch.float32, t.d.dtype, "sums along K are FP32")
    exact_factors(d_dtype, alpha, beta, adds=False)
    _check_addend(t, along_k, beta)
    _check_groups(t, grouping)
    checks.served_device(t._replace(groups=None)._asdict(), t.a.device)
    a_major, b_major = _majors(t, grouping, a_dtype)
    problem = GemmProblem(
        m, n, k, a_dtype, b_dtype, d_dtype, scale_a, scale_b,
        promoted=not options.fast_accum, a_major=a_major, b_major=b_major,
        addend="none" if t.c is None else "reduce", grouping=grouping,
    )  # fmt: skip
    # A kernel in flight writes a B that is copied first.
    return replace(problem, static_b=options.static_b and "b" not in problem.transposed)


def _check_grouping(grouping: Grouping) -> None:
    kind, alignment = grouping.kind, grouping.alignment
    if kind not in GROUPINGS[1:]:
        raise ArgumentError("grouping", "kind", f"one of {', '.join(GROUPINGS[1:])}", repr(kind))
    if kind == "labels" and alignment not in LABEL_ALIGNMENTS:
        remedy = "set_mk_alignment_for_contiguous_layout(), or offsets, which take any"
        raise ArgumentError("alignment", "value", "64 or 128 with labels", alignment, remedy)
    for name, value, least in (
        ("groups", grouping.groups, 0),
        ("alignment", alignment, 1),
        ("rows_hint", grouping.rows_hint, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(name, "value", f"an int >= {least}", value)
    if grouping.zero_padding and kind != "offsets":
        raise ArgumentError("zero_padding", "value", "False without offsets", True)


def _check_shapes(t: Tensors, grouping: Grouping, extents: tuple[int, int, int]) -> None:
    (m, n, k), groups = extents, grouping.groups
    if grouping.kind == "k":
        checks.shape("b", t.b, (n, k), "A is [M, K] and B is [N, K], K that of all groups")
        checks.shape("d", t.d, (groups, m, n), "D is [groups, M, N]")
        return
    if grouping.stacked:
        checks.shape("a", t.a, (groups, m, k), "A is [groups, M, K]")
    checks.shape("b", t.b, (groups, n, k), "B is [groups, N, K]")
    if grouping.stacked:
        checks.shape("d", t.d, (groups, m, n), "D is [groups, M, N]")
    else:
        checks.shape("d", t.d, (m, n), "D is [M, N]")


def _recipes(t: Tensors, options: Options, grouping: Grouping, a: DType) -> Recipes:
    (m, k), n, groups = t.a.shape[-2:], t.b.shape[-2], grouping.groups
    if grouping.kind != "k":
        of_a = Side("sfa", t.sfa, m, k, groups if grouping.stacked else None)
        sides = of_a, Side("sfb", t.sfb, n, k, groups)
        return recipes(sides, options.scales, options.fast_accum, a)
    if a.bytes == 1 and not a.is_fp8:
        raise ArgumentError("a", "dtype", "FP8, bfloat16 or float16", a.torch, "groups along K")
    if a.is_fp8 and (options.fast_accum or options.scales == "block"):
        reason = "FP8 has scales of 1x128 of both operands there, promoted every 128 of K"
        raise UnsupportedError("groups along K", [reason])
    ragged = Side("sfa", t.sfa, m, k, ragged=True), Side("sfb", t.sfb, n, k, ragged=True)
    return recipes(ragged, "rows" if a.is_fp8 else "auto", False, a)


def _check_addend(t: Tensors, along_k: bool, beta: float) -> None:
    if t.c is None:
        return
    if not along_k:
        raise ArgumentError("c", "presence", "None", "a tensor", "groups of rows add nothing")
    checks.dtype("c", checks.tensor("c", t.c), t.d.dtype, "C has D's type")
    checks.shape("c", t.c, tuple(t.d.shape))
    if beta != 1:
        raise ArgumentError("beta", "value", "1 with groups along K", beta)


def _check_groups(t: Tensors, grouping: Grouping) -> None:
    """Check the groups tensor but for its contents."""
    name, value = name_of(grouping), t.groups
    if grouping.kind == "batched":
        if value is not None:
            raise ArgumentError(name, "presence", None, "a tensor", "batched groups are whole")
        return
    wanted = (t.a.shape[0],) if grouping.kind == "labels" else (grouping.groups,)
    checks.dtype(name, checks.tensor(name, value), torch.int32, "pass .to(torch.int32)")
    remedy = "one for each row of A" if grouping.kind == "labels" else "one for each group"
    checks.shape(name, checks.tensor(name, value), wanted, remedy)
    checks.same_device(name, checks.tensor(name, value), t.a.device)
    if value is not None and not value.is_contiguous():
        raise ArgumentError(name, "stride", 1, value.stride(0), "pass it .contiguous()")


def _majors(t: Tensors, grouping: Grouping, a: DType) -> tuple[str, str]:
    """Check the layouts of A, B and D; return which dimension of A and of B is contiguous."""
    _stack("d", t.d)
    if t.c is not None:
        _stack("c", t.c)
    if grouping.kind != "k":
        _stack("a", t.a)
        return "k", _groups_apart("b", t.b)
    for name, value in (("a", t.a), ("b", t.b)):
        if a.is_fp8 and not value.is_contiguous():
            wanted = "those of a contiguous buffer, of the [rows, k] of the groups in turn"
            raise ArgumentError(name, "strides", wanted, value.stride(), f"{name}.contiguous()")
        if not a.is_fp8:
            checks.rows_contiguous(name, value.t())
    return ("k", "k") if a.is_fp8 else ("mn", "mn")


def _stack(name: str, value: torch.Tensor) -> None:
    """Check one matrix, or each of a stack, for contiguous rows, none of which overlap."""
    if value.dim() == 2:
        checks.rows_contiguous(name, value)
    elif value.shape[0]:
        checks.rows_contiguous(name, value[0])
        _groups_apart(name, value)


def _groups_apart(name: str, value: torch.Tensor) -> str:
    """Check that matrices of a stack do not overlap, and return which dimension is contiguous.

    Groups may lie in between each other's rows, as those of a transposed [rows, groups, k] do.
    """
    if not value.numel():
        return "k"
    major = checks.major(name, value[0])
    reach = 1
    dimensions = zip(value.stride(), value.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in dimensions if size > 1):
        if stride < reach:
            remedy = f"groups and rows may not overlap: pass {name}.contiguous()"
            raise ArgumentError(
                name, "strides", "those of separate elements", value.stride(), remedy
            )
        reach += (size - 1) * stride
    return major


def same_or_apart(c: torch.Tensor, d: torch.Tensor) -> None:
    """Check that a C of groups along K is D itself or shares no memory with it."""
    if not isinstance(c, torch.Tensor) or c.numel() == 0 or d.numel() == 0:
        return
    if c.data_ptr() == d.data_ptr() and c.stride() == d.stride() and c.shape == d.shape:
        return
    (start, end), (start_d, end_d) = _span(c), _span(d)
    if start < end_d and start_d < end and c.device == d.device:
        wanted = "D itself, with its strides, or apart from it"
        raise ArgumentError("c", "memory", wanted, "memory that overlaps D's", "pass c.clone()")


def _span(stack: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor and the one after its last element."""
    steps = zip(stack.shape, stack.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return stack.data_ptr(), stack.data_ptr() + (last + 1) * stack.element_size()


def tma_stack(name: str, value: torch.Tensor, major: str) -> None:
    """Check that rows and groups lie where TMA can address them."""
    matrix = value if value.dim() == 2 else value[0]
    checks.tma_rows(name, matrix if major == "k" else matrix.t())
    pitch = value.stride(0) * value.element_size()
    if value.dim() == 3 and value.shape[0] > 1 and pitch % checks.ALIGNMENT_BYTES:
        step = checks.ALIGNMENT_BYTES // value.element_size()
        wanted = f"a multiple of {step} elements ({checks.ALIGNMENT_BYTES} bytes)"
        remedy = "rows of a multiple of 16 bytes, and as many for each group"
        raise ArgumentError(name, "group stride", wanted, value.stride(0), remedy)
