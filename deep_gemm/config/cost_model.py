"""Predicted time of a problem under a configuration, in microseconds.

In a k-block of a CTA two things overlap: its MMAs, with what of the promotion does not hide under
them, and the copies that fill its stage. Tiles run in waves over the SMs; the whole overlaps with
what it moves through device memory, and no kernel draws more power than the card gives. Every
constant is fitted to sweeps (benchmarks/sweep.py; NVIDIA H200, CUDA 13.0, 2026-11-29; how well,
docs/findings.md says).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..problem import GemmProblem
from .device import DeviceSpec
from .raster import cluster_counts, edge_of
from .tile import ROW_BYTES, WAVE_M, GemmConfig

# SM cycles of one k-block with its operands in shared memory, by (BLOCK_M, BLOCK_N). A tile is a
# candidate if it stands here. Tokens are rows in the first table, columns in the second.
K_BLOCK_CYCLES = {
    (64, 16): 127, (64, 32): 199, (64, 48): 225, (64, 64): 198,
    (64, 96): 280, (64, 128): 265, (64, 136): 290, (64, 144): 290,
    (128, 64): 270, (128, 96): 470, (128, 128): 530,
    (128, 136): 560, (128, 144): 640, (128, 160): 715, (128, 192): 1100,
    (192, 96): 690, (192, 128): 830,
    (256, 128): 1380, (256, 136): 1440, (256, 144): 1480,
}  # fmt: skip
GROUPED_K_BLOCK_CYCLES = {(192, 128): 790}  # another, where there are groups
SWAPPED_K_BLOCK_CYCLES = {
    (64, 8): 138, (64, 16): 130, (64, 32): 117,
    (128, 8): 269, (128, 16): 264, (128, 32): 305,
}  # fmt: skip
# The same where rows and columns have scales along K.
ROWS_K_BLOCK_CYCLES = {
    (64, 32): 220, (64, 64): 330, (64, 96): 450, (64, 128): 560,
    (128, 64): 555, (128, 96): 715, (128, 104): 770, (128, 112): 795, (128, 120): 835,
    (128, 128): 850, (128, 136): 985,
}  # fmt: skip

# The same where sums stay in the tensor core, of tiles that _direct_cycles() is wrong about: mostly
# those of a single warpgroup, which waits for itself.
DIRECT_K_BLOCK_CYCLES = {
    (64, 96): 244, (64, 128): 250, (64, 160): 434, (64, 192): 409, (64, 256): 618,
    (128, 64): 305, (128, 144): 655, (256, 64): 620,
}  # fmt: skip

CLOCK_MHZ = 1700.0  # at which the cycles here were read off the times
FILL_BYTES = 80.0  # per cycle, into the shared memory of an SM
HALF_TILE = 0.76  # of a tile's time, where half of its rows or columns do not exist
PING_PONG_EXPOSED = 0.32  # of the end of a tile where another warpgroup's tile goes on
CAMPING_BYTES = 8192  # reads of rows that lie a multiple of this apart are slower
CAMPING_SPLITS = 4  # at so many places of K at once they spread again
EARLY_HBM_US = 4.2e6  # bytes of B per microsecond that are read before the kernel ahead has ended
EARLY_FREE_US = 3.5  # of them that fill the wait alone
EARLY_GAIN, EARLY_GAIN_WIDE, EARLY_MOST_US = 0.5, 3.61, 1.43
# FLOPs for the power of one FP8 FLOP.
POWER_OF = {"e4m3": 1.0, "e5m2": 1.0, "int8": 1.08, "bf16": 0.44, "fp16": 0.44}

_SHARPNESS = 8  # of the larger of two in a k-block, and of three below
_SHARPNESS_WHOLE = 4


@dataclass(frozen=True)
class Fit:
    """Constants of kernels that sum alike.

    fixed_us: launch, set-up, first load, last store.
    idle_sms_us: less of it where half the SMs are free: the next kernel sets up on them.
    resident_us: less of it where two CTAs fit one SM.
    large_cluster_us: more of it for clusters above 2.
    load_latency: cycles of a stage's loads that no other stage hides, over the stages.
    cluster_cycles, small_cluster_cycles: per k-block, of waiting for the other CTA's releases, in
        tiles of more than 64 rows, of 64; column_cluster_cycles: less of it where columns are
        shared. small_split_cycles: the same in tiles of 64 rows where K is split.
    tile_cycles: per tile, the pipeline drains, the results leave; tile_area_cycles: and per 128 x
        128 of it; slab_cycles: and per 64 x 128 of one warpgroup.
    exchange_us: of a sum over a cluster, beside its bytes; exchange_bytes: per cycle, from an SM to
        the others of its cluster.
    power_flops: FP8 operations per microsecond, if operands cost no power to move.
    power_per_row: rows of an operand moved for each row or column it meets, against a FLOP.
    camping: share by which reads of rows CAMPING_BYTES apart are slower.
    last_store: share of the last wave's output time that is not hidden; last_tile: of the end of a
        tile, likewise, where reading limits.
    sm_bytes: per microsecond, from device memory to one CTA.
    block_cycles: of a k-block, for waiting, starting and ending its MMAs.
    shared_bytes: per cycle, into the shared memory of an SM and out of it together.
    reread: share by which reads of weights are slower for every further cluster that reads them.
    beside: share by which all reads are slower for as many rows of A as of B in a tile.
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
    exchange_us: float
    exchange_bytes: float
    power_flops: float
    power_per_row: float
    camping: float
    last_store: float
    last_tile: float = 0.0
    sm_bytes: float = float("inf")
    block_cycles: float = 0.0
    shared_bytes: float = 128.0
    slab_cycles: float = 0.0
    reread: float = 0.0
    column_cluster_cycles: float = 0.0
    beside: float = 0.0


