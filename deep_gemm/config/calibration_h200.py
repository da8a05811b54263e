"""Measured cycles and fitted constants of the cost model.

Fitted to sweeps (benchmarks/sweep.py; NVIDIA H200, CUDA 13.0, 2026-11-29); docs/findings.md says
how well. Tiles are (BLOCK_M, BLOCK_N), or (mma_m, mma_n) where that is said.
"""

from __future__ import annotations

from typing import NamedTuple

# SM cycles of one k-block with its operands in shared memory: promoted, unscaled or 1D2D.
PROMOTED_CYCLES = {
    (64, 16): 127, (64, 32): 199, (64, 48): 225, (64, 64): 198,
    (64, 96): 280, (64, 128): 265, (64, 136): 290, (64, 144): 290,
    (128, 64): 270, (128, 96): 470, (128, 128): 530,
    (128, 136): 560, (128, 144): 640, (128, 160): 715, (128, 192): 1100,
    (192, 96): 690, (192, 128): 830,
    (256, 128): 1380, (256, 136): 1440, (256, 144): 1480,
}  # fmt: skip
GROUPED_CYCLES = PROMOTED_CYCLES | {(192, 128): 790}
SWAP_AB_CYCLES = {
    (8, 64): 138, (16, 64): 130, (32, 64): 117,
    (8, 128): 269, (16, 128): 264, (32, 128): 305,
}  # fmt: skip
CYCLES_1D1D = {
    (64, 32): 220, (64, 64): 330, (64, 96): 450, (64, 128): 560,
    (128, 64): 555, (128, 96): 715, (128, 104): 770, (128, 112): 795, (128, 120): 835,
    (128, 128): 850, (128, 136): 985,
}  # fmt: skip
# Direct, by (mma_m, mma_n): tiles that the formula is wrong about, mostly those of a single
# warpgroup, which waits for itself.
DIRECT_CYCLES = {
    (64, 96): 244, (64, 128): 250, (64, 160): 434, (64, 192): 409, (64, 256): 618,
    (128, 64): 305, (128, 144): 655, (256, 64): 620,
}  # fmt: skip

CLOCK_MHZ = 1700.0  # at which the cycles here were read off the times
FILL_BYTES = 80.0  # per cycle, into the shared memory of an SM
HALF_TILE = 0.76  # of a tile's time, where half of its rows or columns are out of bounds
PING_PONG_EXPOSED = 0.32  # of an epilogue that runs under another warpgroup's MMAs
CAMPING_BYTES = 8192  # reads of rows that lie a multiple of this apart are slower
CAMPING_SPLITS = 4  # split-K by so many reads as many places of K, which spreads them again
EARLY_HBM_US = 4.2e6  # bytes of B per microsecond that are read before the kernel ahead has ended
EARLY_FREE_US = 3.5  # microseconds of prefetch hidden by the dependency wait itself
EARLY_GAIN, EARLY_GAIN_WIDE, EARLY_MOST_US = 0.5, 3.61, 1.43
# FLOPs for the power of one FP8 FLOP.
POWER_PER_FLOP = {"e4m3": 1.0, "e5m2": 1.0, "int8": 1.08, "bf16": 0.44, "fp16": 0.44}
# Sizes of groups relative to the expected one: around a hint, and around a mean.
SPREAD, WIDE_SPREAD = (0.7, 0.82, 0.94, 1.06, 1.18, 1.3), (0.15, 0.5, 0.85, 1.15, 1.5, 1.85)
# Norms of overlapping times: of MMA and copies in a k-block; of compute, memory and power.
K_BLOCK_SHARPNESS, KERNEL_SHARPNESS = 8, 4


class CostParameters(NamedTuple):
    """Constants of kernels with one kind of main loop.

    fixed_us: launch, set-up, first load, last store.
    idle_sms_us: less of it where half the SMs are free: the next kernel sets up on them.
    resident_us: less of it where two CTAs fit one SM.
    large_cluster_us: more of it for clusters above 2.
    load_latency: cycles of a stage's loads that no other stage hides, over the stages.
    cluster_cycles, small_cluster_cycles: per k-block, of waiting for the other CTA's releases, with
        mma_m above 64, of 64; column_cluster_cycles: less of it where B is shared.
        small_split_cycles: of waiting with mma_m of 64 and split-K.
    tile_cycles: per tile, pipeline drain and epilogue; tile_area_cycles: and per 128 x 128 of it;
        store_stage_cycles: and per 64 x 128 of one warpgroup.
    reduce_us: of a split-K reduction, beside its bytes; reduce_bytes: per cycle, from an SM to the
        others of its cluster.
    power_flops: FP8 operations per microsecond, if operands cost no power to move.
    power_per_row: rows of an operand moved for each row or column it meets, against a FLOP.
    camping: share by which reads of rows CAMPING_BYTES apart are slower.
    last_store: share of the last wave's output time that is not hidden; last_tile: of an epilogue
        where reading limits.
    sm_bytes: per microsecond, from device memory to one CTA.
    block_cycles: of a k-block, for waiting, starting and ending its MMAs.
    shared_bytes: per cycle, into the shared memory of an SM and out of it together.
    reread: share by which reads of B are slower for every further cluster that reads it.
    a_over_b: share by which all reads are slower for as many rows of A as of B in a tile.
    """

    fixed_us: float
    idle_sms_us: float
    resident_us: float
    large_cluster_us: float
    load_latency: float
    cluster_cycles: float
    small_cluster_cycles: float
    small_split_cycles: float
    tile_cycles: float
    tile_area_cycles: float
    reduce_us: float
    reduce_bytes: float
    power_flops: float
    power_per_row: float
    camping: float
    last_store: float
    last_tile: float = 0.0
    sm_bytes: float = float("inf")
    block_cycles: float = 0.0
    shared_bytes: float = 128.0
    store_stage_cycles: float = 0.0
    reread: float = 0.0
    column_cluster_cycles: float = 0.0
    a_over_b: float = 0.0


PROMOTED = CostParameters(
    fixed_us=2.35, idle_sms_us=0.356, resident_us=0.01, large_cluster_us=0.25, load_latency=402,
    cluster_cycles=41.6, small_cluster_cycles=7.9, small_split_cycles=0, tile_cycles=529,
    tile_area_cycles=661, reduce_us=0.311, reduce_bytes=17.4, power_flops=2.86e9,
    power_per_row=73.1, camping=0.11, last_store=0.72,
)  # fmt: skip
DIRECT = CostParameters(
    fixed_us=1.50, idle_sms_us=0.537, resident_us=0, large_cluster_us=0.397, load_latency=402,
    cluster_cycles=52.4, small_cluster_cycles=20.0, small_split_cycles=38.7, tile_cycles=404,
    tile_area_cycles=1490, reduce_us=0.161, reduce_bytes=13.2, power_flops=2.69e9,
    power_per_row=29.9, camping=0.109, last_store=1.42, last_tile=0.179, sm_bytes=54.1e3,
    block_cycles=66.7, shared_bytes=292, store_stage_cycles=455, reread=0.179,
    column_cluster_cycles=13.0,
)  # fmt: skip
# Fitted to groups with block scales, each tile timed after a rest (docs/findings.md).
GROUPED = PROMOTED._replace(
    resident_us=0.4, cluster_cycles=42, column_cluster_cycles=19, small_cluster_cycles=52,
    tile_cycles=1210, tile_area_cycles=1020, power_flops=1.82e9, power_per_row=10.5,
    last_store=0.44, sm_bytes=59e3, reread=0.093, a_over_b=0.052,
)  # fmt: skip
