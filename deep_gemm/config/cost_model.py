"""Predicted time of a problem under a configuration, in microseconds.

In a k-block of a CTA two things overlap: its MMAs, with what of the promotion does not hide under
them, and the copies that fill its stage. Tiles run in waves over the SMs; the whole overlaps with
what it moves through device memory, and no kernel draws more power than the card gives. Constants
are in calibration_h200.py.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..layouts import ceil_div
from ..problem import GemmProblem, GroupKind, Mainloop
from . import calibration_h200 as h200
from .calibration_h200 import CostParameters
from .device import DeviceSpec
from .gemm_config import ROW_BYTES, GemmConfig
from .prefetch import early_k_blocks
from .raster import cluster_counts, residue_tiles
from .tile import SLICE_M


class Estimate(NamedTuple):
    """Predicted microseconds, and the parts they come from."""

    us: float
    waves: int
    k_block_cycles: float
    limit: str


class ConfigCost(NamedTuple):
    """What of an estimate depends on the configuration alone; computed once for each.

    compute_cycles, cluster_cycles: of a k-block. tile_cycles: of a tile's epilogue and drain.
    latency_cycles: least of a k-block's copies. reduce_us: of a split-K reduction.
    block_k: elements of K in a k-block of all CTAs that split it. moved: rows of A and B moved for
    each element of a tile.
    """

    parameters: CostParameters
    compute_cycles: float
    cluster_cycles: float
    tile_cycles: float
    latency_cycles: float
    reduce_us: float
    block_k: int
    moved: float


@cache
def config_cost(config: GemmConfig) -> ConfigCost:
    """Return what of an estimate depends on the configuration alone."""
    tile, parameters = config.tile, parameters_of(config)
    return ConfigCost(
        parameters,
        _compute_cycles(config),
        _cluster_cycles(config),
        _tile_cycles(config),
        parameters.load_latency / config.num_stages,
        _reduce_us(config),
        config.variant.block_k * config.split_k,
        1 / (tile.block_n * config.cluster_n) + 1 / (tile.block_m * config.cluster_m),
    )


def parameters_of(config: GemmConfig) -> CostParameters:
    """Return the constants of a configuration's kind of main loop."""
    if config.variant.mainloop is Mainloop.DIRECT:
        return h200.DIRECT
    return h200.GROUPED if config.variant.is_grouped else h200.PROMOTED


def estimate(
    problem: GemmProblem, config: GemmConfig, device: DeviceSpec, num_sms: int
) -> Estimate:
    """Return the predicted time of `problem` under `config` on `num_sms` SMs of `device`."""
    cost, one = config_cost(config), problem.expected[1]
    tiles, slots = _tiles(problem, config), _slots(config, num_sms)
    waves = ceil_div(tiles, slots)
    ctas = min(tiles, slots) * config.cluster_size
    fill = _fill_cycles(one, config, cost)
    per_block = _soft_max(h200.K_BLOCK_SHARPNESS, cost.compute_cycles, fill) + cost.cluster_cycles
    k_blocks = ceil_div(one.k, cost.block_k)
    compute_us = (
        _longest(problem, config, waves, slots)
        * (k_blocks * per_block + cost.tile_cycles * _exposed(config, waves))
        / h200.CLOCK_MHZ
    )
    output_us = _last_output_bytes(problem, waves) / device.hbm_bytes_per_us
    parts = {
        "mma" if cost.compute_cycles >= fill else "copies": compute_us,
        "device memory": _memory_us(problem, config, device, (tiles, slots, waves)),
        "power": _power_us(problem, config, cost),
    }
    us = _fixed_us(config, cost.parameters, ctas, num_sms)
    us += _soft_max(h200.KERNEL_SHARPNESS, *parts.values())
    us += waves * cost.reduce_us
    us += cost.parameters.last_store * output_us
    us += _transpose_us(problem, device)
    if problem.static_b and not problem.grouping:
        blocks = early_k_blocks(config, problem.k, ctas, device.sm_count)
        us -= _early_us(config, blocks, ctas)
    return Estimate(us, waves, per_block, max(parts, key=lambda name: parts[name]))


def copy_us(moved_bytes: float, device: DeviceSpec) -> float:
    """Return the time of a kernel that only moves bytes through device memory."""
    return h200.PROMOTED.fixed_us + moved_bytes / device.hbm_bytes_per_us


def _transpose_us(problem: GemmProblem, device: DeviceSpec) -> float:
    """Return the time of the kernels that transpose 8-bit operands first."""
    extents = {"a": problem.m, "b": problem.n}
    return sum(copy_us(2 * extents[name] * problem.k, device) for name in problem.transposed)


