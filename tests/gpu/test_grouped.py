"""Grouped products on the GPU: every kind of groups, variant and adversarial set of rows.

A hang of the device ends the process with a traceback: see `watchdog`.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError, config
from deep_gemm.config import GemmConfig
from deep_gemm.config.legality import problem_conflicts
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import grouped_judge, grouped_problems
from deep_gemm.testing.grouped_problems import SCALE_LAYOUTS, Drawn, least_m
from deep_gemm.testing.numerics import assert_bitwise_equal

from .gpu_kit import H200, generator, label, load_all

LIMIT_S = 180  # for one test, kernels compiled on the way included

SCALED_1D2D, SCALED_1D1D, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
VECTORS = (PER_CHANNEL, PER_CHANNEL)


def template(*fields: object, **rest: object) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


VARIANTS = {
    "1d2d": template(E4M3, E4M3, BF16, *SCALED_1D2D),
    "1d2d, B mn": template(E4M3, E4M3, BF16, *SCALED_1D2D, b_major=Major.MN),
    "1d1d": template(E4M3, E5M2, FP32, *SCALED_1D1D),
    "vectors": template(E4M3, E4M3, BF16, *VECTORS),
    "vectors, fast": template(E4M3, E4M3, BF16, *VECTORS, promoted=False),
    "tensor, fast": template(E5M2, E4M3, FP16, PER_TENSOR, PER_TENSOR, promoted=False),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16, B mn": template(BF16, BF16, FP32, *NONE, b_major=Major.MN),
    "fp16": template(FP16, FP16, FP16, *NONE),
    "int8": template(INT8, INT8, INT32, *NONE),
    "int8, vectors": template(INT8, INT8, BF16, *VECTORS),
}
ALONG_K = {
    "fp8": template(E4M3, E4M3, FP32, *SCALED_1D1D),
    "fp8 in place": template(E4M3, E5M2, FP32, *SCALED_1D1D, c_mode=CMode.REDUCE),
    "fp8 with C": template(E4M3, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.READ),
    "bf16": template(BF16, BF16, FP32, *NONE, a_major=Major.MN, b_major=Major.MN),
    "bf16 in place": template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN, CMode.REDUCE),
    "bf16 with C": template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN, CMode.READ),
    "fp16": template(FP16, FP16, FP32, *NONE, a_major=Major.MN, b_major=Major.MN),
}
ROW_SETS = {
    "one row": [1],
    "one row of many groups": [1] * 40,
    "empty here and there": [0, 5, 0, 70, 0, 0],
    "all empty": [0, 0, 0],
    "skewed": [4000, 0, 1],
    "odd numbers of tiles": [65, 129, 193, 320],
    "unaligned": [7, 33, 100, 1, 250],
}
K_SETS = {
    "alike": [256, 256, 256],
    "one short": [16],
    "empty here and there": [0, 128, 0, 0, 48, 0],
    "all empty": [0, 0],
    "skewed": [2048, 0, 16],
    "unaligned": [80, 1008, 144],
    "many": [128] * 33,
}
LABELS, OFFSETS, MASKED = GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED
BATCHED = GroupKind.BATCHED
# Kind, alignment, whether rows between groups become zeros.
KINDS = (
    (LABELS, 64, False), (LABELS, 128, False),
    (OFFSETS, 1, False), (OFFSETS, 8, True), (OFFSETS, 64, False), (OFFSETS, 128, True),
    (MASKED, 1, False), (BATCHED, 1, False),
)  # fmt: skip
Kind = tuple[GroupKind, int, bool]
# (N, K), which cases take in rotation: parts of tiles and of k-blocks, and whole ones.
EXTENTS = ((136, 1000), (576, 208), (2112, 512), (24, 1296), (408, 16))


def grouped(
    variant: GemmProblem,
    kind: GroupKind,
    rows: Sequence[int],
    alignment: int = 1,
    zeros: bool = False,
) -> GemmProblem:
    """Return a problem that holds groups of these rows, and five rows more, or along K 128."""
    grouping = Grouping(kind, len(rows), alignment, 0, zeros)
    if kind is GroupKind.ALONG_K:
        return replace(variant, k=sum(rows) + 128, grouping=grouping)
    more = 0 if kind is BATCHED else 5
    return replace(variant, m=least_m(grouping, rows) + more, grouping=grouping)


def case(variant: str, rows: str, kind: Kind) -> tuple[GemmProblem, list[int]]:
    """Return a problem and the rows of its groups; N and K rotate."""
    index = list(VARIANTS).index(variant) + list(ROW_SETS).index(rows) + KINDS.index(kind)
    n, k = EXTENTS[index % len(EXTENTS)]
    counts = ROW_SETS[rows]
    if kind[0] is BATCHED:
        counts = [min(max(counts), 300)] * len(counts)
    return grouped(replace(VARIANTS[variant], n=n, k=k), kind[0], counts, *kind[1:]), counts


CASES = tuple(product(VARIANTS, ROW_SETS, KINDS))


def case_along_k(variant: str, extents: str) -> tuple[GemmProblem, list[int]]:
    """Return a problem and the extents of its groups; M and N rotate."""
    index = list(ALONG_K).index(variant) + list(K_SETS).index(extents)
    m, n = ((200, 136), (65, 576), (128, 264), (8, 2112), (1, 16))[index % 5]
    if ALONG_K[variant].a_major is Major.MN:
        m = max(8, m)
    ks = K_SETS[extents]
    return grouped(replace(ALONG_K[variant], m=m, n=n), GroupKind.ALONG_K, ks), ks


@pytest.fixture(scope="session")
def terminal(pytestconfig: pytest.Config):
    """Return a file on the process's own standard error, which pytest captures."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        own = os.dup(2)
    with os.fdopen(own, "w") as file:
        yield file


