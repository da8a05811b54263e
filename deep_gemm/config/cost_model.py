"""Predicted time of a problem under a configuration, in microseconds.

A CTA's k-block takes as long as the slower of two things: its MMAs with the promotion that does
not hide under them, or the copies that fill its stage. Tiles run in waves over the SMs; device
memory bounds the whole. The constants are fitted to sweeps on an H200 (see docs/findings.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import GemmProblem
from .device import DeviceSpec
from .tile import BLOCK_K, WAVE_M, GemmConfig


@dataclass(frozen=True)
class Constants:
    """Fitted figures; cycles are SM cycles.

    fixed_us: launch, set-up, first load and last store of a kernel.
    exposed: cycles per k-block by number of math warpgroups that no MMA covers.
    fill_bytes: bytes per cycle a CTA draws from L2 with all SMs drawing.
    load_latency: cycles from issuing a stage's loads to its arrival.
    tile_cycles, store_bytes: per tile, a constant and the rate at which results leave.
    """

    fixed_us: float = 2.2
    exposed: tuple[float, float, float] = (100.0, 95.0, 50.0)
    fill_bytes: float = 36.0
    load_latency: float = 1000.0
    tile_cycles: float = 500.0
    store_bytes: float = 64.0


FITTED = Constants()


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
    constants = FITTED
    k_blocks = -(-problem.k // BLOCK_K)
    waves = _waves(problem, config, num_sms)
    compute = _compute_cycles(config, constants)
    fill = _fill_cycles(problem, config, constants)
    per_block = max(compute, fill)
    tile = config.tile
    output = constants.tile_cycles + tile.block_m * tile.block_n * 2 / constants.store_bytes
    cycles = waves * (k_blocks * per_block + output)
    kernel_us = constants.fixed_us + cycles / device.clock_mhz
    memory_us = constants.fixed_us + problem.bytes / device.hbm_bytes_per_us
    limit = "device memory" if memory_us > kernel_us else "mma" if compute >= fill else "copies"
    return Estimate(max(kernel_us, memory_us), waves, per_block, limit)


def _waves(problem: GemmProblem, config: GemmConfig, num_sms: int) -> int:
    tiles_m = -(-problem.m // (config.tile.block_m * config.cluster_m))
    tiles_n = -(-problem.n // (config.tile.block_n * config.cluster_n))
    return -(-tiles_m * tiles_n // max(1, num_sms // config.cluster))


def _compute_cycles(config: GemmConfig, constants: Constants) -> float:
    tile = config.tile
    exposed = constants.exposed[tile.num_math_warpgroups - 1]
    if tile.num_math_warpgroups == 1:
        exposed += tile.waves * tile.block_n / 2
    # A wgmma reads 64 rows of A however narrow B is: 16 cycles + n / 4, against n / 2 of MMA.
    mma = max(tile.block_n / 2, 16 + tile.block_n / 4) * BLOCK_K / 32
    return tile.block_m / WAVE_M * mma + exposed


def _fill_cycles(problem: GemmProblem, config: GemmConfig, constants: Constants) -> float:
    rows_a = min(config.tile.block_m, problem.m) / config.cluster_n
    rows_b = min(config.tile.block_n, problem.n) / config.cluster_m
    rate = (rows_a + rows_b) * BLOCK_K / constants.fill_bytes
    return max(rate, constants.load_latency / config.num_stages)
