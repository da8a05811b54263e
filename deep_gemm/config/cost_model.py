"""Predicted time of a problem under a configuration, in microseconds.

In a k-block of a CTA two things overlap: its MMAs, with what of the promotion does not hide under
them, and the copies that fill its stage. Tiles run in waves over the SMs; the whole overlaps with
what it moves through device memory, and no kernel draws more power than the card gives. Every
constant is fitted to sweeps (benchmarks/sweep.py; NVIDIA H200, CUDA 13.0, 2026-11-29, 84 dense
shapes; docs/findings.md says how well).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import GemmProblem
from .device import DeviceSpec
from .tile import BLOCK_K, WAVE_M, GemmConfig

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
SWAPPED_K_BLOCK_CYCLES = {
    (64, 8): 138, (64, 16): 130, (64, 32): 117,
    (128, 8): 269, (128, 16): 264, (128, 32): 305,
}  # fmt: skip

FITTED_CLOCK_MHZ = 1700.0  # at which the cycles here were read off the times
FIXED_US = 2.35  # launch, set-up, first load, last store
IDLE_SMS_US = 0.356  # less of it where half the SMs are free: the next kernel sets up on them
RESIDENT_US = 0.01  # less of it where two kernels fit one SM
LARGE_CLUSTER_US = 0.25  # more of it for clusters above 2
FILL_BYTES = 80.0  # per cycle, into the shared memory of an SM
LOAD_LATENCY = 402.0  # cycles of a stage's loads that no other stage hides, over the stages
CLUSTER_CYCLES = 41.6  # per k-block, of waiting for the other CTA's releases
SMALL_CLUSTER_CYCLES = 7.9  # the same for tiles of 64 rows
TILE_CYCLES = 529.0  # per tile: the pipeline drains, the results leave
TILE_AREA_CYCLES = 661.0  # and per 128 x 128 of it
EXCHANGE_US = 0.311  # of a sum over a cluster, beside its bytes
EXCHANGE_BYTES = 17.4  # per cycle, from an SM to the others of its cluster
POWER_FLOPS = 2.86e9  # per microsecond, if operands cost no power to move
POWER_PER_ROW = 73.1  # rows of an operand moved for each row or column it meets, against a FLOP
CAMPING = 0.11  # slower reads of rows that lie a multiple of CAMPING_BYTES apart
CAMPING_BYTES = 8192
CAMPING_SPLITS = 4  # at so many places of K at once the reads spread again
EARLY_HBM_US = 4.2e6  # bytes of B per microsecond that are read before the kernel ahead has ended
EARLY_FREE_US = 3.5  # of them that fill the wait alone
EARLY_GAIN, EARLY_GAIN_WIDE, EARLY_MOST_US = 0.5, 3.61, 1.43
LAST_STORE = 0.72  # of the last wave's output time is not hidden

_SHARPNESS = 8  # of the larger of two in a k-block, and of three below
_SHARPNESS_WHOLE = 4


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
    k_blocks = -(-problem.k // (BLOCK_K * config.split_k))
    compute, fill = _compute_cycles(config), _fill_cycles(problem, config)
    per_block = _both(_SHARPNESS, compute, fill) + _cluster_cycles(config)
    parts = {
        "mma" if compute >= fill else "copies": waves
        * (k_blocks * per_block + _tile_cycles(config))
        / FITTED_CLOCK_MHZ,
        "device memory": _memory_us(problem, config, device, waves),
        "power": _power_us(problem, config),
    }
    us = _fixed_us(config, ctas, num_sms) + _both(_SHARPNESS_WHOLE, *parts.values())
    us += waves * _exchange_us(config) + _last_store_us(problem, device, waves)
    if problem.static_b:
        blocks = early_blocks(config, problem.k, ctas, device.sm_count)
        us -= _early_us(config, blocks, ctas)
    return Estimate(us, waves, per_block, max(parts, key=lambda name: parts[name]))


def early_blocks(config: GemmConfig, k: int, ctas: int, sm_count: int) -> int:
    """Return how many k-blocks of a B that nobody writes each CTA reads ahead of the dependency.

    Half of the stages are filled, three quarters where tokens are columns, and of a short K half of
    it: tokens queue behind the weights, and fewer of them for less long. A grid of half the SMs
    there are reads nothing ahead: its successor starts beside it, not after it, and would only
    compete with it for memory (docs/findings.md).
    """
    if 2 * ctas <= sm_count:
        return 0
    stages, k_blocks = config.num_stages, -(-k // (BLOCK_K * config.split_k))
    share = stages * 3 // 4 if config.swapped else stages // 2
    return min(share, k_blocks, max(8, k_blocks // 2))


def _both(sharpness: int, *times: float) -> float:
    """Return the time of things that overlap: the longest one, and more where they are close."""
    return float(sum(time**sharpness for time in times) ** (1 / sharpness))


def _tiles(problem: GemmProblem, config: GemmConfig) -> int:
    rows, columns = config.oriented(problem.m, problem.n)
    tiles_m = -(-rows // (config.tile.block_m * config.cluster_m))
    tiles_n = -(-columns // (config.tile.block_n * config.cluster_n))
    return tiles_m * tiles_n


def _slots(config: GemmConfig, num_sms: int) -> int:
    """Return how many clusters run at once: larger ones leave SMs of a GPC over."""
    share = 112 if config.cluster >= 8 else 120 if config.cluster >= 3 else 132
    return max(1, num_sms * share // 132 // config.cluster)


def _compute_cycles(config: GemmConfig) -> float:
    shape = config.tile.block_m, config.tile.block_n
    known = (SWAPPED_K_BLOCK_CYCLES if config.swapped else K_BLOCK_CYCLES).get(shape)
    # Outside the tables: the MMAs, half again.
    return known or 1.5 * shape[0] * shape[1] / 32 + 100


def _fill_cycles(problem: GemmProblem, config: GemmConfig) -> float:
    rows, columns = config.oriented(problem.m, problem.n)
    filled = min(config.tile.block_m, rows) + min(config.tile.block_n, columns)
    return max(filled * BLOCK_K / FILL_BYTES, LOAD_LATENCY / config.num_stages)


def _cluster_cycles(config: GemmConfig) -> float:
    if config.multicast == 1 or (config.tile.block_m == WAVE_M and config.split_k > 1):
        return 0.0
    return SMALL_CLUSTER_CYCLES if config.tile.block_m == WAVE_M else CLUSTER_CYCLES


def _tile_cycles(config: GemmConfig) -> float:
    return TILE_CYCLES + TILE_AREA_CYCLES * config.tile.block_m * config.tile.block_n / 128**2


def _memory_us(problem: GemmProblem, config: GemmConfig, device: DeviceSpec, waves: int) -> float:
    camping = problem.k % CAMPING_BYTES == 0 and config.split_k < CAMPING_SPLITS
    moved = problem.bytes - _last_output_bytes(problem, waves)
    return moved / device.hbm_bytes_per_us * (1 + CAMPING * camping)


def _last_output_bytes(problem: GemmProblem, waves: int) -> float:
    return problem.m * problem.n * problem.d_dtype.bytes / waves


def _last_store_us(problem: GemmProblem, device: DeviceSpec, waves: int) -> float:
    return LAST_STORE * _last_output_bytes(problem, waves) / device.hbm_bytes_per_us


def _power_us(problem: GemmProblem, config: GemmConfig) -> float:
    tile = config.tile
    moved = 1 / (tile.block_n * config.cluster_n) + 1 / (tile.block_m * config.cluster_m)
    return problem.flops / POWER_FLOPS * (1 + POWER_PER_ROW * moved)


def _fixed_us(config: GemmConfig, ctas: int, num_sms: int) -> float:
    if config.ctas_per_sm > 1:
        fixed = FIXED_US - RESIDENT_US
    else:
        fixed = FIXED_US - IDLE_SMS_US * min(1.0, 2 * (num_sms - ctas) / num_sms)
    return fixed + (LARGE_CLUSTER_US if config.cluster > 2 else 0.0)


def _exchange_us(config: GemmConfig) -> float:
    if config.split_k == 1:
        return 0.0
    owners = -(-config.tile.block_n // config.piece_n)
    rows = WAVE_M * config.tile.num_math_warpgroups
    sent = (owners - 1) * rows * config.piece_n * 4
    return EXCHANGE_US + sent / EXCHANGE_BYTES / FITTED_CLOCK_MHZ


def _early_us(config: GemmConfig, blocks: int, ctas: int) -> float:
    """Return what reading so many k-blocks of B ahead saves."""
    rows = config.tile.block_m if config.swapped else config.tile.block_n
    if config.cluster_m > 1 and not config.swapped:
        return 0.0  # weights that arrive by multicast wait for both CTAs
    read_us = ctas * blocks * rows * BLOCK_K / EARLY_HBM_US
    wide = config.swapped and config.tile.block_m > WAVE_M
    gain = (read_us - EARLY_FREE_US) * (EARLY_GAIN_WIDE if wide else EARLY_GAIN)
    return min(EARLY_MOST_US, max(0.0, gain))
