"""Judge what a grouped call made of D: every group against its own product, all else untouched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from .. import reference
from ..dispatch import gemm
from ..layouts import align, ceil_div
from ..problem import GemmProblem, Grouping, GroupKind, Major, ScaleChoice
from ..problem.request import Options, Tensors
from ..problem.scale_recipe import PER_TENSOR, ScaleRecipe
from .grouped_problems import BLOCK, Drawn, grouping_of
from .numerics import assert_bitwise_equal, bits, compare, reference_and_bound_of

HALF = 64  # rows of a block of labels that are computed, or zeros, together


@dataclass(frozen=True)
class Span:
    """Rows [first, end) of D, or of D[group] where it is stacked, and what a call makes of them.

    what: "computed" or "zeros". Rows of no span stay as they are.
    """

    group: int
    first: int
    end: int
    what: str = "computed"


# --- what is to be made of D ---------------------------------------------------------------------


def spans(problem: GemmProblem, layout: Sequence[int] | None) -> Iterator[Span]:
    """Yield what a call makes of the rows of D, given the contents of the grouped layout."""
    grouping, m = grouping_of(problem), problem.m
    if grouping.kind is GroupKind.LABELS:
        yield from _merged(_spans_of_labels(grouping, layout or [], m))
    elif grouping.kind is GroupKind.OFFSETS:
        yield from _spans_of_offsets(grouping, layout or [], m)
    else:
        masked = grouping.kind is GroupKind.MASKED
        for group in range(grouping.num_groups):
            count = min(max((layout or [])[group], 0), m) if masked else m
            yield Span(group, 0, count)


def _spans_of_labels(grouping: Grouping, labels: Sequence[int], m: int) -> Iterator[Span]:
    for first in range(0, m, grouping.alignment):
        group, end = labels[first], min(first + grouping.alignment, m)
        if 0 <= group < grouping.num_groups:
            for half in range(first, end, HALF):
                what = "computed" if labels[half] >= 0 else "zeros"
                yield Span(group, half, min(half + HALF, end), what)


def _merged(found: Iterator[Span]) -> Iterator[Span]:
    """Yield spans, neighbours of one group and kind as one."""
    last: Span | None = None
    for span in found:
        if last and (last.group, last.what, last.end) == (span.group, span.what, span.first):
            last = replace(last, end=span.end)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last


def _spans_of_offsets(grouping: Grouping, ends: Sequence[int], m: int) -> Iterator[Span]:
    begin = 0
    for group, given in enumerate(ends):
        end = max(0, min(given, m))
        if end > begin:
            yield Span(group, begin, end)
            if grouping.zero_padding:
                yield Span(group, end, min(align(end, grouping.alignment), m), "zeros")
        begin = align(end, grouping.alignment)


# --- calls ---------------------------------------------------------------------------------------


def options_of(problem: GemmProblem) -> Options:
    """Return the options that make gemm() compute a problem."""
    mainloop = problem.variant.mainloop
    scales = ScaleChoice(mainloop.value) if mainloop.scales_along_k else ScaleChoice.AUTO
    return Options(scales, not problem.promoted, problem.static_b, grouping_of(problem))


def call(problem: GemmProblem, drawn: Drawn) -> None:
    """Compute a problem on tensors that fit it."""
    gemm(drawn.tensors, options_of(problem))


# --- judgement -----------------------------------------------------------------------------------


def judge(problem: GemmProblem, drawn: Drawn, *, exact: bool = False) -> None:
    """Raise AssertionError unless D is what a call is to make of what drawn.before holds.

    Computed rows of each group are compared with the float64 product within its bound, exact ones
    and integers with the CPU backend bit for bit; zeros must be zeros; rows of no group, those
    behind a group's count, and canaries, untouched. Groups are those that the grouped layout says
    at this moment.

    Synchronizes, and costs as numerics.reference_and_bound_of() of every group.
    """
    drawn.check()
    layout = drawn.tensors.grouped_layout
    listed = None if layout is None else layout.tolist()
    added = _with_c_before(problem, drawn)
    left = torch.ones(len(drawn.whole), dtype=torch.bool, device=drawn.whole.device)
    for span in spans(problem, listed):
        place = _place(problem, drawn, span)
        left[place] = False
        if place.start == place.stop:
            continue
        where = f"{problem.describe()}: group {span.group}, rows {span.first} to {span.end}"
        if span.what == "zeros":
            if not bool((drawn.whole[place] == 0).all()):
                raise AssertionError(f"{where}: padding is not zeros")
        else:
            _judge_product(*product(problem, added, span, listed), where, exact)
    changed = (bits(drawn.whole) != bits(drawn.before)).any(1) & left
    if bool(changed.any()):
        group, row = divmod(int(changed.nonzero()[0]), _pitch(problem, drawn))
        at = f"row {row}" + f" of D[{group}]" * (drawn.tensors.d.dim() == 3)
        raise AssertionError(
            f"{problem.describe()}: {int(changed.sum())} rows of no group were written, first {at}"
        )


def _with_c_before(problem: GemmProblem, drawn: Drawn) -> Tensors:
    """Return the tensors with what C held before the call."""
    t = drawn.tensors
    if t.c is None or t.c.data_ptr() != t.d.data_ptr():
        return t
    if t.d.dim() == 2:
        return t._replace(c=drawn.before)
    return t._replace(c=drawn.before.unflatten(0, (len(t.d), -1))[:, : problem.m])


def _pitch(problem: GemmProblem, drawn: Drawn) -> int:
    """Return the rows from one group of a stacked D to the next; without a stack, all rows."""
    stacked = drawn.tensors.d.dim() == 3
    return max(len(drawn.whole) // (grouping_of(problem).num_groups if stacked else 1), 1)


def _place(problem: GemmProblem, drawn: Drawn, span: Span) -> slice:
    """Return the rows of drawn.whole that a span covers."""
    before = span.group * _pitch(problem, drawn) if drawn.tensors.d.dim() == 3 else 0
    return slice(before + span.first, before + span.end)


def _judge_product(problem: GemmProblem, t: Tensors, where: str, exact: bool) -> None:
    """Compare the rows of a span with their product."""
    report = compare(t.d, *reference_and_bound_of(problem, t, exact_products=exact))
    if not report.ok:
        raise AssertionError(f"{where}: {report}")
    if exact or problem.variant.is_integer:
        wanted = torch.empty_like(t.d)
        reference.gemm(problem, t._replace(d=wanted))
        # compare() has found NaN in equal places; their bits may differ.
        got, wanted = (x.masked_fill(x.isnan(), 0) for x in (t.d, wanted))
        assert_bitwise_equal(got, wanted, f"{where}: result and reference")


def product(
    problem: GemmProblem, t: Tensors, span: Span, listed: list[int] | None
) -> tuple[GemmProblem, Tensors]:
    """Return the rows of a span as a problem of their own.

    t: C must hold what is to be added. listed: what t.grouped_layout holds.
    """
    grouping, group, rows = grouping_of(problem), span.group, slice(span.first, span.end)
    d = (t.d[group] if t.d.dim() == 3 else t.d)[rows]
    c = None if t.c is None else (t.c[group] if t.c.dim() == 3 else t.c)[rows]
    dense = replace(
        problem,
        m=span.end - span.first,
        a_major=Major.K,
        b_major=Major.K,
        grouping=None,
        static_b=False,
    )
    if grouping.kind is GroupKind.ALONG_K:
        a, sfa, b, sfb = _along_k(problem, t, listed or [], group)
        sfa = None if sfa is None else sfa[rows]
        return replace(dense, k=a.shape[1]), Tensors(a[rows], sfa, b, sfb, c, d)
    a = t.a[group] if grouping.is_stacked else t.a
    sfa = _scales_of(t.sfa, problem.scale_a, group if grouping.is_stacked else None)
    sfa = sfa[rows] if sfa is not None and problem.scale_a != PER_TENSOR else sfa
    sfb = _scales_of(t.sfb, problem.scale_b, group)
    return dense, Tensors(a[rows], sfa, t.b[group], sfb, c, d)


def _scales_of(
    scale: torch.Tensor | None, recipe: ScaleRecipe | None, group: int | None
) -> torch.Tensor | None:
    """Return the scales of one group; of all if `group` is None."""
    if scale is None or group is None:
        return scale
    if recipe != PER_TENSOR:
        return scale[group]
    each = scale.reshape(-1)
    return each[group if len(each) > 1 else 0]


def _along_k(
    problem: GemmProblem, t: Tensors, ks: list[int], group: int
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
    """Return A, sfa, B and sfb of one group along K."""
    begin, blocks = sum(ks[:group]), sum(ceil_div(k, BLOCK) for k in ks[:group])
    end = begin + ks[group]
    scales = slice(blocks, blocks + ceil_div(ks[group], BLOCK))
    sfa, sfb = (None if scale is None else scale[:, scales] for scale in (t.sfa, t.sfb))
    a, b = (
        x[:, begin:end]
        if problem.a_dtype.bytes > 1
        else x.reshape(-1)[mn * begin : mn * end].view(mn, end - begin)
        for x, mn in ((t.a, problem.m), (t.b, problem.n))
    )
    return a, sfa, b, sfb
