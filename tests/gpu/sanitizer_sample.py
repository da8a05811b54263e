"""A ragged sample of calls to run under compute-sanitizer; prints how many it made.

Poisoned paddings and canaries are checked here too: memcheck alone does not see an access that
stays inside an allocation.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch

import deep_gemm
from deep_gemm import config
from deep_gemm.config.legality import problem_conflicts
from deep_gemm.config.registers import accumulators
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import grouped_judge, grouped_problems, poison, problems

SHAPES = ((1, 8, 16), (65, 72, 208), (133, 200, 336))
LAYOUTS = ("row_major", "mn_major_unaligned", "strided_view")
SCALED_1D2D, SCALED_1D1D, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
VECTORS = (PER_CHANNEL, PER_CHANNEL)


def template(*fields: object, **rest: object) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# Every kind of operands, scales, outputs, majors and ways to add C.
VARIANTS = (
    template(E4M3, E5M2, FP16, *SCALED_1D2D, c_mode=CMode.READ),
    template(E4M3, E4M3, FP32, *SCALED_1D2D, c_mode=CMode.REDUCE),
    template(E4M3, E4M3, BF16, *SCALED_1D1D),
    template(E5M2, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.REDUCE),
    template(E4M3, E4M3, FP32, *NONE, c_mode=CMode.READ),
    template(E4M3, E4M3, BF16, *VECTORS),
    template(E4M3, E4M3, BF16, PER_TENSOR, PER_CHANNEL, promoted=False, c_mode=CMode.READ),
    template(INT8, INT8, INT32, *NONE),
    template(INT8, INT8, INT32, *NONE, c_mode=CMode.REDUCE),
    template(INT8, INT8, BF16, *VECTORS, c_mode=CMode.READ),
    template(BF16, BF16, BF16, *NONE),
    template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN, CMode.READ),
    template(FP16, FP16, FP16, *NONE, True, Major.MN, Major.K, CMode.READ),
    template(FP16, FP16, FP32, *NONE, True, Major.K, Major.MN, CMode.REDUCE),
    # Transposed first.
    template(E4M3, E4M3, BF16, *SCALED_1D2D, a_major=Major.MN, b_major=Major.MN),
)


# Kinds of groups of rows, and groups along K, each with variants that it goes with.
GROUPS = (
    (template(E4M3, E4M3, BF16, *SCALED_1D2D), Grouping(GroupKind.LABELS, 4, 64)),
    (template(BF16, BF16, BF16, *NONE), Grouping(GroupKind.LABELS, 4, 128)),
    (template(E4M3, E4M3, BF16, *SCALED_1D2D), Grouping(GroupKind.OFFSETS, 4, 1)),
    (template(INT8, INT8, INT32, *NONE), Grouping(GroupKind.OFFSETS, 4, 8, 0, True)),
    (template(E4M3, E4M3, BF16, *SCALED_1D2D), Grouping(GroupKind.MASKED, 4)),
    (template(E4M3, E5M2, BF16, *VECTORS, promoted=False), Grouping(GroupKind.MASKED, 4, 1, 8)),
    (template(BF16, BF16, FP32, *NONE, b_major=Major.MN), Grouping(GroupKind.BATCHED, 4)),
    (template(E4M3, E4M3, FP32, *SCALED_1D1D, c_mode=CMode.REDUCE), Grouping(GroupKind.ALONG_K, 4)),
    (template(BF16, BF16, FP32, *NONE, True, Major.MN, Major.MN), Grouping(GroupKind.ALONG_K, 4)),
)
GROUP_ROWS, GROUP_KS = [33, 0, 1, 70], [144, 0, 16, 128]


def families() -> list[config.GemmConfig]:
    """Return the candidate of the largest mma_n for every mma_m, cluster, with split-K and without,
    with swap-AB and without."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.mma_m, c.cluster_m, c.cluster_n, c.split_k > 1, c.tile.swap_ab): c
        for c in sorted(config.candidates(device), key=lambda c: c.tile.mma_n)
    }
    return list(chosen.values())