def _soft_max(sharpness: int, *times: float) -> float:
    """Return the time of things that overlap: the longest one, and more where they are close."""
    return float(sum(time**sharpness for time in times) ** (1 / sharpness))


# --- tiles and waves ------------------------------------------------------------------------------


def _tiles(problem: GemmProblem, config: GemmConfig) -> int:
    """Return the clusters of tiles; with groups, of sizes around the expected one."""
    if problem.grouping is None:
        m_clusters, n_clusters = cluster_counts(problem.m, problem.n, config)
        return m_clusters * n_clusters
    count, one = problem.expected
    sizes, tiles = _sizes(problem), 0
    for size in sizes:
        m_clusters, n_clusters = cluster_counts(max(1, int(one.m * size)), one.n, config)
        tiles += m_clusters * n_clusters
    return ceil_div(count * tiles, len(sizes))


def _sizes(problem: GemmProblem) -> tuple[float, ...]:
    grouping = problem.grouping
    if grouping is None or grouping.kind not in (GroupKind.MASKED, GroupKind.OFFSETS):
        return (1.0,)
    return h200.SPREAD if grouping.expected_m else h200.WIDE_SPREAD


def _slots(config: GemmConfig, num_sms: int) -> int:
    """Return how many clusters run at a time: larger ones leave SMs of a GPC over."""
    size = config.cluster_size
    share = 112 if size >= 8 else 120 if size >= 3 else 132
    return max(1, num_sms * share // 132 // size)


def _longest(problem: GemmProblem, config: GemmConfig, waves: int, slots: int) -> float:
    """Return the most tiles that a cluster computes, of which one or two may be residue tiles."""
    residue = residue_tiles(problem, config, slots)
    halves = 0 if residue.tail == 0 else 2 if residue.head >= residue.tail else 1
    return max(waves - 1.0, waves - halves * (1 - h200.HALF_TILE))


def _exposed(config: GemmConfig, waves: int) -> float:
    """Return the share of epilogues that is not hidden under other tiles' MMAs."""
    if not config.tile.ping_pong:
        return 1.0
    return h200.PING_PONG_EXPOSED + (1 - h200.PING_PONG_EXPOSED) / waves


# --- cycles of a k-block and of a tile ------------------------------------------------------------


def _compute_cycles(config: GemmConfig) -> float:
    tile, variant = config.tile, config.variant
    mma = tile.mma_m, tile.mma_n
    if variant.mainloop is Mainloop.DIRECT:
        return h200.DIRECT_CYCLES.get(mma) or _direct_cycles(*mma)
    table = h200.GROUPED_CYCLES if variant.is_grouped else h200.PROMOTED_CYCLES
    if variant.mainloop is Mainloop.SCALED_1D1D:
        table = h200.CYCLES_1D1D
    if tile.swap_ab:
        table = h200.SWAP_AB_CYCLES
    # Outside the tables: the MMAs, half again.
    return table.get((tile.block_m, tile.block_n)) or 1.5 * mma[0] * mma[1] / 32 + 100


def _direct_cycles(mma_m: int, mma_n: int) -> float:
    """Return the cycles of a k-block whose sums stay in the tensor core.

    Two for each column of a 64-row slice, or what shared memory takes: every slice reads its rows
    and all columns, the copies write both.
    """
    slices = mma_m // SLICE_M
    moved = slices * (SLICE_M + mma_n) + mma_m + mma_n
    busy = max(2.0 * mma_n * slices, moved * ROW_BYTES / h200.DIRECT.shared_bytes)
    return busy + h200.DIRECT.block_cycles


def _fill_cycles(one: GemmProblem, config: GemmConfig, cost: ConfigCost) -> float:
    filled = min(config.tile.block_m, one.m) + min(config.tile.block_n, one.n)
    return max(filled * ROW_BYTES / h200.FILL_BYTES, cost.latency_cycles)


def _cluster_cycles(config: GemmConfig) -> float:
    """Return what a k-block takes longer in a cluster."""
    parameters, is_small = parameters_of(config), config.tile.mma_m == SLICE_M
    if is_small and config.split_k > 1:
        return 0.0 if config.tile.swap_ab else parameters.small_split_cycles
    if config.multicast == 1:
        return 0.0
    if is_small:
        return parameters.small_cluster_cycles
    return parameters.cluster_cycles - parameters.column_cluster_cycles * (config.cluster_m > 1)


def _tile_cycles(config: GemmConfig) -> float:
    parameters, tile = parameters_of(config), config.tile
    area = parameters.tile_area_cycles * tile.mma_m * tile.mma_n / 128**2
    stored = parameters.store_stage_cycles * tile.m_slices * tile.mma_n / 128
    return parameters.tile_cycles + area + stored


def _reduce_us(config: GemmConfig) -> float:
    if config.split_k == 1:
        return 0.0
    parameters, rows = parameters_of(config), SLICE_M * config.tile.num_math_warpgroups
    owners = ceil_div(config.tile.mma_n, config.reduce_mma_n)
    sent = (owners - 1) * rows * config.reduce_mma_n * 4
    return parameters.reduce_us + sent / parameters.reduce_bytes / h200.CLOCK_MHZ


# --- device memory, power, fixed time -------------------------------------------------------------


def _memory_us(
    problem: GemmProblem, config: GemmConfig, device: DeviceSpec, counts: tuple[int, int, int]
) -> float:
    """counts: tiles, slots, waves."""
    tiles, slots, waves = counts
    cost, tile = config_cost(config), config.tile
    parameters, (count, one) = cost.parameters, problem.expected
    moved = problem.bytes - _last_output_bytes(problem, waves) + _padding_bytes(problem, config)
    readers = 1 if tile.swap_ab else ceil_div(one.m, tile.block_m * config.cluster_m)
    # Blocks of labels run side by side, whichever groups they belong to.
    readers = 1 if config.variant.group_kind is GroupKind.LABELS else readers
    b_bytes = count * one.n * one.k * one.b_dtype.bytes
    moved += parameters.reread * min(readers - 1, 3) * b_bytes
    # The last wave may be too few CTAs to draw the full rate.
    last = tiles - (waves - 1) * slots
    rate = min(device.hbm_bytes_per_us, last * config.cluster_size * parameters.sm_bytes)
    moved *= 1 + last / tiles * (device.hbm_bytes_per_us / rate - 1)
    camping = (
        problem.k * problem.b_dtype.bytes % h200.CAMPING_BYTES == 0
        and config.split_k < h200.CAMPING_SPLITS
    )
    us = moved / device.hbm_bytes_per_us * (1 + parameters.camping * camping)
    us *= 1 + parameters.a_over_b * min(_loaded_m(config, one.m), tile.block_m) / tile.block_n
    return us + parameters.last_tile * cost.tile_cycles / h200.CLOCK_MHZ


def _padding_bytes(problem: GemmProblem, config: GemmConfig) -> float:
    """Return what is read of rows behind a stacked group's, in boxes that have valid rows."""
    if problem.grouping is None or not problem.grouping.is_stacked:
        return 0.0
    count, one = problem.expected
    padding = min(_loaded_m(config, one.m), problem.m) - one.m
    return float(count * padding * one.k * one.a_dtype.bytes)


def _loaded_m(config: GemmConfig, m: int) -> int:
    """Return how many rows of A are loaded where m are valid."""
    box = config.load_box_m or config.tile.block_m
    return ceil_div(m, box) * box


def _last_output_bytes(problem: GemmProblem, waves: int) -> float:
    count, one = problem.expected
    return count * one.m * one.n * one.d_dtype.bytes / waves


def _power_us(problem: GemmProblem, config: GemmConfig, cost: ConfigCost) -> float:
    power_flops = cost.parameters.power_flops * h200.POWER_PER_FLOP[config.variant.a.name]
    return problem.flops / power_flops * (1 + cost.parameters.power_per_row * cost.moved)


def _fixed_us(config: GemmConfig, parameters: CostParameters, ctas: int, num_sms: int) -> float:
    saved = parameters.idle_sms_us * min(1.0, 2 * (num_sms - ctas) / num_sms)
    if config.ctas_per_sm > 1:
        saved = parameters.resident_us
    large = parameters.large_cluster_us if config.cluster_size > 2 else 0.0
    return parameters.fixed_us - saved + large


def _early_us(config: GemmConfig, k_blocks: int, ctas: int) -> float:
    """Return what loading so many k-blocks of B early saves."""
    if config.cluster_m > 1:
        return 0.0  # a multicast of B waits for both CTAs
    block_n = config.tile.block_n
    read_us = ctas * k_blocks * block_n * ROW_BYTES / h200.EARLY_HBM_US
    is_wide = config.tile.swap_ab and block_n > SLICE_M
    gain = h200.EARLY_GAIN_WIDE if is_wide else h200.EARLY_GAIN
    return min(h200.EARLY_MOST_US, max(0.0, (read_us - h200.EARLY_FREE_US) * gain))
