"""Drawing and judging grouped problems: what lies where, what the CPU backend computes, and that
every way to be wrong is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.errors import ArgumentError
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import grouped_judge, grouped_problems
from deep_gemm.testing.grouped_judge import Span, spans
from deep_gemm.testing.grouped_problems import Drawn, grouped_layout, least_m

SCALED_1D2D, SCALED_1D1D, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
N, K = 136, 208


def template(*fields: Any, **rest: Any) -> GemmProblem:
    return GemmProblem(0, N, K, *fields, **rest)


VARIANTS = {
    "1d2d": template(E4M3, E4M3, BF16, *SCALED_1D2D),
    "1d2d, B mn": template(E4M3, E4M3, BF16, *SCALED_1D2D, b_major=Major.MN),
    "1d1d fp32": template(E4M3, E5M2, FP32, *SCALED_1D1D),
    "vectors": template(E4M3, E4M3, BF16, PER_CHANNEL, PER_CHANNEL),
    "tensor, fast": template(E4M3, E4M3, BF16, PER_TENSOR, PER_TENSOR, promoted=False),
    "mixed": template(E5M2, E4M3, FP16, PER_TENSOR, PER_CHANNEL),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16, B mn": template(BF16, BF16, FP32, *NONE, b_major=Major.MN),
    "fp16": template(FP16, FP16, FP16, *NONE),
    "int8": template(INT8, INT8, INT32, *NONE),
    "int8 scaled": template(INT8, INT8, BF16, PER_CHANNEL, PER_CHANNEL),
}
VARIANTS_ALONG_K = {
    "fp8": template(E4M3, E4M3, FP32, *SCALED_1D1D),
    "fp8 reduce": template(E4M3, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.REDUCE),
    "fp8 read": template(E4M3, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.READ),
    "bf16": template(BF16, BF16, FP32, *NONE, a_major=Major.MN, b_major=Major.MN),
    "bf16 reduce": template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN, CMode.REDUCE),
}
# Empty groups first, in the middle and last; one row; odd numbers; more than a block.
ROW_SETS = ([0, 1, 0, 70, 129, 0], [3], [0, 0], [64, 128, 40])
LABELS, OFFSETS, MASKED = GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED
BATCHED, ALONG_K = GroupKind.BATCHED, GroupKind.ALONG_K
GROUPINGS = [
    (LABELS, 64, False), (LABELS, 128, False),
    (OFFSETS, 1, False), (OFFSETS, 8, True), (OFFSETS, 64, True), (OFFSETS, 128, False),
    (MASKED, 1, False), (BATCHED, 1, False),
]  # fmt: skip


def grouped(
    variant: GemmProblem,
    kind: GroupKind,
    rows: Sequence[int],
    alignment: int = 1,
    zeros: bool = False,
) -> GemmProblem:
    """Return a problem with room for the groups and some rows more."""
    grouping = Grouping(kind, len(rows), alignment, 0, zeros)
    if kind is ALONG_K:
        return replace(variant, m=72, k=sum(rows), grouping=grouping)
    more = 0 if kind is BATCHED else 5
    return replace(variant, m=least_m(grouping, rows) + more, grouping=grouping)


# --- what groups say ----------------------------------------------------------------------------


def test_labels_and_ends_say_where_groups_lie() -> None:
    variant, rows = VARIANTS["bf16"], [2, 0, 65, 1]
    labels = grouped_layout(grouped(variant, LABELS, rows, 64), rows)
    assert labels == [0, 0] + [-1] * 62 + [2] * 65 + [-1] * 63 + [3] * 6
    assert grouped_layout(grouped(variant, OFFSETS, rows, 64), rows) == [2, 2, 129, 193]
    assert grouped_layout(grouped(variant, OFFSETS, [0, 2, 3], 1), [0, 2, 3]) == [0, 2, 5]
    assert grouped_layout(grouped(variant, MASKED, rows), rows) == rows
    assert grouped_layout(grouped(variant, BATCHED, [2, 2]), [2, 2]) is None


def test_a_block_belongs_to_the_group_of_its_first_row() -> None:
    problem = replace(VARIANTS["bf16"], m=300, grouping=Grouping(LABELS, 3, 128))
    labels = [1] * 40 + [-1] * 88 + [-1] * 64 + [2] * 64 + [7] * 44
    assert list(spans(problem, labels)) == [Span(1, 0, 64), Span(1, 64, 128, "zeros")]
    labels[128:192], labels[256] = [2] * 64, 0
    assert list(spans(problem, labels))[2:] == [Span(2, 128, 256), Span(0, 256, 300)]


def test_ends_beyond_the_rows_are_cut_and_groups_may_be_empty() -> None:
    problem = replace(VARIANTS["bf16"], m=100, grouping=Grouping(OFFSETS, 4, 16, 0, True))
    assert list(spans(problem, [10, 10, 3, 400])) == [
        Span(0, 0, 10), Span(0, 10, 16, "zeros"), Span(3, 16, 100), Span(3, 100, 100, "zeros"),
    ]  # fmt: skip
    assert list(spans(problem, [0, 0, 0, 0])) == []


def test_counts_are_cut_to_the_rows_there_are() -> None:
    problem = replace(VARIANTS["bf16"], m=8, grouping=Grouping(MASKED, 3))
    computed = [one for one in spans(problem, [-3, 5, 99]) if one.what == "computed"]
    assert computed == [Span(0, 0, 0), Span(1, 0, 5), Span(2, 0, 8)]


def test_rows_that_do_not_fit_are_refused() -> None:
    problem = replace(VARIANTS["bf16"], m=100, grouping=Grouping(OFFSETS, 2, 64))
    with pytest.raises(ArgumentError, match="m must be at least 104"):
        grouped_problems.make(problem, [1, 40])
    with pytest.raises(ArgumentError, match="length must be 2"):
        grouped_problems.make(problem, [1])
    along = replace(VARIANTS_ALONG_K["bf16"], m=8, k=16, grouping=Grouping(ALONG_K, 2))
    with pytest.raises(ArgumentError, match="sum must be at most K = 16"):
        grouped_problems.make(along, [16, 8])
    with pytest.raises(ArgumentError, match="grouping must be a Grouping"):
        grouped_problems.make(VARIANTS["bf16"], [1])


# --- what is drawn ------------------------------------------------------------------------------


def nan_rows(x: torch.Tensor) -> list[int]:
    return x.float().isnan().all(-1).nonzero()[:, 0].tolist()


def test_what_belongs_to_no_group_is_poison(rng: torch.Generator) -> None:
    rows = [2, 0, 5]
    problem = grouped(VARIANTS["1d2d"], OFFSETS, rows, 8)
    t = grouped_problems.make(problem, rows, generator=rng).tensors
    assert t.sfa is not None
    assert nan_rows(t.a) == nan_rows(t.sfa) == [*range(2, 8), *range(13, 18)]
    stacked = grouped(VARIANTS["1d2d"], MASKED, rows)
    t = grouped_problems.make(stacked, rows, generator=rng, row_pad=16).tensors
    assert t.sfa is not None and nan_rows(t.a[0]) == nan_rows(t.sfa[0]) == list(range(2, 10))
    assert t.a.stride(1) == 224 and t.a.stride(0) == 224 * (10 + grouped_problems.GAP)
    behind = t.a.as_strided((3, 12, 224), t.a.stride())
    assert behind[:, 10:].float().isnan().all() and behind[:, :, K:].float().isnan().all()


@pytest.mark.parametrize("layout", grouped_problems.SCALE_LAYOUTS[:-1])
def test_scales_have_their_values_in_every_layout(layout: str, rng: torch.Generator) -> None:
    sf = torch.rand(3, 5, 2, generator=rng)
    found = grouped_problems.lay_out(sf, layout)
    assert torch.equal(found, sf)
    strides = {
        "row_major": (10, 2, 1), "mn_major_aligned": (16, 1, 8), "mn_major_unaligned": (10, 1, 5),
        "strided_view": (20, 4, 2), "groups_inside": (1, 6, 3),
    }  # fmt: skip
    assert found.stride() == strides[layout]


def test_vectors_may_be_flat_and_one_scale_of_all_or_of_each_group(rng: torch.Generator) -> None:
    def shapes(
        name: str, layouts: tuple[str, str], kind: GroupKind = MASKED
    ) -> list[tuple[int, ...]]:
        problem = grouped(VARIANTS[name], kind, [2, 3])
        t = grouped_problems.make(problem, [2, 3], generator=rng, scale_layouts=layouts).tensors
        return [tuple(scale.shape) for scale in (t.sfa, t.sfb) if scale is not None]

    assert shapes("vectors", ("flat", "row_major")) == [(2, 8), (2, N, 1)]
    assert shapes("vectors", ("flat", "flat"), OFFSETS) == [(10,), (2, N)]
    assert shapes("tensor, fast", ("row_major", "flat")) == [(), (2,)]
    assert shapes("tensor, fast", ("flat", "flat"), OFFSETS) == [(), (2,)]


def test_groups_along_k_are_blocks_of_rows_one_after_another(rng: torch.Generator) -> None:
    problem = replace(grouped(VARIANTS_ALONG_K["fp8"], ALONG_K, [32, 0, 160]), k=256)
    t = grouped_problems.make(problem, [32, 0, 160], generator=rng).tensors
    assert t.a.shape == (72, 256) and t.a.is_contiguous()
    flat = t.a.reshape(-1).float()
    assert flat[72 * 192 :].isnan().all() and not flat[: 72 * 192].isnan().any()
    assert t.sfa is not None and t.sfa.shape == (72, 5)
    assert t.sfa.isnan().any(0).tolist() == [False] * 3 + [True] * 2
    mn_major = replace(grouped(VARIANTS_ALONG_K["bf16"], ALONG_K, [32, 0, 160]), k=256)
    t = grouped_problems.make(mn_major, [32, 0, 160], generator=rng).tensors
    assert t.a.stride(0) == 1 and nan_rows(t.a.t()) == list(range(192, 256))


def test_restoring_gives_d_what_it_held(rng: torch.Generator) -> None:
    problem = grouped(VARIANTS_ALONG_K["fp8 reduce"], ALONG_K, [16])
    drawn = grouped_problems.make(problem, [16], generator=rng)
    assert drawn.tensors.c is drawn.tensors.d
    before = drawn.tensors.d.clone()
    drawn.tensors.d.zero_()
    drawn.restore()
    assert torch.equal(drawn.tensors.d, before)


# --- the CPU backend ----------------------------------------------------------------------------


def computed(problem: GemmProblem, rows: Sequence[int], **drawing: Any) -> Drawn:
    drawn = grouped_problems.make(problem, rows, **drawing)
    grouped_judge.call(problem, drawn)
    return drawn


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind, alignment, zeros", GROUPINGS, ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_backend_is_right_for_every_grouping(
    name: str, kind: GroupKind, alignment: int, zeros: bool, exact: bool, rng: torch.Generator
) -> None:
    layouts = grouped_problems.SCALE_LAYOUTS[: 6 if "vectors" in name else 5]
    for index, rows in enumerate(ROW_SETS):
        if kind is BATCHED:
            rows = [7] * len(rows)
        problem = grouped(VARIANTS[name], kind, rows, alignment, zeros)
        layout = layouts[(index + exact) % len(layouts)], layouts[-1 - index]
        drawn = computed(
            problem, rows, generator=rng, exact=exact, scale_layouts=layout, row_pad=16 * exact
        )
        grouped_judge.judge(problem, drawn, exact=exact)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", VARIANTS_ALONG_K)
def test_the_backend_is_right_for_groups_along_k(
    name: str, exact: bool, rng: torch.Generator
) -> None:
    for ks in ([128, 0, 48, 256], [0, 16], [0], [0, 0, 144]):
        problem = grouped(VARIANTS_ALONG_K[name], ALONG_K, ks)
        for told in (problem.k, problem.k + 128):
            one = replace(problem, k=told)
            for layout in ("row_major", "mn_major_unaligned"):
                drawn = computed(
                    one, ks, generator=rng, exact=exact, scale_layouts=(layout, layout)
                )
                grouped_judge.judge(one, drawn, exact=exact)


def test_what_counts_is_the_grouped_layout_when_judged(rng: torch.Generator) -> None:
    problem = grouped(VARIANTS["bf16"], MASKED, [3, 8])
    drawn = computed(problem, [3, 8], generator=rng)
    assert drawn.tensors.grouped_layout is not None
    drawn.tensors.grouped_layout.copy_(torch.tensor([0, 2]))
    drawn.restore()
    grouped_judge.call(problem, drawn)
    grouped_judge.judge(problem, drawn)


# --- the judge ----------------------------------------------------------------------------------


@pytest.fixture
def right(rng: torch.Generator) -> tuple[GemmProblem, Drawn]:
    problem = replace(grouped(VARIANTS["bf16"], OFFSETS, [3, 0, 9], 8, True), m=30)
    return problem, computed(problem, [3, 0, 9], generator=rng)


@pytest.mark.parametrize(
    "row, value, said",
    [
        (2, 99.0, "group 0, rows 0 to 3: WRONG"),
        (16, 99.0, "group 2, rows 8 to 17: WRONG"),
        (16, torch.nan, "1 NaN"),
        (4, 1e-30, "group 0, rows 3 to 8: padding is not zeros"),
        (27, 0.0, "1 rows of no group were written, first row 27"),
    ],
)
def test_a_wrong_row_is_noticed(
    row: int, value: float, said: str, right: tuple[GemmProblem, Drawn]
) -> None:
    problem, drawn = right
    grouped_judge.judge(problem, drawn)
    drawn.tensors.d[row, 7] = value
    with pytest.raises(AssertionError, match=said):
        grouped_judge.judge(problem, drawn)


def test_a_write_between_groups_or_around_d_is_noticed(rng: torch.Generator) -> None:
    problem = grouped(VARIANTS["bf16"], MASKED, [3, 5])
    drawn = computed(problem, [3, 5], generator=rng)
    grouped_judge.judge(problem, drawn)
    drawn.whole[problem.m, 1] = 0.0
    with pytest.raises(AssertionError, match=r"first row 10 of D\[0\]"):
        grouped_judge.judge(problem, drawn)
    drawn.restore()
    drawn.whole.as_strided((1, N + 1), drawn.whole.stride())[0, N] = 0.0
    with pytest.raises(AssertionError, match="outside the"):
        grouped_judge.judge(problem, drawn)


def test_a_bit_is_noticed_in_exact_data(rng: torch.Generator) -> None:
    problem = grouped(VARIANTS["1d1d fp32"], MASKED, [3])
    drawn = computed(problem, [3], generator=rng, exact=True)
    drawn.tensors.d[0, 2, 100] += 2.0**-10
    with pytest.raises(AssertionError, match="group 0, rows 0 to 3"):
        grouped_judge.judge(problem, drawn, exact=True)
