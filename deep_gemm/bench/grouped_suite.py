"""Benchmark suites of grouped products, of the interface of suite.Suite.

Rows hold `kind, groups, m_per_group, m, n, k`: m counts the valid rows of all groups, or, with
groups along K, the rows of D; k is then the sum over groups. Masked rows also hold `masked_m_sum`,
which is m. Groups of few rows also have `ours_labels_128`: these rows, padded to 128 a group.
Upstream's recorded time is corrected by `dense_cublas_tensor`: cuBLASLt's time of `dense_shape` in
this run, over its time in the recorded run. No other library has these products.

Calls alternate between two sets of weights. Data and scales are drawn as those of the dense suites.
All times are taken one after another, as the recorded ones were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from .. import (
    grouped_matmul,
    k_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
)
from ..config import from_index, select
from ..dtypes import E4M3, FP32
from ..grouped import bucketed
from ..layouts import align
from ..problem import CMode, GemmProblem, Grouping, GroupKind
from ..problem.request import Tensors
from ..problem.scale_recipe import BLOCK_128X128, ROW_1X128
from ..testing.grouped_judge import Span, product, spans
from ..testing.grouped_problems import lay_out
from ..testing.numerics import compare, reference_and_bound_of
from ..testing.problems import random_e4m3, random_scales
from . import dense_suite, suite
from .nvml import NvmlDevice
from .suite import CHECKED_ROWS, Row
from .timing import Call, Captured, capture, clock_under, time_alone

MAX_M = 4096  # rows there is room for in each group of masked rows
LABEL_ALIGNMENT = 128
SETS = 2
LARGE_M = 64  # rows of a group from which the tensor cores, not memory, are the limit
# What corrects recorded times: as bound as the rows are, by the tensor cores or by memory.
DENSE_LARGE, DENSE_SMALL = (4096, 4096, 7168), (16, 7168, 16384)
CORRECTION = "dense_cublas_tensor"


class Shape(NamedTuple):
    """Groups, rows of each on average, n, and k of each group."""

    groups: int
    m_per_group: int
    n: int
    k: int


@dataclass(frozen=True)
class GroupedSuite:
    """Grouped FP8 products of one kind; fields as those of suite.Suite.

    grouping: the kind of grouping that `ours` has.
    """

    kind: str
    title: str
    grouping: GroupKind
    shapes: tuple[Shape, ...]
    columns: tuple[str, ...] = ()
    corrected_by: str = CORRECTION

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that tell rows of a kind apart."""
        return "groups", "m_per_group", "m", "n", "k"

    def reduced(
        self, ms: Sequence[int] = (), ns: Sequence[int] = (), ks: Sequence[int] = ()
    ) -> list[Shape]:
        """Return the shapes that have one of these rows of a group, n and k of a group."""
        wanted = ((1, ms), (2, ns), (3, ks))
        return [s for s in self.shapes if all(not values or s[i] in values for i, values in wanted)]

    def variants(self, groups: int, m_per_group: int, n: int, k: int) -> dict[str, GemmProblem]:
        """Return the problems of the variants of our call, by row key."""
        shape = Shape(groups, m_per_group, n, k)
        found = {"ours": problem_of(self.grouping, shape)}
        if self.grouping is GroupKind.OFFSETS:
            found["ours_labels_128"] = problem_of(GroupKind.LABELS, shape, few=True)
        return found

    def row(self, shape: Shape) -> Row:
        """Return what a row says of its shape."""
        groups, m_per_group, n, k = shape
        rows = rows_of(self.grouping, shape)
        m, k = (m_per_group, groups * k) if self.grouping is GroupKind.ALONG_K else (sum(rows), k)
        row: Row = {"kind": self.kind, "groups": groups, "m_per_group": m_per_group}
        row |= {"m": m, "n": n, "k": k}
        return row | ({"masked_m_sum": m} if self.grouping is GroupKind.MASKED else {})

    def bytes(self, row: Row) -> int:
        """Return the bytes of data, not of scales, that must cross device memory for a row."""
        groups, m, n, k = (row[name] for name in ("groups", "m", "n", "k"))
        if self.grouping is GroupKind.ALONG_K:
            return (m + n) * k + 2 * 4 * groups * m * n
        return groups * n * k + m * k + 2 * m * n


def rows_of(kind: GroupKind, shape: Shape, few: bool = False) -> list[int]:
    """Return the rows of each group, or, with groups along K, its extent along K.

    few: with labels, the rows that groups by offsets have.
    """
    groups, m_per_group, _, k = shape
    generator = torch.Generator().manual_seed(groups * m_per_group)
    if kind is GroupKind.ALONG_K:
        return [k] * groups
    if kind is GroupKind.MASKED:
        drawn = torch.rand(groups, generator=generator) * 0.6 + 0.7
        return drawn.mul(m_per_group).int().clamp(1, MAX_M).tolist()
    if kind is GroupKind.OFFSETS or few:
        return torch.randint(1, 2 * m_per_group + 1, (groups,), generator=generator).tolist()
    return [m_per_group] * groups


