"""Grouped GEMM in torch, the CPU backend: a loop over groups, each a product of gemm()."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from ..errors import ArgumentError
from ..layouts import align, ceil_div
from ..problem import GemmProblem, GroupKind, Major
from ..problem.request import Tensors
from ..problem.scale_recipe import PER_TENSOR, ScaleRecipe
from .gemm import BLOCK, gemm

HALF = 64  # rows of a block of labels that are computed, or zeros, together

Part = tuple[GemmProblem, Tensors]


def grouped_gemm(problem: GemmProblem, t: Tensors, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Write D of a grouped problem as the kernels do, for tensors that fit `problem`.

    problem: with a grouping; problem/grouped.py says the shapes, Grouping what the int32
        tensor t.grouped_layout says, which is read here, by the host.

    Every row is that of gemm() with its group's B, bit for bit. What is written:
        labels: of a block whose first row names a group each half of 64 rows, computed where its
            own first row has a label of at least 0 (padding rows as well), else zeros. Blocks whose
            first row has a label below 0, or of no group, are left alone.
        offsets: the rows of each group; ends beyond M are cut to M, and a group that ends before
            it begins is empty. With zero_padding also zeros up to the next multiple of the
            alignment, behind groups that are not empty.
        masked: the valid rows of each group, counts being cut to 0..M.
        batched, k: all of D; an extent of 0 along K gives C, or zeros.

    Raises ArgumentError, before anything is written, for extents along K that are negative or do
    not fit into the operands or their scales. Costs as gemm().
    """
    grouping = problem.grouping
    if grouping is None:
        raise ArgumentError("problem", "grouping", "a Grouping", None, "gemm() has none")
    if grouping.kind is GroupKind.ALONG_K:
        parts = list(_along_k(problem, t))
    elif grouping.kind is GroupKind.LABELS:
        parts = list(_labelled(problem, t))
    elif grouping.kind is GroupKind.OFFSETS:
        parts = list(_between_offsets(problem, t))
    else:
        parts = list(_stacked(problem, t))
    for part, tensors in parts:
        if part.m:
            gemm(part, tensors, alpha, beta)


def _labelled(problem: GemmProblem, t: Tensors) -> Iterator[Part]:
    labels = _listed(t)
    alignment, groups = _alignment(problem), t.b.shape[0]
    for block in range(0, problem.m, alignment):
        group = labels[block]
        if not 0 <= group < groups:
            continue
        for first in range(block, min(block + alignment, problem.m), HALF):
            last = min(first + HALF, problem.m)
            if labels[first] < 0:
                t.d[first:last] = 0
            else:
                yield _rows(problem, t, group, first, last)


def _between_offsets(problem: GemmProblem, t: Tensors) -> Iterator[Part]:
    alignment, end = _alignment(problem), 0
    padded = problem.grouping is not None and problem.grouping.zero_padding
    for group, given in enumerate(_listed(t)):
        begin, end = align(end, alignment), max(0, min(given, problem.m))
        if begin >= end:
            continue
        yield _rows(problem, t, group, begin, end)
        if padded:
            t.d[end : align(end, alignment)] = 0


def _stacked(problem: GemmProblem, t: Tensors) -> Iterator[Part]:
    groups = t.b.shape[0]
    counts = [problem.m] * groups if t.grouped_layout is None else _listed(t)
    for group, count in enumerate(counts):
        rows = max(0, min(count, problem.m))
        at = slice(0, rows)
        sfa = _row_scales(_group_scales(t.sfa, group), problem.scale_a, at)
        sfb = _group_scales(t.sfb, group)
        tensors = Tensors(t.a[group, at], sfa, t.b[group], sfb, None, t.d[group, at])
        tensors = tensors._replace(epilogue=_row_operands(problem, t, at))
        yield replace(problem, grouping=None, m=rows), tensors


def _along_k(problem: GemmProblem, t: Tensors) -> Iterator[Part]:
    extents = _checked_extents(problem, t)
    start, column = 0, 0
    for group, k in enumerate(extents):
        blocks = slice(column, column + ceil_div(k, BLOCK))
        a, b = (_group_along_k(x, start, k, problem.a_major) for x in (t.a, t.b))
        sfa, sfb = (None if sf is None else sf[:, blocks] for sf in (t.sfa, t.sfb))
        c = None if t.c is None else t.c[group]
        tensors = Tensors(a, sfa, b, sfb, c, t.d[group], epilogue=t.epilogue)
        yield replace(problem, grouping=None, k=k), tensors
        start, column = start + k, blocks.stop


def _group_along_k(x: torch.Tensor, start: int, k: int, major: Major) -> torch.Tensor:
    """Return the [rows, k] of a group: columns of x, or a part of the buffer of x."""
    if major is Major.MN:
        return x[:, start : start + k]
    rows = x.shape[0]
    return x.reshape(-1)[rows * start : rows * (start + k)].view(rows, k)


def _checked_extents(problem: GemmProblem, t: Tensors) -> list[int]:
    extents = _listed(t)
    if min(extents, default=0) < 0 or sum(extents) > problem.k:
        wanted = f"at least 0, and {problem.k} or less in all"
        raise ArgumentError("extents", "values", wanted, extents)
    columns = sum(ceil_div(k, BLOCK) for k in extents)
    for name, scale in (("sfa", t.sfa), ("sfb", t.sfb)):
        if scale is not None and scale.shape[1] < columns:
            wanted = f"at least {columns}, ceil(k / 128) for each group"
            raise ArgumentError(name, "number of columns", wanted, scale.shape[1])
    return extents


def _rows(problem: GemmProblem, t: Tensors, group: int, first: int, last: int) -> Part:
    """Return the product of some rows of A with the B of a group."""
    at = slice(first, last)
    sfa, sfb = _row_scales(t.sfa, problem.scale_a, at), _group_scales(t.sfb, group)
    tensors = Tensors(t.a[at], sfa, t.b[group], sfb, None, t.d[at])
    tensors = tensors._replace(epilogue=_row_operands(problem, t, at))
    return replace(problem, grouping=None, m=last - first), tensors


def _row_operands(problem: GemmProblem, t: Tensors, at: slice) -> tuple[torch.Tensor, ...]:
    """Return the operands of further epilogue ops for some rows of D."""
    operands = [operand for op in problem.epilogue for operand in op.tensors]
    pairs = zip(operands, t.epilogue, strict=True)
    return tuple(value[at] if "m" in operand.axes else value for operand, value in pairs)


def _group_scales(scale: torch.Tensor | None, group: int) -> torch.Tensor | None:
    """Return the scales of one group of a stack; [] and [1] are of all."""
    if scale is None or scale.dim() == 0 or scale.shape == (1,):
        return scale
    return scale[group : group + 1] if scale.dim() == 1 else scale[group]


def _row_scales(
    scale: torch.Tensor | None, recipe: ScaleRecipe | None, at: slice
) -> torch.Tensor | None:
    """Return the scales of some rows; one for all stays as it is."""
    return scale if scale is None or recipe == PER_TENSOR else scale[at]


def _listed(t: Tensors) -> list[int]:
    return [] if t.grouped_layout is None else t.grouped_layout.tolist()


def _alignment(problem: GemmProblem) -> int:
    return 1 if problem.grouping is None else problem.grouping.alignment
