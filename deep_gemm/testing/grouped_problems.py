"""Random grouped problems; grouped_judge judges what is made of them.

Whatever belongs to no group is NaN, or 127 where INT8 has none: rows of A between groups and behind
them, their scales, what lies behind each line, and behind each group's matrix. D is poisoned among
canaries, between its groups too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from ..dtypes import INT32, DType
from ..errors import ArgumentError
from ..layouts import align, ceil_div
from ..problem import CMode, GemmProblem, Grouping, GroupKind, Major
from ..problem.request import Tensors
from ..problem.scale_recipe import PER_TENSOR, ScaleRecipe
from . import poison, problems
from .problems import Source

BLOCK = 128  # elements of K that share a scale
GAP = 2  # rows or columns of poison behind the matrix of each group
# "flat", of one scale a row: [rows] and [groups, rows].
SCALE_LAYOUTS = (
    "row_major", "mn_major_aligned", "mn_major_unaligned", "strided_view", "groups_inside", "flat",
)  # fmt: skip

Extent = tuple[int, int]  # first and end


@dataclass(frozen=True)
class Drawn:
    """The tensors of a call, and what D held before it.

    whole: D with the poisoned rows between its groups, as one matrix; `before` is a copy.
    check: raises AssertionError where memory around it was written.
    """

    tensors: Tensors
    whole: torch.Tensor
    before: torch.Tensor
    check: Callable[[], None]

    def restore(self) -> None:
        """Give D what it held before the call."""
        self.whole.copy_(self.before)


# --- where groups lie ---------------------------------------------------------------------------


def grouping_of(problem: GemmProblem) -> Grouping:
    """Return the grouping of a problem; ArgumentError where there is none."""
    if problem.grouping is None:
        raise ArgumentError("problem", "grouping", "a Grouping", None)
    return problem.grouping


def least_m(grouping: Grouping, rows: Sequence[int]) -> int:
    """Return the fewest rows of A that hold groups of `rows` rows; 1 with groups along K."""
    if grouping.kind in (GroupKind.LABELS, GroupKind.OFFSETS):
        return max((end for first, end in _placed(grouping, rows) if first < end), default=0)
    return 1 if grouping.kind is GroupKind.ALONG_K else max(rows)


def _placed(grouping: Grouping, rows: Sequence[int]) -> list[Extent]:
    """Return the rows of each group in A, one after another, each on its alignment."""
    ends = accumulate(align(count, grouping.alignment) for count in rows)
    begins = [0, *ends]
    return [(begin, begin + count) for begin, count in zip(begins, rows, strict=False)]


def grouped_layout(problem: GemmProblem, rows: Sequence[int]) -> list[int] | None:
    """Return the grouped layout for groups of `rows` rows as a list, or None.

    Padding has alternately the label -1 and that of the group before it. Of empty groups every
    second one ends where the group before it ends, the others where they would begin.
    """
    grouping = grouping_of(problem)
    if grouping.kind is GroupKind.BATCHED:
        return None
    if grouping.kind in (GroupKind.MASKED, GroupKind.ALONG_K):
        return list(rows)
    placed = _placed(grouping, rows)
    if grouping.kind is GroupKind.OFFSETS:
        before = [0, *(end for _, end in placed)]
        return [
            before[i] if first == end and i % 2 else end for i, (first, end) in enumerate(placed)
        ]
    labels = [-1] * problem.m
    for group, (first, end) in enumerate(placed):
        labels[first:end] = [group] * (end - first)
        if group % 2 and first < end:
            padded = min(first + align(end - first, grouping.alignment), problem.m)
            labels[end:padded] = [group] * (padded - end)
    return labels


# --- drawing ------------------------------------------------------------------------------------


def make(
    problem: GemmProblem,
    rows: Sequence[int],
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
    *,
    scale_layouts: tuple[str, str] = ("row_major", "row_major"),
    row_pad: int = 0,
    contiguous: bool = False,
    exact: bool = False,
) -> Drawn:
    """Return random tensors that fit a problem with a grouping, as gemm() takes them.

    rows: of each group, or its extent along K; grouped_layout() says what follows from them.
    generator: of the same device; the device's default one where None.
    scale_layouts: of sfa and sfb, of SCALE_LAYOUTS. A scale of a whole tensor is [], or one of each
        group in another layout than "row_major", where the operand has a matrix for each.
    row_pad: elements behind each line of A and B, after those that fill up its last 16 bytes.
    contiguous: C and D have nothing between their rows and groups.
    exact: as problems.make(): GPU and CPU backend must agree bit for bit.

    C, where the problem adds one, is D with CMode.REDUCE. Raises ArgumentError where the rows do
    not fit.
    """
    grouping, source = grouping_of(problem), (device, generator)
    _check_fit(problem, rows)
    if grouping.kind is GroupKind.ALONG_K:
        a, b = (_operand_along_k(problem, rows, side, row_pad, exact, source) for side in (0, 1))
        sfa, sfb = (
            _scales_along_k(problem, rows, (side, scale_layouts[side]), exact, source)
            for side in (0, 1)
        )
    else:
        a, b = (_operand(problem, side, row_pad, exact, source) for side in (0, 1))
        sfa, sfb = (_scales(problem, side, scale_layouts[side], exact, source) for side in (0, 1))
        for group, first, end in _unused(problem, rows):
            poison.nan_fill_(a[group, first:end] if grouping.is_stacked else a[first:end])
            if sfa is not None and problem.scale_a != PER_TENSOR:
                sfa[(group,) if grouping.is_stacked else ()][first:end].fill_(torch.nan)
    listed = grouped_layout(problem, rows)
    layout = None if listed is None else torch.tensor(listed, dtype=torch.int32, device=device)
    d, whole, check = _output(problem, device, 0 if contiguous else 8, 0 if contiguous else GAP)
    c = _c(problem, d, exact, source)
    return Drawn(Tensors(a, sfa, b, sfb, c, d, layout), whole, whole.clone(), check)


def _check_fit(problem: GemmProblem, rows: Sequence[int]) -> None:
    grouping = grouping_of(problem)
    if len(rows) != grouping.num_groups:
        raise ArgumentError("rows", "length", grouping.num_groups, len(rows))
    if grouping.kind is GroupKind.ALONG_K and sum(rows) > problem.k:
        raise ArgumentError("rows", "sum", f"at most K = {problem.k}", sum(rows))
    if problem.m < least_m(grouping, rows):
        raise ArgumentError("problem", "m", f"at least {least_m(grouping, rows)}", problem.m)


class _Side(NamedTuple):
    """One operand: its rows, type, scales and major, and whether each group has a matrix of it."""

    mn: int
    dtype: DType
    recipe: ScaleRecipe | None
    major: Major
    stacked: bool


def _side(problem: GemmProblem, side: int) -> _Side:
    """Return A (0) or B (1)."""
    p, grouping = problem, grouping_of(problem)
    if side == 0:
        return _Side(p.m, p.a_dtype, p.scale_a, p.a_major, grouping.is_stacked)
    return _Side(p.n, p.b_dtype, p.scale_b, p.b_major, grouping.kind is not GroupKind.ALONG_K)


def _operand(
    problem: GemmProblem, side: int, row_pad: int, exact: bool, source: Source
) -> torch.Tensor:
    """Return A or B, [mn, k] or [groups, mn, k]."""
    mn, dtype, _, major, stacked = _side(problem, side)
    count = grouping_of(problem).num_groups if stacked else 1
    x = problems.operand(problem, dtype, count * mn, exact, source).view(count, mn, problem.k)
    found = _in_lines(x, major, row_pad)
    return found if stacked else found[0]


def _in_lines(x: torch.Tensor, major: Major, row_pad: int) -> torch.Tensor:
    """Return x [groups, mn, k] with lines along K or along its rows, poison behind lines and
    groups."""
    lines = x if major is Major.K else x.transpose(1, 2)
    count, length = lines.shape[1:]
    pitch = align(length, 16 // x.element_size()) + row_pad
    buffer = poison.nan_like((x.shape[0], count + GAP, pitch), x)
    view = poison.copied(lines, buffer[:, :count, :length])
    return view if major is Major.K else view.transpose(1, 2)


def _operand_along_k(
    problem: GemmProblem, ks: Sequence[int], side: int, row_pad: int, exact: bool, source: Source
) -> torch.Tensor:
    """Return A or B of groups along K, viewed as [mn, k]: see Grouping."""
    mn, dtype, _, major, _ = _side(problem, side)
    x = problems.operand(problem, dtype, mn, exact, source)
    poison.nan_fill_(x[:, sum(ks) :])
    if major is Major.MN:
        return _in_lines(x[None], major, row_pad)[0]
    parts = [part.reshape(-1) for part in x.split([*ks, problem.k - sum(ks)], 1)]
    return torch.cat([part.view(torch.uint8) for part in parts]).view(x.dtype).view(x.shape)


def _scales(
    problem: GemmProblem, side: int, layout: str, exact: bool, source: Source
) -> torch.Tensor | None:
    mn, _, recipe, _, stacked = _side(problem, side)
    if recipe is None:
        return None
    count = grouping_of(problem).num_groups if stacked else 1
    if recipe == PER_TENSOR:
        shape = (count,) if stacked and layout != "row_major" else ()
        return _drawn_scales((shape[0] if shape else 1, 1), False, source).view(shape)
    rows, columns = recipe.shape(mn, problem.k)
    drawn = _drawn_scales((count * rows, columns), exact and recipe.gran_k > 0, source)
    found = lay_out(drawn.view(count, rows, columns), layout)
    return found if stacked else found[0]


def _scales_along_k(
    problem: GemmProblem, ks: Sequence[int], at: tuple[int, str], exact: bool, source: Source
) -> torch.Tensor | None:
    """Return the scales of groups along K, those of each behind those of the one before."""
    side, layout = at
    mn, _, recipe, _, _ = _side(problem, side)
    if recipe is None:
        return None
    used = sum(ceil_div(k, BLOCK) for k in ks)
    columns = max(used, ceil_div(problem.k, BLOCK)) + GAP
    drawn = _drawn_scales((mn, columns), exact, source)
    drawn[:, used:] = torch.nan
    return lay_out(drawn[None], layout)[0]


def _drawn_scales(shape: tuple[int, int], exact: bool, source: Source) -> torch.Tensor:
    """Return scales in [0.5, 1.5), or exact ones: a half, one or two."""
    drawn = problems.random_scales(shape, *source)
    return drawn.sub_(0.5).mul_(3).floor_().sub_(1).exp2_() if exact else drawn


def lay_out(sf: torch.Tensor, layout: str) -> torch.Tensor:
    """Return scales [groups, rows, columns] in one of SCALE_LAYOUTS."""
    groups, rows, columns = sf.shape
    if layout == "row_major":
        return sf.contiguous()
    if layout == "flat":
        return sf[:, :, 0].contiguous()
    if layout in ("mn_major_aligned", "mn_major_unaligned"):
        pitch = align(rows, 4) if layout == "mn_major_aligned" else rows
        view = poison.nan_like((groups, columns, pitch), sf)[:, :, :rows].transpose(1, 2)
    elif layout == "strided_view":
        view = poison.nan_like((groups, rows, 2 * columns), sf)[:, :, ::2]
    elif layout == "groups_inside":
        view = poison.nan_like((rows, columns, groups), sf).permute(2, 0, 1)
    else:
        raise ArgumentError("layout", "value", f"one of {', '.join(SCALE_LAYOUTS)}", repr(layout))
    return view.copy_(sf)


def _unused(problem: GemmProblem, rows: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield group, first and end of rows of A that belong to none."""
    grouping = grouping_of(problem)
    if grouping.is_stacked:
        yield from ((group, count, problem.m) for group, count in enumerate(rows))
        return
    placed = [extent for extent in _placed(grouping, rows) if extent[0] < extent[1]]
    begins = [*(first for first, _ in placed), problem.m]
    for end, begin in zip([0, *(end for _, end in placed)], begins, strict=True):
        yield 0, end, begin