def problem_of(kind: GroupKind, shape: Shape, few: bool = False) -> GemmProblem:
    """Return the problem of a call; few: as rows_of()."""
    groups, m_per_group, n, k = shape
    rows = rows_of(kind, shape, few)
    if kind is GroupKind.ALONG_K:
        extents = m_per_group, n, sum(rows)
        problem = GemmProblem(*extents, E4M3, E4M3, FP32, ROW_1X128, ROW_1X128)
        return replace(problem, c_mode=CMode.REDUCE, grouping=Grouping(GroupKind.ALONG_K, groups))
    alignment = LABEL_ALIGNMENT if kind is GroupKind.LABELS else 1
    hint = bucketed(m_per_group, MAX_M) if kind is GroupKind.MASKED else 0
    m = MAX_M if kind is GroupKind.MASKED else sum(align(count, alignment) for count in rows)
    problem = GemmProblem.block_scaled(m, n, k)
    return replace(problem, grouping=Grouping(kind, groups, alignment, hint))


# --- inputs -------------------------------------------------------------------------------------

Weights = list[tuple[torch.Tensor, torch.Tensor]]


def weights_of(shape: Shape, device: str = "cuda") -> Weights:
    """Return the sets of B [groups, n, k] with scales of 128x128."""
    found = []
    for _ in range(SETS):
        b = torch.stack([random_e4m3(shape.n, shape.k, device) for _ in range(shape.groups)])
        rows, columns = BLOCK_128X128.shape(shape.n, shape.k)
        sfb = random_scales((shape.groups * rows, columns), device)
        found.append((b, sfb.view(shape.groups, rows, columns)))
    return found


def operand_sets(
    problem: GemmProblem, rows: Sequence[int], weights: Weights, device: str = "cuda"
) -> list[Tensors]:
    """Return the tensors of a call for each set of weights; with groups along K, SETS sets.

    Scales of 1 x 128 are MN-major with a leading dimension padded to 16 bytes. Masked rows of A and
    D are shared by all sets.
    """
    grouping = problem.grouping
    if grouping is None:
        raise ValueError("a problem without groups")
    layout = torch.tensor(_listed(grouping, rows), dtype=torch.int32, device=device)
    if grouping.kind is GroupKind.ALONG_K:
        return [_set_along_k(problem, layout, device) for _ in range(SETS)]
    stacks = grouping.num_groups if grouping.is_stacked else 1
    found: list[Tensors] = []
    for b, sfb in weights:
        if not (found and grouping.is_stacked):
            a = random_e4m3(stacks * problem.m, problem.k, device)
            sfa = _row_scales(stacks, problem.m, problem.k, device)
            d = torch.empty(stacks * problem.m, problem.n, dtype=torch.bfloat16, device=device)
        if not grouping.is_stacked:
            found.append(Tensors(a, sfa[0], b, sfb, None, d, layout))
            continue
        a3, d3 = (x.view(stacks, problem.m, -1) for x in (a, d))
        found.append(Tensors(a3, sfa, b, sfb, None, d3, layout))
    return found


def _set_along_k(problem: GemmProblem, extents: torch.Tensor, device: str) -> Tensors:
    m, n, k = problem.m, problem.n, problem.k
    a, b = random_e4m3(m, k, device), random_e4m3(n, k, device)
    sfa, sfb = (_row_scales(1, rows, k, device)[0] for rows in (m, n))
    d = torch.zeros(len(extents), m, n, device=device)
    return Tensors(a, sfa, b, sfb, d, d, extents)


def _row_scales(groups: int, rows: int, k: int, device: str) -> torch.Tensor:
    columns = ROW_1X128.shape(rows, k)[1]
    drawn = random_scales((groups * rows, columns), device).view(groups, rows, columns)
    return lay_out(drawn, "mn_major_aligned")


def _listed(grouping: Grouping, rows: Sequence[int]) -> list[int]:
    """Return the grouped layout; labels of padding name the group before it."""
    if grouping.kind is GroupKind.LABELS:
        padded = (align(count, grouping.alignment) for count in rows)
        return [group for group, count in enumerate(padded) for _ in range(count)]
    if grouping.kind is GroupKind.OFFSETS:
        return torch.tensor(rows).cumsum(0).tolist()
    return list(rows)


def call_of(problem: GemmProblem, t: Tensors, shape: Shape) -> Call:
    """Return our call on one input set."""
    if problem.grouping is None or t.grouped_layout is None or t.sfa is None or t.sfb is None:
        raise ValueError("a problem without groups, or without scales")
    a, b, kind = (t.a, t.sfa), (t.b, t.sfb), problem.grouping.kind
    if kind is GroupKind.ALONG_K:
        ks = [shape.k] * shape.groups
        return partial(k_grouped_fp8_gemm_nt_contiguous, a, b, t.d, ks, t.grouped_layout, t.d)
    if kind is GroupKind.MASKED:
        expected = shape.m_per_group
        return partial(m_grouped_fp8_gemm_nt_masked, a, b, t.d, t.grouped_layout, expected)
    if kind is GroupKind.LABELS:
        return partial(m_grouped_fp8_gemm_nt_contiguous, a, b, t.d, t.grouped_layout)
    return partial(grouped_matmul, a, b, t.d, offsets=t.grouped_layout, alignment=1)


