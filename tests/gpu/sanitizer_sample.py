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
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import grouped_judge, grouped_problems, poison, problems

SHAPES = ((1, 8, 16), (65, 72, 208), (133, 200, 336))
LAYOUTS = ("row_major", "mn_major_unaligned", "strided_view")
BLOCKS, ROWS, NONE = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128), (None, None)
VECTORS = (PER_CHANNEL, PER_CHANNEL)


def template(*fields: object, **rest: object) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# Every kind of operands, scales, outputs, orders in memory and ways to add C.
FORMS = (
    template(E4M3, E5M2, FP16, *BLOCKS, c_mode=CMode.READ),
    template(E4M3, E4M3, FP32, *BLOCKS, c_mode=CMode.REDUCE),
    template(E4M3, E4M3, BF16, *ROWS),
    template(E5M2, E4M3, FP32, *ROWS, c_mode=CMode.REDUCE),
    template(E4M3, E4M3, FP32, *NONE, c_mode=CMode.READ),
    template(E4M3, E4M3, BF16, *VECTORS),
    template(E4M3, E4M3, BF16, PER_TENSOR, PER_CHANNEL, promoted=False, c_mode=CMode.READ),
    template(INT8, INT8, INT32, *NONE),
    template(INT8, INT8, INT32, *NONE, c_mode=CMode.REDUCE),
    template(INT8, INT8, BF16, *VECTORS, c_mode=CMode.READ),
    template(BF16, BF16, BF16, *NONE),
    template(BF16, BF16, FP32, *NONE, True, "mn", "mn", "read"),
    template(FP16, FP16, FP16, *NONE, True, "mn", "k", "read"),
    template(FP16, FP16, FP32, *NONE, True, "k", "mn", "reduce"),
    template(E4M3, E4M3, BF16, *BLOCKS, a_major=Major.MN, b_major=Major.MN),  # transposed first
)


# Kinds of groups of rows with what they may be of, and of groups along K.
GROUPS = (
    (template(E4M3, E4M3, BF16, *BLOCKS), Grouping(GroupKind.LABELS, 4, 64)),
    (template(BF16, BF16, BF16, *NONE), Grouping(GroupKind.LABELS, 4, 128)),
    (template(E4M3, E4M3, BF16, *BLOCKS), Grouping(GroupKind.OFFSETS, 4, 1)),
    (template(INT8, INT8, INT32, *NONE), Grouping(GroupKind.OFFSETS, 4, 8, 0, True)),
    (template(E4M3, E4M3, BF16, *BLOCKS), Grouping(GroupKind.MASKED, 4)),
    (template(E4M3, E5M2, BF16, *VECTORS, promoted=False), Grouping(GroupKind.MASKED, 4, 1, 8)),
    (template(BF16, BF16, FP32, *NONE, b_major=Major.MN), Grouping(GroupKind.BATCHED, 4)),
    (template(E4M3, E4M3, FP32, *ROWS, c_mode=CMode.REDUCE), Grouping(GroupKind.ALONG_K, 4)),
    (template(BF16, BF16, FP32, *NONE, True, "mn", "mn"), Grouping(GroupKind.ALONG_K, 4)),
)
GROUP_ROWS, GROUP_KS = [33, 0, 1, 70], [144, 0, 16, 128]


def families() -> list[config.GemmConfig]:
    """Return the widest candidate of every tile height, cluster and way to lay out the product."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.block_m, c.cluster_m, c.cluster_n, c.split_k > 1, c.tile.swap_ab): c
        for c in sorted(config.candidates(device), key=lambda c: c.tile.block_n)
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


def widest(form: GemmProblem, index: int) -> config.GemmConfig:
    """Return the candidate with most registers for sums of, by the index, one kind."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.swap_ab, c.split_k > 1, c.multicast > 1, c.tile.ping_pong): c
        for c in sorted(config.candidates(device, form.form), key=lambda c: c.accumulators)
    }
    return list(chosen.values())[index % len(chosen)]


def call_form(form: GemmProblem, shape: tuple[int, int, int], in_place: bool) -> int:
    """Make one call of a form on tensors without padding; return how many were made."""
    problem = replace(form, m=shape[0], n=shape[1], k=shape[2])
    drawn = problems.make(problem, "cuda", out_pad=0, in_place=in_place)
    factors = (1.0, 1.0) if form.d_dtype == INT32 else (-1.5, 0.5)
    if form.c_mode is CMode.REDUCE:
        factors = factors[0], 1.0
    torch.cuda.synchronize()
    out = deep_gemm.matmul(
        **problems.arguments(problem, drawn.tensors), alpha=factors[0], beta=factors[1]
    )
    drawn.check()
    if not torch.isfinite(out).all() or bool((out == 0x7F7F7F7F).any()):
        raise SystemExit(f"{problem.describe()}: an output element is missing or not finite")
    return 1


def calls_of_groups(form: GemmProblem, grouping: Grouping, index: int) -> int:
    """Call groups by choice and by a wide tile, judge them, and return how many calls were made."""
    if grouping.kind is GroupKind.ALONG_K:
        rows, extents = GROUP_KS, (72, 136, sum(GROUP_KS))
    else:
        rows = [GROUP_ROWS[-1]] * 4 if grouping.kind is GroupKind.BATCHED else GROUP_ROWS
        extents = (grouped_problems.least_m(grouping, rows), 136, 336)
    problem = replace(form, m=extents[0], n=extents[1], k=extents[2], grouping=grouping)
    calls = 0
    for forced in (None, widest(problem, index)):
        if forced is not None and config.legality.problem_conflicts(forced, problem):
            continue
        drawn = grouped_problems.make(problem, rows, "cuda", contiguous=True)
        torch.cuda.synchronize()
        with config.forced(forced) if forced else nullcontext():
            grouped_judge.call(problem, drawn)
            grouped_judge.judge(problem, drawn)
        calls += 1
    return calls


def calls_of_forms() -> int:
    """Call every form by choice and by a wide tile; return how many calls were made."""
    calls = 0
    for index, form in enumerate(FORMS):
        calls += call_form(form, SHAPES[1], in_place=False)
        with config.forced(widest(form, index)):
            calls += call_form(form, SHAPES[2], in_place=form.d_dtype != INT32)
    return calls


def main() -> None:
    """Call the chosen configuration, then every family, on every shape; then every form and kind
    of groups."""
    calls = sum(call(*shape, layout) for shape in SHAPES for layout in LAYOUTS)
    for one in families():
        with config.forced(one):
            calls += sum(call(*shape) for shape in SHAPES)
            # One cluster walks all tiles, and reads of B what it may before it waits.
            with deep_gemm.override(num_sms=one.cluster_size):
                calls += call(*SHAPES[-1], static_b=True)
    calls += calls_of_forms()
    calls += sum(calls_of_groups(*one, index) for index, one in enumerate(GROUPS))
    torch.cuda.synchronize()
    print(f"calls: {calls}")


if __name__ == "__main__":
    main()