def _output(
    problem: GemmProblem, device: torch.device | str, out_pad: int, gap: int
) -> tuple[torch.Tensor, torch.Tensor, Callable[[], None]]:
    """Return D, the matrix of all its rows with those between its groups, and its check."""
    grouping = grouping_of(problem)
    count = grouping.num_groups if grouping.is_stacked or grouping.kind is GroupKind.ALONG_K else 1
    dtype = problem.d_dtype.torch
    whole, check = poison.canary(count * (problem.m + gap), problem.n, dtype, device, out_pad)
    view = whole.unflatten(0, (count, problem.m + gap))[:, : problem.m]
    return (
        view if grouping.is_stacked or grouping.kind is GroupKind.ALONG_K else view[0],
        whole,
        check,
    )


def _c(problem: GemmProblem, d: torch.Tensor, exact: bool, source: Source) -> torch.Tensor | None:
    """Return C, about as large as the product; with CMode.REDUCE it is D."""
    if problem.c_mode is CMode.NONE:
        return None
    device, generator = source
    drawn = torch.randn(d.shape, device=device, generator=generator)
    drawn.mul_(max(problem.k, 1) ** 0.5 * problems.deviation(problem, exact) ** 2)
    if exact or problem.d_dtype == INT32:
        drawn.round_().add_(0.0)  # no -0, which is 0 once a sum is added
    drawn = drawn.to(d.dtype)
    return d.copy_(drawn) if problem.c_mode is CMode.REDUCE else drawn