def call(m: int, n: int, k: int, layout: str = "row_major", static_b: bool = False) -> int:
    """Make one call whose tensors end where their allocations end; return how many were made."""
    a, sfa, b, sfb = problems.make_block_scaled(m, n, k, "cuda", sfa_layout=layout)
    out = poison.nan_fill_(torch.empty(m, n, dtype=torch.bfloat16, device="cuda"))
    torch.cuda.synchronize()
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out, static_b=static_b)
    if not torch.isfinite(out).all():
        raise SystemExit(f"{(m, n, k, layout)}: an output element is missing or not finite")
    return 1


def largest(problem: GemmProblem, index: int) -> config.GemmConfig:
    """Return the candidate with most accumulators of one kind, which the index picks."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.swap_ab, c.split_k > 1, c.multicast > 1, c.tile.ping_pong): c
        for c in sorted(config.candidates(device, problem.variant), key=accumulators)
    }
    return list(chosen.values())[index % len(chosen)]


def call_variant(variant: GemmProblem, shape: tuple[int, int, int], in_place: bool) -> int:
    """Make one call of a variant on tensors without padding; return how many were made."""
    problem = replace(variant, m=shape[0], n=shape[1], k=shape[2])
    drawn = problems.make(problem, "cuda", out_pad=0, in_place=in_place)
    factors = (1.0, 1.0) if variant.d_dtype == INT32 else (-1.5, 0.5)
    if variant.c_mode is CMode.REDUCE:
        factors = factors[0], 1.0
    torch.cuda.synchronize()
    out = deep_gemm.matmul(
        **problems.arguments(problem, drawn.tensors), alpha=factors[0], beta=factors[1]
    )
    drawn.check()
    if not torch.isfinite(out).all() or bool((out == 0x7F7F7F7F).any()):
        raise SystemExit(f"{problem.describe()}: an output element is missing or not finite")
    return 1


def call_groups(variant: GemmProblem, grouping: Grouping, index: int) -> int:
    """Call groups by choice and with a large tile, judge them; return how many calls were made."""
    if grouping.kind is GroupKind.ALONG_K:
        rows, extents = GROUP_KS, (72, 136, sum(GROUP_KS))
    else:
        rows = [GROUP_ROWS[-1]] * 4 if grouping.kind is GroupKind.BATCHED else GROUP_ROWS
        extents = (grouped_problems.least_m(grouping, rows), 136, 336)
    problem = replace(variant, m=extents[0], n=extents[1], k=extents[2], grouping=grouping)
    calls = 0
    for forced in (None, largest(problem, index)):
        if forced is not None and problem_conflicts(forced, problem):
            continue
        drawn = grouped_problems.make(problem, rows, "cuda", contiguous=True)
        torch.cuda.synchronize()
        with config.forced(forced) if forced else nullcontext():
            grouped_judge.call(problem, drawn)
            grouped_judge.judge(problem, drawn)
        calls += 1
    return calls


def call_variants() -> int:
    """Call every variant by choice and with a large tile; return how many calls were made."""
    calls = 0
    for index, variant in enumerate(VARIANTS):
        calls += call_variant(variant, SHAPES[1], in_place=False)
        with config.forced(largest(variant, index)):
            calls += call_variant(variant, SHAPES[2], in_place=variant.d_dtype != INT32)
    return calls


def main() -> None:
    """Call the chosen configuration, then every family, on every shape; then every variant and
    kind of groups."""
    calls = sum(call(*shape, layout) for shape in SHAPES for layout in LAYOUTS)
    for one in families():
        with config.forced(one):
            calls += sum(call(*shape) for shape in SHAPES)
            # One cluster computes all tiles, and loads B before the dependency wait where it may.
            with deep_gemm.override(num_sms=one.cluster_size):
                calls += call(*SHAPES[-1], static_b=True)
    calls += call_variants()
    calls += sum(call_groups(*one, index) for index, one in enumerate(GROUPS))
    torch.cuda.synchronize()
    print(f"calls: {calls}")


if __name__ == "__main__":
    main()
