"""Every candidate, and legal configurations beyond them, on shapes that fit none of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest
import torch

import deep_gemm
from deep_gemm import config, reference
from deep_gemm.config import GemmConfig, StoreConfig
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, ROW_1X128
from deep_gemm.testing import poison, problems
from deep_gemm.testing.numerics import (
    Judged,
    assert_bitwise_equal,
    compare,
    reference_and_bound_of,
)

from .gpu_kit import (
    FORCED,
    H200,
    PLAIN,
    SPLIT,
    SWAPPED,
    configuration,
    generator,
    integers,
    judge,
    label,
    load_all,
    normal,
    run,
)

# Beyond the candidates, by warpgroups and CTAs an SM. Tiles of one part, and with 8 to 64 extra
# columns; one and two partial sums; output boxes of 8, 16, 32 and 64 columns.
UNUSUAL = {
    (1, 1): [(64, 8), (64, 24), (64, 40), (64, 72), (64, 80), (64, 160), (64, 192), (128, 96)],
    (2, 1): [(128, 8), (128, 24), (128, 48), (128, 72), (256, 16), (256, 72), (256, 80)],
    (3, 1): [(192, 8), (192, 40), (192, 80), (192, 144)],
    (1, 2): [(64, 72)],
}
# BLOCK_M, BLOCK_N and parts of K: one to four column groups a part, odd numbers of CTAs, parts that
# overlap, more CTAs than parts.
UNUSUAL_SPLIT = {
    (1, 1): [
        (64, 16, 2), (64, 24, 3), (64, 40, 5), (64, 64, 8), (64, 64, 3), (64, 72, 2), (64, 72, 5),
        (64, 80, 4), (64, 96, 3), (64, 136, 3), (64, 136, 8), (64, 144, 4), (64, 192, 4),
    ],
    (2, 1): [(128, 16, 2), (128, 64, 4), (128, 96, 3), (128, 128, 8), (128, 72, 2), (128, 160, 2)],
    (3, 1): [(192, 16, 2), (192, 48, 3)],
    (1, 2): [(64, 16, 2), (64, 48, 3), (64, 64, 2)],
    (2, 2): [(128, 16, 2), (128, 32, 4)],
}  # fmt: skip
# Tokens as columns: fewer than a warp has lanes and more, one wave and two, rows that start in the
# middle of a block of B's scales. K whole and in parts, more of them than column groups too.
UNUSUAL_SWAPPED = {
    (1, 1): [(64, 8), (64, 16), (64, 24), (64, 40), (64, 64), (64, 128), (128, 16)],
    (2, 1): [(128, 8), (128, 64), (128, 128), (256, 32)],
    (3, 1): [(192, 32)],
    (1, 2): [(64, 8), (64, 48)],
    (2, 2): [(128, 24)],
}
CLUSTERS = ((1, 1), (2, 1), (1, 2))
# Clusters beside parts of K for swapped tiles.
SHARING = [((1, 1), parts) for parts in (1, 2, 3, 4, 5, 8)] + [
    ((2, 1), 2),
    ((1, 2), 1),
    ((1, 2), 4),
]
# Output in several slabs, of one, two and three buffers.
SLABS = (
    replace(PLAIN, store=StoreConfig(32, 32, 2)),
    replace(SPLIT, store=StoreConfig(16, 16, 2)),
    replace(SWAPPED, store=StoreConfig(64, 32, 2)),
    replace(configuration(192, 64, 3), store=StoreConfig(16, 16, 3)),
    replace(configuration(256, 128, 2), store=StoreConfig(64, 64, 1)),
    replace(configuration(256, 32, 2, swap_ab=True), store=StoreConfig(64, 32, 1)),
)


def unusual():
    """Yield configurations nobody would choose, shallow and deep; not all of them are legal."""
    for (warpgroups, ctas), tiles in UNUSUAL.items():
        for tile, cluster, stages in product(tiles, CLUSTERS, (2, 3)):
            yield configuration(*tile, warpgroups, cluster, stages, ctas_per_sm=ctas)
    for (warpgroups, ctas), tiles in UNUSUAL_SPLIT.items():
        for (*tile, parts), cluster, deep in product(tiles, CLUSTERS, (False, True)):
            stages = 0 if deep else 2 + parts % 2
            rest = {"split_k": parts, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **rest)
    for (warpgroups, ctas), tiles in UNUSUAL_SWAPPED.items():
        for tile, (cluster, parts), deep in product(tiles, SHARING, (False, True)):
            stages = 0 if deep else 2 + parts % 2
            rest = {"split_k": parts, "swapped": True, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **rest)
    yield from SLABS


LEGAL = (
    c for c in (*config.candidates(H200), *FORCED, *unusual()) if not config.violations(c, H200)
)
CONFIGS = tuple(dict.fromkeys(LEGAL))

# --- forms --------------------------------------------------------------------------------------

BLOCKS, ROWS, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
VECTORS = (PER_CHANNEL, PER_CHANNEL)


def template(*fields: object, **rest: object) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# All candidates of these; of forms beyond them, which differ in one step, every few.
FORMS = {
    "block fp32 read": template(E4M3, E4M3, FP32, *BLOCKS, c_mode=CMode.READ),
    "rows fp32 reduce": template(E4M3, E4M3, FP32, *ROWS, c_mode=CMode.REDUCE),
    "unit": template(E4M3, E5M2, BF16, *NONE),
    "vectors, not promoted": template(E4M3, E4M3, BF16, *VECTORS, promoted=False),
    "int8": template(INT8, INT8, INT32, *NONE),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16 turned, fp32 read": template(BF16, BF16, FP32, *NONE, True, "mn", "mn", "read"),
    "fp16 read": template(FP16, FP16, FP16, *NONE, c_mode=CMode.READ),
}
FEW_OF_FORMS = {
    "block fp16 read": template(E5M2, E4M3, FP16, *BLOCKS, c_mode=CMode.READ),
    "block fp32 reduce": template(E4M3, E4M3, FP32, *BLOCKS, c_mode=CMode.REDUCE),
    "rows": template(E5M2, E5M2, BF16, *ROWS),
    "rows fp16 read": template(E4M3, E4M3, FP16, *ROWS, c_mode=CMode.READ),
    "unit vectors fp32 reduce": template(E4M3, E4M3, FP32, *VECTORS, c_mode=CMode.REDUCE),
    "unit vectors fp16 read": template(E4M3, E4M3, FP16, *VECTORS, c_mode=CMode.READ),
    "int8 reduce": template(INT8, INT8, INT32, *NONE, c_mode=CMode.REDUCE),
    "int8 read": template(INT8, INT8, INT32, *NONE, c_mode=CMode.READ),
    "int8 vectors read": template(INT8, INT8, BF16, *VECTORS, c_mode=CMode.READ),
    "int8 vectors fp32 reduce": template(INT8, INT8, FP32, *VECTORS, c_mode=CMode.REDUCE),
    "fp16 A turned, fp32 reduce": template(FP16, FP16, FP32, *NONE, True, "mn", "k", "reduce"),
    "bf16 B turned, read": template(BF16, BF16, BF16, *NONE, True, "k", "mn", "read"),
}
STEP = 5
# Ragged in every extent; K is several k-blocks and a part, also where it is split over eight CTAs.
SHAPES = ((333, 136, 336), (65, 408, 1296))


def pairs():
    """Yield forms with their configurations."""
    for forms, step in ((FORMS, 1), (FEW_OF_FORMS, STEP)):
        for name, problem in forms.items():
            for one in config.candidates(H200, problem.variant)[::step]:
                yield name, one


PAIRS = tuple(pairs())


@dataclass(frozen=True)
class Case:
    """Tensors, what a call is to make of them, and what D holds before it."""

    problem: GemmProblem
    alpha: float
    beta: float
    drawn: problems.Drawn
    before: torch.Tensor
    judged: Judged
    exact: torch.Tensor | None  # what the CPU backend makes of them, where no sum is rounded


@cache
def cases(form: str, run_seed: int) -> tuple[Case, ...]:
    """Return calls of a form: of data whose sums are exact, and of normal data."""
    rng = generator(run_seed)
    problem = (FORMS | FEW_OF_FORMS)[form]
    return tuple(
        case(replace(problem, m=m, n=n, k=k), exact, rng)
        for (m, n, k), exact in zip(SHAPES, (True, False), strict=True)
    )


def case(problem: GemmProblem, exact: bool, rng: torch.Generator) -> Case:
    """Return one, its scales strided, its rows and those of C and D padded; C in turn in place."""
    layout = "flat_strided" if problem.variant.scaled else "strided_view"
    integer = problem.d_dtype == INT32
    # In place and with beta 1, sums of 4-byte elements are added by the store.
    in_place = not exact and not integer
    drawn = problems.make(
        problem,
        "cuda",
        rng,
        scale_layouts=(layout, layout),
        row_pad=16,
        in_place=in_place,
        exact=exact,
    )
    alpha = 1.0 if integer else -1.5
    beta = 0.5 if problem.c_mode is CMode.READ and not integer else 1.0
    t = drawn.tensors
    judged = reference_and_bound_of(problem, t, alpha, beta, exact_products=exact)
    wanted = None
    if exact or problem.variant.integer:
        wanted = torch.empty_like(t.d)
        reference.gemm(problem, t._replace(d=wanted), alpha, beta)
    return Case(problem, alpha, beta, drawn, t.d.clone(), judged, wanted)


def outcome(one: Case, **options: object) -> torch.Tensor:
    """Call, fail where memory around D was written, and return D, which is used again."""
    t = one.drawn.tensors
    t.d.copy_(one.before)
    if t.c is None or t.c.data_ptr() != t.d.data_ptr():
        poison.nan_fill_(t.d)
    arguments = problems.arguments(one.problem, t) | options
    out = deep_gemm.matmul(**arguments, alpha=one.alpha, beta=one.beta)
    one.drawn.check()
    return out


@pytest.fixture(scope="module")
def kernels_of_forms():
    load_all(one for _, one in PAIRS)


def name_of(value: str | GemmConfig) -> str:
    """Return what a form or a configuration is called in a test's name."""
    return value if isinstance(value, str) else label(value)


