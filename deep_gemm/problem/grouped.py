"""Requests for grouped products: checked, and turned into a GemmProblem with its Grouping.

With groups along K, a 16-bit A is MN-major, and an FP8 A is a contiguous buffer of M * K elements
in which the [M, k_i] of the groups follow one another, K-major; so is B.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from ..dtypes import FP32, DType
from ..errors import ArgumentError, UnsupportedError
from . import checks
from .choices import CMode, GroupKind, Major, ScaleChoice
from .gemm_problem import GemmProblem
from .grouping import Grouping
from .request import Options, Tensors
from .scales import OperandScales, Recipes, exact_factors, operand_dtypes, output_dtype, recipes


class Shapes(NamedTuple):
    """Axes of the tensors: g for groups, and m, n, k.

    grouped_layout: of the int32 tensor, "" for none. name: what errors call it, in words of
    grouped_matmul() and of the drop-in names.
    """

    a: str
    b: str
    d: str
    grouped_layout: str
    name: str


SHAPES = {
    GroupKind.LABELS: Shapes("mk", "gnk", "mn", "m", "labels (grouped_layout, m_indices)"),
    GroupKind.OFFSETS: Shapes("mk", "gnk", "mn", "g", "offsets (grouped_layout)"),
    GroupKind.MASKED: Shapes("gmk", "gnk", "gmn", "g", "counts (masked_m)"),
    GroupKind.BATCHED: Shapes("gmk", "gnk", "gmn", "", "groups"),
    GroupKind.ALONG_K: Shapes("mk", "nk", "gmn", "g", "extents (grouped_layout, ks_tensor)"),
}
LABEL_ALIGNMENTS = (64, 128)


def layout_name(grouping: Grouping | None) -> str:
    """Return what errors call the grouped layout."""
    return SHAPES[grouping.kind].name if grouping and grouping.kind in SHAPES else "groups"


def grouped_problem(
    t: Tensors, options: Options, grouping: Grouping, alpha: float, beta: float
) -> GemmProblem:
    """Check everything but addresses and what only TMA asks; return what is to be computed.

    The contents of the grouped layout are not looked at. Raises ArgumentError or UnsupportedError.
    """
    _check_grouping(grouping)
    shapes, along_k = SHAPES[grouping.kind], grouping.kind is GroupKind.ALONG_K
    for name in ("a", "b", "d"):
        _check_dims(name, getattr(t, name), len(getattr(shapes, name)), grouping)
    a_dtype, b_dtype = operand_dtypes(t.a, t.b)
    (m, k), n = t.a.shape[-2:], t.b.shape[-2]
    extents = {"g": grouping.num_groups, "m": m, "n": n, "k": k}
    for name in ("a", "b", "d"):
        axes = getattr(shapes, name)
        wanted = tuple(extents[axis] for axis in axes)
        checks.shape(name, getattr(t, name), wanted, f"{name.upper()} is {_text(axes)}")
    scale_a, scale_b = _recipes(t, options, grouping, a_dtype)
    d_dtype = output_dtype(t.d, a_dtype, scaled=scale_a is not None or scale_b is not None)
    if along_k and d_dtype != FP32:
        raise ArgumentError("d", "dtype", torch.float32, t.d.dtype, "sums along K are FP32")
    exact_factors(d_dtype, alpha, beta, adds=False)
    _check_c(t, along_k, beta)
    _check_grouped_layout(t, grouping)
    checks.served_device({name: getattr(t, name) for name in t._fields[:6]}, t.a.device)
    a_major, b_major = _majors(t, grouping, a_dtype)
    problem = GemmProblem(
        m, n, k, a_dtype, b_dtype, d_dtype, scale_a, scale_b,
        promoted=not options.fast_accum, a_major=a_major, b_major=b_major,
        c_mode=CMode.NONE if t.c is None else CMode.REDUCE, grouping=grouping,
        epilogue=options.epilogue,
    )  # fmt: skip
    # A B that is copied first is written by a kernel in flight.
    return replace(problem, static_b=options.static_b and "b" not in problem.transposed)


def _text(axes: str) -> str:
    """Return axes for people: "[groups, M, K]"."""
    return "[" + ", ".join("groups" if axis == "g" else axis.upper() for axis in axes) + "]"


def _check_dims(name: str, value: torch.Tensor, wanted: int, grouping: Grouping) -> None:
    if checks.tensor(name, value).dim() != wanted:
        remedy = f"groups of kind {grouping.kind}"
        raise ArgumentError(name, "number of dimensions", wanted, value.dim(), remedy)


def _check_grouping(grouping: Grouping) -> None:
    kind, alignment = grouping.kind, grouping.alignment
    if kind not in SHAPES:
        kinds = ", ".join(str(kind) for kind in SHAPES)
        raise ArgumentError("grouping", "kind", f"one of {kinds}", repr(str(kind)))
    if kind is GroupKind.LABELS and alignment not in LABEL_ALIGNMENTS:
        remedy = "set_mk_alignment_for_contiguous_layout(), or offsets, which take any"
        raise ArgumentError("alignment", "value", "64 or 128 with labels", alignment, remedy)
    for name, value, least in (
        ("num_groups", grouping.num_groups, 0),
        ("alignment", alignment, 1),
        ("expected_m", grouping.expected_m, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(name, "value", f"an int >= {least}", value)
    if grouping.zero_padding and kind is not GroupKind.OFFSETS:
        raise ArgumentError("zero_padding", "value", "False without offsets", True)


def _recipes(t: Tensors, options: Options, grouping: Grouping, a: DType) -> Recipes:
    (m, k), n, groups = t.a.shape[-2:], t.b.shape[-2], grouping.num_groups
    if grouping.kind is not GroupKind.ALONG_K:
        scales_a = OperandScales("sfa", t.sfa, m, k, groups if grouping.is_stacked else None)
        sides = scales_a, OperandScales("sfb", t.sfb, n, k, groups)
        return recipes(sides, options.scales, options.fast_accum, a)
    if a.bytes == 1 and not a.is_fp8:
        raise ArgumentError("a", "dtype", "FP8, bfloat16 or float16", a.torch, "groups along K")
    if a.is_fp8 and (options.fast_accum or options.scales is ScaleChoice.SCALED_1D2D):
        reason = "FP8 has scales of 1x128 of both operands there, promoted every 128 of K"
        raise UnsupportedError("groups along K", [reason])
    ragged = (
        OperandScales("sfa", t.sfa, m, k, ragged=True),
        OperandScales("sfb", t.sfb, n, k, ragged=True),
    )
    return recipes(ragged, ScaleChoice.SCALED_1D1D if a.is_fp8 else ScaleChoice.AUTO, False, a)


def _check_c(t: Tensors, along_k: bool, beta: float) -> None:
    if t.c is None:
        return
    if not along_k:
        raise ArgumentError("c", "presence", "None", "a tensor", "groups of rows add nothing")
    checks.dtype("c", checks.tensor("c", t.c), t.d.dtype, "C has D's type")
    checks.shape("c", t.c, tuple(t.d.shape))
    if beta != 1:
        raise ArgumentError("beta", "value", "1 with groups along K", beta)


def _check_grouped_layout(t: Tensors, grouping: Grouping) -> None:
    """Check the grouped layout but for its contents."""
    name, value = layout_name(grouping), t.grouped_layout
    axes = SHAPES[grouping.kind].grouped_layout
    if not axes:
        if value is not None:
            raise ArgumentError(name, "presence", None, "a tensor", "batched groups are whole")
        return
    value = checks.tensor(name, value)
    checks.dtype(name, value, torch.int32, "pass .to(torch.int32)")
    wanted = (t.a.shape[0],) if axes == "m" else (grouping.num_groups,)
    checks.shape(
        name, value, wanted, "one for each row of A" if axes == "m" else "one for each group"
    )
    checks.same_device(name, value, t.a.device)
    if not value.is_contiguous():
        raise ArgumentError(name, "stride", 1, value.stride(0), "pass it .contiguous()")


def _majors(t: Tensors, grouping: Grouping, a: DType) -> tuple[Major, Major]:
    """Check the layouts of A, B and D; return which dimension of A and of B is contiguous."""
    _check_stack("d", t.d)
    if t.c is not None:
        _check_stack("c", t.c)
    if grouping.kind is not GroupKind.ALONG_K:
        _check_stack("a", t.a)
        return Major.K, _check_groups_apart("b", t.b)
    for name, value in (("a", t.a), ("b", t.b)):
        if a.is_fp8 and not value.is_contiguous():
            wanted = "those of a contiguous buffer, of the [rows, k] of the groups in turn"
            raise ArgumentError(name, "strides", wanted, value.stride(), f"{name}.contiguous()")
        if not a.is_fp8:
            checks.rows_contiguous(name, value.t())
    return (Major.K, Major.K) if a.is_fp8 else (Major.MN, Major.MN)


def _check_stack(name: str, value: torch.Tensor) -> None:
    """Check one matrix, or each of a stack, for contiguous rows, none of which overlap."""
    if value.dim() == 2:
        checks.rows_contiguous(name, value)
    elif value.shape[0]:
        checks.rows_contiguous(name, value[0])
        _check_groups_apart(name, value)


def _check_groups_apart(name: str, value: torch.Tensor) -> Major:
    """Check that matrices of a stack do not overlap, and return which dimension is contiguous.

    Groups may lie between each other's rows, as those of a transposed [rows, groups, k] do.
    """
    if not value.numel():
        return Major.K
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