# --- measuring ----------------------------------------------------------------------------------


def measure(
    one: GroupedSuite, wanted: Sequence[Shape], device: NvmlDevice | None = None
) -> Iterator[Row]:
    """Yield one measured row per shape; what fails has None in its column."""
    spec = from_index(torch.cuda.current_device())
    problems = [problem for shape in wanted for problem in one.variants(*shape).values()]
    suite.compile_ahead(select(problem, spec) for problem in problems)
    library = cache(_library)
    for shape in wanted:
        row = _row(one, shape, device)
        row["dense_shape"] = DENSE_LARGE if shape.m_per_group > LARGE_M else DENSE_SMALL
        row[CORRECTION] = round(time_alone(library(row["dense_shape"])), 3)
        row["config"] = select(one.variants(*shape)["ours"], spec).name
        yield row


def _library(shape: tuple[int, int, int]) -> Captured:
    """Return cuBLASLt's dense product, one scale a tensor, ready to be timed."""
    return capture(dense_suite.cublas_tensor(dense_suite.rotating_sets(*shape, [])))


def _row(one: GroupedSuite, shape: Shape, device: NvmlDevice | None) -> Row:
    row, weights = one.row(shape), [] if one.grouping is GroupKind.ALONG_K else weights_of(shape)
    for name, problem in one.variants(*shape).items():
        rows = rows_of(one.grouping, shape)
        captured = suite.attempt(row, name, partial(_ready, problem, shape, rows, weights))
        if captured:
            row[name] = round(time_alone(captured), 3)
        if captured and device and name == "ours":
            row["mhz"] = clock_under(captured, device)
        del captured
    return row


def _ready(problem: GemmProblem, shape: Shape, rows: list[int], weights: Weights) -> Captured:
    sets = operand_sets(problem, rows, weights)
    calls = [call_of(problem, t, shape) for t in sets]
    check(problem, sets[0], calls[0])
    return capture(calls)


def check(problem: GemmProblem, t: Tensors, call: Call) -> None:
    """Call, and raise ValueError where the first or last rows of the first or last group that has
    any differ from the float64 product."""
    before: Any = None
    if t.c is None:
        t.d.fill_(torch.nan)
    else:
        t.d.normal_(0.0, suite.SUM_DEVIATION)
        before = t.d.clone()
    call()
    listed = None if t.grouped_layout is None else t.grouped_layout.tolist()
    found = [
        one for one in spans(problem, listed) if one.what == "computed" and one.first < one.end
    ]
    for one in (found[0], found[-1]):
        for first in {one.first, max(one.first, one.end - CHECKED_ROWS)}:
            span = Span(one.group, first, min(first + CHECKED_ROWS, one.end))
            dense, part = product(problem, t._replace(c=before), span, listed)
            report = compare(part.d, *reference_and_bound_of(dense, part))
            if not report.ok:
                raise ValueError(f"wrong values in rows {first} of group {one.group}: {report}")


# --- the suites ---------------------------------------------------------------------------------

_NK = ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048))
_K_GROUPED = ((4, 8192), (8, 4096), (16, 2048))

GROUPED_SUITES = {
    one.kind: one
    for one in (
        GroupedSuite(
            "grouped_contiguous",
            "FP8, groups of rows by labels",
            GroupKind.LABELS,
            (
                *(Shape(4, 8192, n, k) for n, k in _NK[:2]),
                *(Shape(8, 4096, n, k) for n, k in _NK[2:]),
                *(Shape(32, 256, n, k) for n, k in ((4096, 7168), (7168, 2048))),
            ),
        ),
        GroupedSuite(
            "grouped_masked",
            "FP8, masked groups of rows",
            GroupKind.MASKED,
            tuple(
                Shape(groups, m, n, k)
                for groups, m in ((32, 192), (6, 1024), (32, 20), (6, 20))
                for n, k in _NK
            ),
        ),
        GroupedSuite(
            "grouped_offsets",
            "FP8, 256 groups of 1 to 40 rows by offsets",
            GroupKind.OFFSETS,
            tuple(Shape(256, 20, n, k) for n, k in ((4096, 7168), (7168, 2048))),
        ),
        GroupedSuite(
            "k_grouped",
            "FP8 weight gradients of groups, added into FP32",
            GroupKind.ALONG_K,
            tuple(
                Shape(groups, m, n, k)
                for groups, k in _K_GROUPED
                for m, n in ((4096, 7168), (7168, 2048))
            ),
        ),
    )
}