@pytest.mark.parametrize("form, forced", PAIRS, ids=name_of)
def test_every_configuration_of_a_form(form, forced, run_seed, kernels_of_forms):
    with config.forced(forced):
        for one in cases(form, run_seed):
            out = outcome(one)
            report = compare(out, *one.judged)
            assert report.ok, f"{one.problem.describe()}: {report}"
            if one.exact is not None:
                assert_bitwise_equal(out, one.exact, "GPU and backend")
        # One cluster walks all tiles; B, where static, is read early.
        first = out.clone()
        with deep_gemm.override(num_sms=forced.cluster_size):
            assert_bitwise_equal(outcome(one, static_b=True), first, "one cluster")


# --- FP8 by blocks ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every_kernel():
    load_all(CONFIGS)


@pytest.mark.parametrize("forced", CONFIGS, ids=label)
def test_every_configuration(forced, seed, every_kernel):
    with config.forced(forced):
        for m, n, k in ((1, 8, 16), (333, 408, 336), (65, 136, 1296)):
            for problem in (normal(m, n, k, seed, row_pad=16), integers(m, n, k, seed)):
                out = run(problem)
                judge(problem, out)
                # One cluster walks all tiles; B, where static, is read early.
                with deep_gemm.override(num_sms=forced.cluster_size):
                    assert_bitwise_equal(run(problem), out, "one cluster")
                    assert_bitwise_equal(run(problem, static_b=True), out, "static B")