@pytest.fixture(autouse=True)
def watchdog(terminal):
    """End the process, with every thread's traceback, where a test takes longer than LIMIT_S."""
    faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=terminal)
    yield
    faulthandler.cancel_dump_traceback_later()


def configs_of(problems: Sequence[GemmProblem]) -> set[GemmConfig]:
    """Return what is chosen for problems; an 8-bit B that is MN-major is copied first."""
    k_major = {
        replace(one, b_major=Major.K) if one.b_dtype.bytes == 1 else one
        for one in problems
        if 0 not in (one.m, one.n, one.k)
    }
    # C is first copied into D, to which the store then adds.
    reducing = (
        replace(one, c_mode=CMode.REDUCE) if one.c_mode is CMode.READ else one for one in k_major
    )
    return {config.select(one, H200) for one in reducing}


@pytest.fixture(scope="module")
def chosen_kernels():
    problems = [case(*one)[0] for one in CASES]
    problems += [case_along_k(*one)[0] for one in product(ALONG_K, K_SETS)]
    load_all(configs_of(problems))


def judged(problem: GemmProblem, drawn: Drawn, exact: bool = False) -> torch.Tensor:
    """Call on what D held before, judge, and return a copy of D with what lies between groups."""
    drawn.restore()
    grouped_judge.call(problem, drawn)
    grouped_judge.judge(problem, drawn, exact=exact)
    return drawn.whole.clone()


