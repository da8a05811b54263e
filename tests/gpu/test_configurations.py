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
from deep_gemm.problem import CMode, GemmProblem, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, ROW_1X128
from deep_gemm.testing import poison, problems
from deep_gemm.testing.numerics import (
    Judged,
    assert_bitwise_equal,
    compare,
    reference_and_bound_of,
)

from .gpu_kit import (
    BASIC,
    FORCED,
    H200,
    SPLIT_K,
    SWAP_AB,
    configuration,
    generator,
    integers,
    judge,
    label,
    load_all,
    normal,
    run,
)

# Beyond the candidates, (BLOCK_M, BLOCK_N) by warpgroups and CTAs an SM: without an N tail, and
# with one of 8 to 64 columns; one and two partial sums; store boxes of 8, 16, 32 and 64 columns.
UNUSUAL = {
    (1, 1): [(64, 8), (64, 24), (64, 40), (64, 72), (64, 80), (64, 160), (64, 192), (128, 96)],
    (2, 1): [(128, 8), (128, 24), (128, 48), (128, 72), (256, 16), (256, 72), (256, 80)],
    (3, 1): [(192, 8), (192, 40), (192, 80), (192, 144)],
    (1, 2): [(64, 72)],
}
# (BLOCK_M, BLOCK_N, split_k): one to four times 8 columns for each CTA to reduce, odd numbers of
# CTAs, parts of a tile that overlap, more CTAs than parts.
UNUSUAL_SPLIT_K = {
    (1, 1): [
        (64, 16, 2), (64, 24, 3), (64, 40, 5), (64, 64, 8), (64, 64, 3), (64, 72, 2), (64, 72, 5),
        (64, 80, 4), (64, 96, 3), (64, 136, 3), (64, 136, 8), (64, 144, 4), (64, 192, 4),
    ],
    (2, 1): [(128, 16, 2), (128, 64, 4), (128, 96, 3), (128, 128, 8), (128, 72, 2), (128, 160, 2)],
    (3, 1): [(192, 16, 2), (192, 48, 3)],
    (1, 2): [(64, 16, 2), (64, 48, 3), (64, 64, 2)],
    (2, 2): [(128, 16, 2), (128, 32, 4)],
}  # fmt: skip
# (BLOCK_M, BLOCK_N) with swap-AB: fewer rows of A than a warp has lanes and more, one slice of 64
# rows and two, tiles that begin in the middle of a 128x128 scale of B. With split-K and without,
# also with more CTAs than parts of 8 rows of A.
UNUSUAL_SWAP_AB = {
    (1, 1): [(8, 64), (16, 64), (24, 64), (40, 64), (64, 64), (128, 64), (16, 128)],
    (2, 1): [(8, 128), (64, 128), (128, 128), (32, 256)],
    (3, 1): [(32, 192)],
    (1, 2): [(8, 64), (48, 64)],
    (2, 2): [(24, 128)],
}
CLUSTERS = ((1, 1), (2, 1), (1, 2))
# Clusters with split_k for tiles with swap-AB.
SWAP_AB_CLUSTERS = [((1, 1), split_k) for split_k in (1, 2, 3, 4, 5, 8)] + [
    ((1, 2), 2),
    ((2, 1), 1),
    ((2, 1), 4),
]
# Several store steps for a tile, in one, two and three store stages.
STORES = (
    replace(BASIC, store=StoreConfig(32, 32, 2)),
    replace(SPLIT_K, store=StoreConfig(16, 16, 2)),
    replace(SWAP_AB, store=StoreConfig(64, 32, 2)),
    replace(configuration(192, 64, 3), store=StoreConfig(16, 16, 3)),
    replace(configuration(256, 128, 2), store=StoreConfig(64, 64, 1)),
    replace(configuration(32, 256, 2, swap_ab=True), store=StoreConfig(64, 32, 1)),
)


def unusual():
    """Yield configurations nobody would choose, of few stages and of as many as fit; not all of
    them are legal."""
    for (warpgroups, ctas), tiles in UNUSUAL.items():
        for tile, cluster, stages in product(tiles, CLUSTERS, (2, 3)):
            yield configuration(*tile, warpgroups, cluster, stages, ctas_per_sm=ctas)
    for (warpgroups, ctas), tiles in UNUSUAL_SPLIT_K.items():
        for (*tile, split_k), cluster, most in product(tiles, CLUSTERS, (False, True)):
            stages = 0 if most else 2 + split_k % 2
            fields = {"split_k": split_k, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **fields)
    for (warpgroups, ctas), tiles in UNUSUAL_SWAP_AB.items():
        for tile, (cluster, split_k), most in product(tiles, SWAP_AB_CLUSTERS, (False, True)):
            stages = 0 if most else 2 + split_k % 2
            fields = {"split_k": split_k, "swap_ab": True, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **fields)
    yield from STORES


LEGAL = (
    c for c in (*config.candidates(H200), *FORCED, *unusual()) if not config.violations(c, H200)
)
CONFIGS = tuple(dict.fromkeys(LEGAL))

# --- variants -----------------------------------------------------------------------------------

SCALED_1D2D, SCALED_1D1D, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
VECTORS = (PER_CHANNEL, PER_CHANNEL)


