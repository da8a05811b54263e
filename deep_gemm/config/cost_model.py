"""Predicted time of a problem under a configuration, in microseconds.

In a k-block of a CTA two things overlap: its MMAs, with what of the promotion does not hide under
them, and the copies that fill its stage. Tiles run in waves over the SMs, and the whole overlaps
with what it moves through device memory. Every constant is fitted to a sweep (benchmarks/sweep.py;
NVIDIA H200, CUDA 13.0, 2026-11-29, 84 dense shapes, 34 candidates each; docs/findings.md says how
well).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import GemmProblem
from .device import DeviceSpec
from .tile import BLOCK_K, WAVE_M, GemmConfig

# SM cycles of one k-block with its operands in shared memory, by (BLOCK_M, BLOCK_N). A tile is a
# candidate if it stands here.
K_BLOCK_CYCLES = {
    (64, 16): 169, (64, 32): 182, (64, 48): 234, (64, 64): 233,
    (64, 96): 291, (64, 112): 339, (64, 128): 335,
    (128, 64): 363, (128, 96): 506, (128, 112): 614, (128, 128): 600,
    (128, 144): 818, (128, 160): 828, (128, 192): 938,
    (192, 96): 817, (192, 128): 895,
    (256, 112): 1321, (256, 128): 1315,
}  # fmt: skip

FITTED_CLOCK_MHZ = 1700.0  # at which the cycles here were read off the times
FIXED_US = 2.5  # launch, set-up, first load, last store
FILL_BYTES = 79.0  # per cycle, into the shared memory of each SM with all of them loading
LOAD_LATENCY = 580.0  # cycles from issuing a stage's loads to their arrival
CLUSTER_CYCLES = 9.0  # per k-block, of waiting for the other CTA's releases
SHORT_SHARE_CYCLES = 22.0  # more where the shares of A are only 32 rows
ABSENT_ROWS_CYCLES = 320.0  # per k-block, of a CTA that multicasts rows beyond M
TILE_CYCLES = 590.0  # per tile: the pipeline drains, the results leave
SLAB_CYCLES = 500.0  # each time a slab must be read out before it is written again


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
    tile = config.tile
    k_blocks = -(-problem.k // BLOCK_K)
    waves = _waves(problem, config, num_sms)
    compute = K_BLOCK_CYCLES.get((tile.block_m, tile.block_n)) or _unmeasured(config)
    fill = _fill_cycles(problem, config)
    per_block = _both(compute, fill)
    per_block += _cluster_cycles(problem, config)
    kernel_us = waves * (k_blocks * per_block + _output_cycles(config)) / FITTED_CLOCK_MHZ
    memory_us = problem.bytes / device.hbm_bytes_per_us
    limit = "device memory" if memory_us > kernel_us else "mma" if compute >= fill else "copies"
    return Estimate(FIXED_US + _both(kernel_us, memory_us), waves, per_block, limit)


def _both(x: float, y: float) -> float:
    """Return the time of two things that overlap: the longer one, and more where they are close."""
    return (x**4 + y**4) ** 0.25


def _waves(problem: GemmProblem, config: GemmConfig, num_sms: int) -> int:
    tiles_m = -(-problem.m // (config.tile.block_m * config.cluster_m))
    tiles_n = -(-problem.n // (config.tile.block_n * config.cluster_n))
    return -(-tiles_m * tiles_n // max(1, num_sms // config.cluster))


def _unmeasured(config: GemmConfig) -> float:
    """Return k-block cycles for a tile outside the table: the MMAs, half again."""
    return 1.5 * config.tile.block_m * config.tile.block_n / 32 + 100


def _fill_cycles(problem: GemmProblem, config: GemmConfig) -> float:
    rows_a = min(config.tile.block_m, problem.m) / config.cluster_n
    rows_b = min(config.tile.block_n, problem.n) / config.cluster_m
    return max((rows_a + rows_b) * BLOCK_K / FILL_BYTES, LOAD_LATENCY / config.num_stages)


def _cluster_cycles(problem: GemmProblem, config: GemmConfig) -> float:
    if config.cluster == 1:
        return 0.0
    if config.cluster_n > 1 and problem.m < config.tile.block_m:
        return ABSENT_ROWS_CYCLES
    if config.cluster_n > 1 and config.tile.block_m == WAVE_M:
        return CLUSTER_CYCLES + SHORT_SHARE_CYCLES
    return CLUSTER_CYCLES


def _output_cycles(config: GemmConfig) -> float:
    store = config.store
    slabs = config.tile.waves * config.tile.block_n // store.slab_columns
    return TILE_CYCLES + SLAB_CYCLES * (slabs - store.num_buffers)