def layouts_of(problem: GemmProblem, index: int) -> tuple[str, str]:
    """Return layouts of scales, which rotate with the index; only vectors have "flat"."""
    flat = problem.scale_a == PER_CHANNEL
    layouts = SCALE_LAYOUTS if flat else SCALE_LAYOUTS[:-1]
    return layouts[index % len(layouts)], layouts[(index // 2 + 1) % len(layouts)]


def name_of(variant: str, rows: str, kind: Kind) -> str:
    """Return the name of a case."""
    return f"{variant}-{rows}-{kind[0]}-{kind[1]}"


# --- every variant, kind and set of rows --------------------------------------------------------


@pytest.mark.parametrize("one", CASES, ids=lambda one: name_of(*one))
def test_groups_of_rows(one, seed, chosen_kernels):
    problem, rows = case(*one)
    index = CASES.index(one)
    for exact in (False, True):
        drawn = grouped_problems.make(
            problem, rows, "cuda", generator(seed), exact=exact, row_pad=16 * (index % 2),
            scale_layouts=layouts_of(problem, index), contiguous=exact,
        )  # fmt: skip
        judged(problem, drawn, exact)


@pytest.mark.parametrize("extents", K_SETS)
@pytest.mark.parametrize("variant", ALONG_K)
def test_groups_along_k(variant, extents, seed, chosen_kernels):
    problem, ks = case_along_k(variant, extents)
    for index, exact in enumerate((False, True)):
        for told in (sum(ks), problem.k):  # what lies behind the groups is not theirs
            told_problem = replace(problem, k=max(told, 16))
            drawn = grouped_problems.make(
                told_problem, ks, "cuda", generator(seed), exact=exact, contiguous=exact,
                scale_layouts=(SCALE_LAYOUTS[index], SCALE_LAYOUTS[2 + index]),
            )  # fmt: skip
            judged(told_problem, drawn, exact)


# --- few rows in a stack ------------------------------------------------------------------------


@pytest.mark.parametrize("max_m", [1, 8, 16, 32, 96, 200])
@pytest.mark.parametrize("variant", ["1d2d", "bf16", "int8, vectors"])
def test_stacks_of_few_rows(variant, max_m, seed):
    counts = [0, max_m, 1, max_m // 2, max_m]
    problem = replace(VARIANTS[variant], m=max_m, n=264, k=400, grouping=Grouping(MASKED, 5))
    for hint in (0, 1, max_m, 1 << 20):
        hinted = replace(problem, grouping=replace(problem.grouping, expected_m=hint))
        for contiguous in (False, True):
            drawn = grouped_problems.make(
                hinted, counts, "cuda", generator(seed), exact=True, contiguous=contiguous
            )
            judged(hinted, drawn, exact=True)


def test_counts_beyond_the_rows_and_below_zero_are_cut(seed):
    problem = replace(VARIANTS["1d2d"], m=40, n=136, k=256, grouping=Grouping(MASKED, 3))
    drawn = grouped_problems.make(problem, [40, 40, 40], "cuda", generator(seed), exact=True)
    drawn.tensors.grouped_layout.copy_(torch.tensor([-5, 41, 1 << 30]))
    judged(problem, drawn, exact=True)


@pytest.mark.parametrize("expected_m", [0, 1, 64, 1 << 20, -3])
def test_what_is_expected_changes_no_value(expected_m, seed):
    rows = [3, 0, 70, 128]
    problem = replace(VARIANTS["1d2d"], m=128, n=576, k=512, grouping=Grouping(MASKED, 4))
    drawn = grouped_problems.make(problem, rows, "cuda", generator(seed), exact=True)
    t = drawn.tensors
    deep_gemm.m_grouped_fp8_gemm_nt_masked(
        (t.a, t.sfa), (t.b, t.sfb), t.d, t.grouped_layout, expected_m
    )
    grouped_judge.judge(problem, drawn, exact=True)


# --- contents of the grouped layout -------------------------------------------------------------


def test_labels_with_a_long_tail_of_none(seed):
    grouping = Grouping(LABELS, 4, 128)
    rows = [130, 1, 0, 256]
    problem = replace(VARIANTS["1d2d"], n=576, k=512, m=least_m(grouping, rows), grouping=grouping)
    problem = replace(problem, m=problem.m + 10240)
    drawn = grouped_problems.make(problem, rows, "cuda", generator(seed), exact=True)
    judged(problem, drawn, exact=True)


@pytest.mark.parametrize("alignment", [64, 128])
@pytest.mark.parametrize("m", [1, 63, 64, 65, 129, 300])
def test_labels_of_any_number_of_rows(m, alignment, seed):
    """Rows end inside a block, groups come back, blocks name none or a group there is not."""
    problem = replace(VARIANTS["1d2d"], m=m, n=136, k=384, grouping=Grouping(LABELS, 3, alignment))
    drawn = grouped_problems.make(problem, [m, 0, 0], "cuda", generator(seed), exact=True)
    for firsts in ([2, 0, 2, 1, 1], [-1, 1, 0, -7, 2], [1, 3, 0, 1 << 30, 1]):
        labels = torch.tensor(firsts).repeat_interleave(alignment)[:m]
        if alignment == 128:
            labels[64:128] = -1  # half a block
        drawn.tensors.grouped_layout.copy_(labels)
        judged(problem, drawn, exact=True)


@pytest.mark.parametrize("alignment, zeros", [(1, False), (16, True), (128, True)])
def test_ends_of_any_value(alignment, zeros, seed):
    """Ends beyond M are cut, groups that end before they begin are empty."""
    grouping = Grouping(OFFSETS, 5, alignment, 0, zeros)
    problem = replace(VARIANTS["bf16"], m=600, n=136, k=200, grouping=grouping)
    drawn = grouped_problems.make(problem, [600, 0, 0, 0, 0], "cuda", generator(seed), exact=True)
    for ends in (
        [0] * 5,
        [5, 300, 300, 301, 9999],
        [600] * 5,
        [-4, 1, 1, 130, 131],
        [10, 3, 3, 3, 3],
    ):
        drawn.tensors.grouped_layout.copy_(torch.tensor(ends))
        judged(problem, drawn, exact=True)


# --- graphs, streams, repeats -------------------------------------------------------------------

# Kinds with all rows, or all of K, drawn for the first group, and later contents of the layout.
CHANGES = {
    LABELS: (
        Grouping(LABELS, 4, 64),
        [[0] * 6, [3, -1, 0, 0, 2, 2], [-1] * 6, [1] * 6],
    ),
    OFFSETS: (
        Grouping(OFFSETS, 4),
        [[384, 384, 384, 384], [1, 2, 200, 384], [0, 0, 0, 9]],
    ),
    MASKED: (
        Grouping(MASKED, 4),
        [[384] * 4, [0, 384, 1, 65], [0] * 4, [64, 128, 129, 17]],
    ),
    GroupKind.ALONG_K: (
        Grouping(GroupKind.ALONG_K, 4),
        [[512, 0, 0, 0], [0, 128, 0, 384], [128] * 4, [0] * 4],
    ),
}


def changing(
    kind: GroupKind, rng: torch.Generator
) -> tuple[GemmProblem, Drawn, list[torch.Tensor]]:
    """Return a problem, its tensors and further contents of its grouped layout."""
    grouping, contents = CHANGES[kind]
    if kind is GroupKind.ALONG_K:
        variant, first = ALONG_K["fp8 in place"], [512, 0, 0, 0]
        problem = replace(variant, m=136, n=264, k=512, grouping=grouping)
    else:
        first = [384] * 4 if kind is MASKED else [384, 0, 0, 0]
        problem = replace(VARIANTS["1d2d"], m=384, n=264, k=400, grouping=grouping)
    drawn = grouped_problems.make(problem, first, "cuda", rng, exact=True)
    tensors = [torch.tensor(one, dtype=torch.int32, device="cuda") for one in contents]
    if kind is LABELS:
        tensors = [one.repeat_interleave(grouping.alignment) for one in tensors]
    return problem, drawn, tensors


@pytest.mark.parametrize("kind", CHANGES, ids=str)
def test_a_replay_takes_the_grouped_layout_of_that_moment(kind, seed):
    problem, drawn, contents = changing(kind, generator(seed))
    grouped_judge.call(problem, drawn)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grouped_judge.call(problem, drawn)
    for held in (*contents, contents[0]):
        drawn.restore()
        drawn.tensors.grouped_layout.copy_(held)
        graph.replay()
        grouped_judge.judge(problem, drawn, exact=True)


@pytest.mark.parametrize("kind", CHANGES, ids=str)
def test_a_second_stream(kind, seed):
    problem, drawn, contents = changing(kind, generator(seed))
    stream = torch.cuda.Stream()
    for held in contents:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            drawn.restore()
            drawn.tensors.grouped_layout.copy_(held)
            grouped_judge.call(problem, drawn)
        stream.synchronize()
        grouped_judge.judge(problem, drawn, exact=True)


def check_repeats(problem: GemmProblem, drawn: Drawn) -> None:
    """Fail unless twenty calls more leave the bits of a first one, which is judged."""
    first = judged(problem, drawn)
    for _ in range(20):
        drawn.restore()
        grouped_judge.call(problem, drawn)
        assert_bitwise_equal(drawn.whole, first, "a repeated call")


@pytest.mark.parametrize("variant", ["1d2d", "vectors, fast", "bf16"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_equal_calls_give_equal_bits(variant, kind, seed):
    rows = [90] * 4 if kind[0] is BATCHED else [90, 0, 1, 200]
    problem = grouped(replace(VARIANTS[variant], n=2112, k=1000), kind[0], rows, *kind[1:])
    check_repeats(problem, grouped_problems.make(problem, rows, "cuda", generator(seed)))


@pytest.mark.parametrize("variant", ["fp8 in place", "bf16"])
def test_equal_calls_along_k_give_equal_bits(variant, seed):
    ks = [400, 0, 16, 1024]
    problem = grouped(replace(ALONG_K[variant], m=264, n=576), GroupKind.ALONG_K, ks)
    check_repeats(problem, grouped_problems.make(problem, ks, "cuda", generator(seed)))


# --- the host -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [[512, 0, 0], [0, 256, 256], [640, 0, 0]])
def test_the_host_list_of_extents_counts_by_its_sum_alone(host, seed):
    ks = [128, 0, 384]
    for variant in ("fp8 in place", "fp8 with C", "bf16 in place"):
        problem = replace(
            ALONG_K[variant], m=72, n=136, k=sum(host), grouping=Grouping(GroupKind.ALONG_K, 3)
        )
        drawn = grouped_problems.make(
            problem, ks, "cuda", generator(seed), exact=True, contiguous=True
        )
        t = drawn.tensors
        if t.sfa is None:
            a, b = t.a.t().contiguous(), t.b.t().contiguous()
            deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, t.d, host, t.grouped_layout, t.c)
        else:
            a, b = (t.a.reshape(-1), t.sfa), (t.b.reshape(-1), t.sfb)
            deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, t.d, host, t.grouped_layout, t.c)
        grouped_judge.judge(problem, drawn, exact=True)


def test_a_tensor_on_the_host_is_refused_before_anything_is_written(seed):
    problem = replace(VARIANTS["1d2d"], m=64, n=136, k=256, grouping=Grouping(MASKED, 2))
    drawn = grouped_problems.make(problem, [3, 64], "cuda", generator(seed))
    t = drawn.tensors
    with pytest.raises(ArgumentError, match="device must be cuda:0, got cpu"):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(
            (t.a, t.sfa), (t.b, t.sfb), t.d, t.grouped_layout.cpu(), 64
        )
    drawn.check()
    assert_bitwise_equal(drawn.whole, drawn.before, "D")


def test_nothing_to_do_is_done():
    counts = torch.zeros(8, dtype=torch.int32, device="cuda")
    a = torch.zeros(8, 0, 512, dtype=torch.bfloat16, device="cuda")
    b = torch.zeros(8, 136, 512, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(8, 0, 136, dtype=torch.bfloat16, device="cuda")
    deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, out, counts, 0)
    x = torch.zeros(224, 0, dtype=torch.bfloat16, device="cuda")
    w = torch.zeros(4, 256, 0, dtype=torch.bfloat16, device="cuda")
    y = deep_gemm.grouped_matmul(x, w, offsets=counts[:4], alignment=1)
    assert y.shape == (224, 256) and bool((y == 0).all())


# --- every family of configurations -------------------------------------------------------------

FORCED_VARIANTS = {
    **{f"{name}-{kind}": (VARIANTS[name], kind, alignment)
       for name in ("1d2d", "bf16", "vectors, fast")
       for kind, alignment in ((LABELS, 128), (LABELS, 64), (OFFSETS, 1), (MASKED, 1))},
    "1d1d-offsets": (VARIANTS["1d1d"], OFFSETS, 1),
    "bf16, B mn-masked": (VARIANTS["bf16, B mn"], MASKED, 1),
    "1d2d-batched": (VARIANTS["1d2d"], BATCHED, 1),
    "int8-offsets": (VARIANTS["int8"], OFFSETS, 8),
    "fp8-k": (ALONG_K["fp8 in place"], GroupKind.ALONG_K, 1),
    "bf16-k": (ALONG_K["bf16 in place"], GroupKind.ALONG_K, 1),
}  # fmt: skip
FORCED_ROWS, FORCED_KS = [0, 1, 70, 33, 0, 201], [144, 0, 16, 640]


def forced_problem(name: str) -> tuple[GemmProblem, list[int]]:
    """Return a problem, ragged in every extent, and the rows of its groups."""
    variant, kind, alignment = FORCED_VARIANTS[name]
    if kind is GroupKind.ALONG_K:
        return grouped(replace(variant, m=200, n=408), kind, FORCED_KS), FORCED_KS
    rows = [77] * 5 if kind is BATCHED else FORCED_ROWS
    return grouped(replace(variant, n=408, k=1296), kind, rows, alignment), rows


def families(problem: GemmProblem) -> list[GemmConfig]:
    """Return a candidate of every BLOCK_M, cluster and split_k, with swap-AB and ping-pong and
    without."""
    found = {
        (c.tile.block_m, c.tile.swap_ab, c.cluster_m, c.cluster_n, c.split_k, c.tile.ping_pong): c
        for c in sorted(config.candidates(H200, problem.variant), key=lambda c: c.tile.mma_n)
    }
    return list(found.values())


def forced_pairs() -> Iterator[tuple[str, GemmConfig]]:
    """Yield variants with one configuration of each family."""
    for name in FORCED_VARIANTS:
        for one in families(forced_problem(name)[0]):
            yield name, one


PAIRS = tuple(forced_pairs())


@pytest.fixture(scope="module")
def forced_kernels():
    load_all(one for name, one in PAIRS if not problem_conflicts(one, forced_problem(name)[0]))


@cache
def forced_case(name: str, run_seed: int) -> Drawn:
    """Return the tensors of a variant, whose sums are exact."""
    problem, rows = forced_problem(name)
    return grouped_problems.make(problem, rows, "cuda", generator(run_seed), exact=True)


def test_every_family_is_there():
    """Tiles of 64 to 256 rows, both clusters, split-K by 2 and 4, swap-AB, ping-pong."""
    found = [one for _, one in PAIRS]
    assert {64, 128, 192, 256} <= {c.tile.block_m for c in found if not c.tile.swap_ab}
    assert {8, 16, 32} <= {c.tile.block_m for c in found if c.tile.swap_ab}
    assert {(1, 1), (2, 1), (1, 2)} <= {(c.cluster_m, c.cluster_n) for c in found}
    assert {1, 2, 4} <= {c.split_k for c in found}
    assert any(c.tile.ping_pong for c in found)


@pytest.mark.parametrize(
    "name, forced", PAIRS, ids=lambda one: one if isinstance(one, str) else label(one)
)
def test_every_family_of_configurations(name, forced, run_seed, forced_kernels):
    problem, drawn = forced_problem(name)[0], forced_case(name, run_seed)
    with config.forced(forced):
        if problem_conflicts(forced, problem):
            with pytest.raises(UnsupportedError, match="labels change every"):
                grouped_judge.call(problem, drawn)
            return
        first = judged(problem, drawn, exact=True)
        # One cluster computes all tiles; static_b changes no bit.
        with deep_gemm.override(num_sms=forced.cluster_size):
            drawn.restore()
            grouped_judge.call(replace(problem, static_b=True), drawn)
        assert_bitwise_equal(drawn.whole, first, "one cluster")