def template(*fields: object, **rest: object) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# All candidates of these; every few of further variants, which differ in one step.
VARIANTS = {
    "1d2d fp32 read": template(E4M3, E4M3, FP32, *SCALED_1D2D, c_mode=CMode.READ),
    "1d1d fp32 reduce": template(E4M3, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.REDUCE),
    "promoted": template(E4M3, E5M2, BF16, *NONE),
    "vectors, not promoted": template(E4M3, E4M3, BF16, *VECTORS, promoted=False),
    "int8": template(INT8, INT8, INT32, *NONE),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16 mn, fp32 read": template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN, CMode.READ),
    "fp16 read": template(FP16, FP16, FP16, *NONE, c_mode=CMode.READ),
}
FURTHER_VARIANTS = {
    "1d2d fp16 read": template(E5M2, E4M3, FP16, *SCALED_1D2D, c_mode=CMode.READ),
    "1d2d fp32 reduce": template(E4M3, E4M3, FP32, *SCALED_1D2D, c_mode=CMode.REDUCE),
    "1d1d": template(E5M2, E5M2, BF16, *SCALED_1D1D),
    "1d1d fp16 read": template(E4M3, E4M3, FP16, *SCALED_1D1D, c_mode=CMode.READ),
    "promoted vectors fp32 reduce": template(E4M3, E4M3, FP32, *VECTORS, c_mode=CMode.REDUCE),
    "promoted vectors fp16 read": template(E4M3, E4M3, FP16, *VECTORS, c_mode=CMode.READ),
    "int8 reduce": template(INT8, INT8, INT32, *NONE, c_mode=CMode.REDUCE),
    "int8 read": template(INT8, INT8, INT32, *NONE, c_mode=CMode.READ),
    "int8 vectors read": template(INT8, INT8, BF16, *VECTORS, c_mode=CMode.READ),
    "int8 vectors fp32 reduce": template(INT8, INT8, FP32, *VECTORS, c_mode=CMode.REDUCE),
    "fp16 A mn, fp32 reduce": template(
        FP16, FP16, FP32, *NONE, a_major=Major.MN, c_mode=CMode.REDUCE
    ),
    "bf16 B mn, read": template(BF16, BF16, BF16, *NONE, b_major=Major.MN, c_mode=CMode.READ),
}
STEP = 5
# Ragged in every extent; K is several k-blocks and a part, also with split-K by eight.
SHAPES = ((333, 136, 336), (65, 408, 1296))


def pairs():
    """Yield variants with their configurations."""
    for variants, step in ((VARIANTS, 1), (FURTHER_VARIANTS, STEP)):
        for name, problem in variants.items():
            for one in config.candidates(H200, problem.variant)[::step]:
                yield name, one


PAIRS = tuple(pairs())


@dataclass(frozen=True)
class Case:
    """Tensors, the results that a call must give, and the contents of D before it."""

    problem: GemmProblem
    alpha: float
    beta: float
    drawn: problems.Drawn
    before: torch.Tensor
    judged: Judged
    exact: torch.Tensor | None  # the result of the CPU backend, where no sum is rounded


@cache
def cases(variant: str, run_seed: int) -> tuple[Case, ...]:
    """Return calls of a variant: of data whose sums are exact, and of normal data."""
    rng = generator(run_seed)
    problem = (VARIANTS | FURTHER_VARIANTS)[variant]
    return tuple(
        case(replace(problem, m=m, n=n, k=k), exact, rng)
        for (m, n, k), exact in zip(SHAPES, (True, False), strict=True)
    )


def case(problem: GemmProblem, exact: bool, rng: torch.Generator) -> Case:
    """Return a case with strided scales and padded rows; normal data have C in place."""
    layout = "flat_strided" if problem.variant.has_epilogue_scales else "strided_view"
    is_int32 = problem.d_dtype == INT32
    # In place and with beta 1, sums of 4-byte elements are added by the store.
    in_place = not exact and not is_int32
    drawn = problems.make(
        problem,
        "cuda",
        rng,
        scale_layouts=(layout, layout),
        row_pad=16,
        in_place=in_place,
        exact=exact,
    )
    alpha = 1.0 if is_int32 else -1.5
    beta = 0.5 if problem.c_mode is CMode.READ and not is_int32 else 1.0
    t = drawn.tensors
    judged = reference_and_bound_of(problem, t, alpha, beta, exact_products=exact)
    wanted = None
    if exact or problem.variant.is_integer:
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
def kernels_of_variants():
    load_all(one for _, one in PAIRS)


def name_of(value: str | GemmConfig) -> str:
    """Return what a variant or a configuration is called in a test's name."""
    return value if isinstance(value, str) else label(value)


@pytest.mark.parametrize("variant, forced", PAIRS, ids=name_of)
def test_every_configuration_of_a_variant(variant, forced, run_seed, kernels_of_variants):
    with config.forced(forced):
        for one in cases(variant, run_seed):
            out = outcome(one)
            report = compare(out, *one.judged)
            assert report.ok, f"{one.problem.describe()}: {report}"
            if one.exact is not None:
                assert_bitwise_equal(out, one.exact, "GPU and backend")
        # One cluster computes all tiles; B, where static, is read early.
        first = out.clone()
        with deep_gemm.override(num_sms=forced.cluster_size):
            assert_bitwise_equal(outcome(one, static_b=True), first, "one cluster")


# --- FP8 with 1x128 and 128x128 scales ----------------------------------------------------------


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
                # One cluster computes all tiles; B, where static, is read early.
                with deep_gemm.override(num_sms=forced.cluster_size):
                    assert_bitwise_equal(run(problem), out, "one cluster")
                    assert_bitwise_equal(run(problem, static_b=True), out, "static B")