PROMOTED = Fit(
    fixed_us=2.35, idle_sms_us=0.356, resident_us=0.01, large_cluster_us=0.25, load_latency=402,
    cluster_cycles=41.6, small_cluster_cycles=7.9, small_split_cycles=0, tile_cycles=529,
    tile_area_cycles=661, exchange_us=0.311, exchange_bytes=17.4, power_flops=2.86e9,
    power_per_row=73.1, camping=0.11, last_store=0.72,
)  # fmt: skip
DIRECT = Fit(
    fixed_us=1.50, idle_sms_us=0.537, resident_us=0, large_cluster_us=0.397, load_latency=402,
    cluster_cycles=52.4, small_cluster_cycles=20.0, small_split_cycles=38.7, tile_cycles=404,
    tile_area_cycles=1490, exchange_us=0.161, exchange_bytes=13.2, power_flops=2.69e9,
    power_per_row=29.9, camping=0.109, last_store=1.42, last_tile=0.179, sm_bytes=54.1e3,
    block_cycles=66.7, shared_bytes=292, slab_cycles=455, reread=0.179,
    column_cluster_cycles=13.0,
)  # fmt: skip


# Of groups: fitted to products with block scales, each tile timed after a rest (docs/findings.md).
GROUPED = replace(
    PROMOTED, resident_us=0.4, cluster_cycles=42, column_cluster_cycles=19, small_cluster_cycles=52,
    tile_cycles=1210, tile_area_cycles=1020, power_flops=1.82e9, power_per_row=10.5,
    last_store=0.44, sm_bytes=59e3, reread=0.093, beside=0.052,
)  # fmt: skip
# Sizes of groups around the expected one, where they may be any; and around one that is but a mean.
SPREAD, WIDE_SPREAD = (0.7, 0.82, 0.94, 1.06, 1.18, 1.3), (0.15, 0.5, 0.85, 1.15, 1.5, 1.85)


def _fit(config: GemmConfig) -> Fit:
    if config.form.promotion == "none":
        return DIRECT
    return PROMOTED if config.form.grouping == "none" else GROUPED


@dataclass(frozen=True)
class Estimate:
    """Predicted microseconds, and the parts they come from."""

    us: float
    waves: int
    k_block_cycles: float
    limit: str


def estimate(
    problem: GemmProblem, config: GemmConfig, device: DeviceSpec, num_sms: int
) -> Estimate:
    """Return the predicted time of `problem` under `config` on `num_sms` SMs of `device`."""
    tiles, slots = _tiles(problem, config), _slots(config, num_sms)
    waves = -(-tiles // slots)
    ctas = min(tiles, slots) * config.cluster
    k_blocks = -(-problem.expected[1].k // (config.form.block_k * config.split_k))
    compute, fill = _compute_cycles(config), _fill_cycles(problem, config)
    per_block = _both(_SHARPNESS, compute, fill) + _cluster_cycles(config)
    parts = {
        "mma" if compute >= fill else "copies": _longest(problem, config, slots)
        * (k_blocks * per_block + _tile_cycles(config) * _exposed(config, waves))
        / CLOCK_MHZ,
        "device memory": _memory_us(problem, config, device, slots),
        "power": _power_us(problem, config),
    }
    us = _fixed_us(config, ctas, num_sms) + _both(_SHARPNESS_WHOLE, *parts.values())
    us += waves * _exchange_us(config)
    us += _fit(config).last_store * _last_output_bytes(problem, waves) / device.hbm_bytes_per_us
    us += _transpose_us(problem, device)
    if problem.static_b and not problem.grouping:
        blocks = early_blocks(config, problem.k, ctas, device.sm_count)
        us -= _early_us(config, blocks, ctas)
    return Estimate(us, waves, per_block, max(parts, key=lambda name: parts[name]))


def _exposed(config: GemmConfig, waves: int) -> float:
    """Return the share of the ends of tiles that is not hidden under other tiles' MMAs."""
    return PING_PONG_EXPOSED + (1 - PING_PONG_EXPOSED) / waves if config.tile.ping_pong else 1.0


def _transpose_us(problem: GemmProblem, device: DeviceSpec) -> float:
    """Return the time of the kernels that transpose 8-bit operands first."""
    extents = {"a": problem.m, "b": problem.n}
    moved = (2 * extents[name] * problem.k for name in problem.transposed)
    return sum(PROMOTED.fixed_us + size / device.hbm_bytes_per_us for size in moved)


def early_blocks(config: GemmConfig, k: int, ctas: int, sm_count: int) -> int:
    """Return how many k-blocks of a B that nobody writes each CTA reads ahead of the dependency.

    Half of the stages are filled, three quarters where tokens are columns, and of a short K half of
    it: tokens queue behind the weights, and fewer of them for less long. A grid of half the SMs
    there are reads nothing ahead: its successor starts beside it, not after it, and would only
    compete with it for memory (docs/findings.md).
    """
    if 2 * ctas <= sm_count:
        return 0
    stages, k_blocks = config.num_stages, -(-k // (config.form.block_k * config.split_k))
    share = stages * 3 // 4 if config.swapped else stages // 2
    return min(share, k_blocks, max(8, k_blocks // 2))


def _both(sharpness: int, *times: float) -> float:
    """Return the time of things that overlap: the longest one, and more where they are close."""
    return float(sum(time**sharpness for time in times) ** (1 / sharpness))


def _tiles(problem: GemmProblem, config: GemmConfig) -> int:
    count, one = problem.expected
    sizes = _sizes(problem)
    spread = (replace(one, m=max(1, int(one.m * size))) for size in sizes)
    tiles = sum(math.prod(cluster_counts(of_size, config)) for of_size in spread)
    return -(-count * tiles // len(sizes))


def _sizes(problem: GemmProblem) -> tuple[float, ...]:
    of = problem.grouping
    if of is None or of.kind not in ("masked", "offsets"):
        return (1.0,)
    return SPREAD if of.rows_hint else WIDE_SPREAD


def _longest(problem: GemmProblem, config: GemmConfig, slots: int) -> float:
    """Return the most tiles that a cluster computes, of which one or two may be halves."""
    waves, edge = -(-_tiles(problem, config) // slots), edge_of(problem, config, slots)
    halves = 0 if edge.last == 0 else 2 if edge.first >= edge.last else 1
    return max(waves - 1.0, waves - halves * (1 - HALF_TILE))


def _slots(config: GemmConfig, num_sms: int) -> int:
    """Return how many clusters run at once: larger ones leave SMs of a GPC over."""
    share = 112 if config.cluster >= 8 else 120 if config.cluster >= 3 else 132
    return max(1, num_sms * share // 132 // config.cluster)


def _compute_cycles(config: GemmConfig) -> float:
    shape = config.tile.block_m, config.tile.block_n
    if config.form.promotion == "none":
        return DIRECT_K_BLOCK_CYCLES.get(shape) or _direct_cycles(*shape)
    table = ROWS_K_BLOCK_CYCLES if config.form.promotion == "rows" else K_BLOCK_CYCLES
    if table is K_BLOCK_CYCLES and config.form.grouping != "none":
        table = table | GROUPED_K_BLOCK_CYCLES
    known = (SWAPPED_K_BLOCK_CYCLES if config.swapped else table).get(shape)
    # Outside the tables: the MMAs, half again.
    return known or 1.5 * shape[0] * shape[1] / 32 + 100


def _direct_cycles(rows: int, columns: int) -> float:
    """Return the cycles of a k-block whose sums stay in the tensor core.

    Two for each column of a 64-row wave, or what shared memory takes: every wave reads its rows and
    all columns, the copies write both.
    """
    waves = rows // WAVE_M
    moved = waves * (WAVE_M + columns) + rows + columns
    busy = max(2.0 * columns * waves, moved * ROW_BYTES / DIRECT.shared_bytes)
    return busy + DIRECT.block_cycles


def _fill_cycles(problem: GemmProblem, config: GemmConfig) -> float:
    rows, columns = config.oriented(problem.expected[1].m, problem.n)
    filled = min(config.tile.block_m, rows) + min(config.tile.block_n, columns)
    return max(filled * ROW_BYTES / FILL_BYTES, _fit(config).load_latency / config.num_stages)


def _cluster_cycles(config: GemmConfig) -> float:
    """Return what a k-block takes longer in a cluster."""
    fit, small = _fit(config), config.tile.block_m == WAVE_M
    if small and config.split_k > 1:
        return 0.0 if config.swapped else fit.small_split_cycles
    if config.multicast == 1:
        return 0.0
    if small:
        return fit.small_cluster_cycles
    return fit.cluster_cycles - fit.column_cluster_cycles * (config.cluster_m > 1)


def _tile_cycles(config: GemmConfig) -> float:
    fit, tile = _fit(config), config.tile
    area = fit.tile_area_cycles * tile.block_m * tile.block_n / 128**2
    return fit.tile_cycles + area + fit.slab_cycles * tile.waves * tile.block_n / 128


def _memory_us(problem: GemmProblem, config: GemmConfig, device: DeviceSpec, slots: int) -> float:
    pitch = problem.k * problem.b_dtype.bytes
    waves = -(-_tiles(problem, config) // slots)
    camping = pitch % CAMPING_BYTES == 0 and config.split_k < CAMPING_SPLITS
    moved = problem.bytes - _last_output_bytes(problem, waves) + _padding_bytes(problem, config)
    count, one = problem.expected
    readers = -(-one.m // (config.tile.block_m * config.cluster_m)) if not config.swapped else 1
    # Blocks of labels are walked side by side, whichever groups they are of.
    readers = 1 if problem.form.grouping == "labels" else readers
    weights = count * one.n * one.k * one.b_dtype.bytes
    moved += _fit(config).reread * min(readers - 1, 3) * weights
    # The last wave may be too few CTAs to draw the full rate.
    tiles = _tiles(problem, config)
    last = tiles - (waves - 1) * slots
    rate = min(device.hbm_bytes_per_us, last * config.cluster * _fit(config).sm_bytes)
    moved *= 1 + last / tiles * (device.hbm_bytes_per_us / rate - 1)
    us = moved / device.hbm_bytes_per_us * (1 + _fit(config).camping * camping)
    of_weights = config.tile.block_m if config.swapped else config.tile.block_n
    us *= 1 + _fit(config).beside * min(_boxed_tokens(config, one.m), config.tokens) / of_weights
    return us + _fit(config).last_tile * _tile_cycles(config) / CLOCK_MHZ


def _padding_bytes(problem: GemmProblem, config: GemmConfig) -> float:
    """Return what is read of rows behind those of a stacked group, in boxes that have some."""
    count, one = problem.expected
    if problem.grouping is None or not problem.grouping.stacked:
        return 0.0
    padding = min(_boxed_tokens(config, one.m), problem.m) - one.m
    return float(count * padding * one.k * one.a_dtype.bytes)


def _boxed_tokens(config: GemmConfig, tokens: int) -> int:
    """Return how many rows of A are loaded where so many exist."""
    box = config.some_boxes[config.swapped] or config.tokens
    return -(-tokens // box) * box


def _last_output_bytes(problem: GemmProblem, waves: int) -> float:
    count, one = problem.expected
    return count * one.m * one.n * one.d_dtype.bytes / waves


def _power_us(problem: GemmProblem, config: GemmConfig) -> float:
    tile = config.tile
    moved = 1 / (tile.block_n * config.cluster_n) + 1 / (tile.block_m * config.cluster_m)
    fit = _fit(config)
    power_flops = fit.power_flops * POWER_OF[config.form.a.name]
    return problem.flops / power_flops * (1 + fit.power_per_row * moved)


def _fixed_us(config: GemmConfig, ctas: int, num_sms: int) -> float:
    fit = _fit(config)
    saved = fit.idle_sms_us * min(1.0, 2 * (num_sms - ctas) / num_sms)
    if config.ctas_per_sm > 1:
        saved = fit.resident_us
    return fit.fixed_us - saved + (fit.large_cluster_us if config.cluster > 2 else 0.0)


def _exchange_us(config: GemmConfig) -> float:
    if config.split_k == 1:
        return 0.0
    owners = -(-config.tile.block_n // config.piece_n)
    rows = WAVE_M * config.tile.num_math_warpgroups
    sent = (owners - 1) * rows * config.piece_n * 4
    fit = _fit(config)
    return fit.exchange_us + sent / fit.exchange_bytes / CLOCK_MHZ


def _early_us(config: GemmConfig, blocks: int, ctas: int) -> float:
    """Return what reading so many k-blocks of B ahead saves."""
    rows = config.tile.block_m if config.swapped else config.tile.block_n
    if config.cluster_m > 1 and not config.swapped:
        return 0.0  # weights that arrive by multicast wait for both CTAs
    read_us = ctas * blocks * rows * ROW_BYTES / EARLY_HBM_US
    wide = config.swapped and config.tile.block_m > WAVE_M
    gain = (read_us - EARLY_FREE_US) * (EARLY_GAIN_WIDE if wide else EARLY_GAIN)
    return min(EARLY_MOST_US, max(0.0, gain))
