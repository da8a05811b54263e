"""Registers of a math thread: what its accumulators take, and what fits beside everything else."""

from __future__ import annotations

from ..problem.choices import Mainloop
from .gemm_config import GemmConfig

# Registers of a math thread left for accumulators, by math warpgroups and CTAs an SM holds; the
# rest holds addresses, scales and loop state. Every candidate compiles without spills (NVRTC 13.0).
MAX_ACCUMULATORS = {(1, 1): 216, (2, 1): 216, (3, 1): 144, (1, 2): 96, (2, 2): 48}
MAX_ACCUMULATORS_1D1D = {(1, 1): 204, (2, 1): 204}
# Registers of a producer and of a math thread after setmaxnreg; (0, 0) leaves them alone. Together
# warpgroups may not exceed what a CTA is launched with: 2 x 232 + 40 = 3 x 168, 3 x 160 + 32 =
# 4 x 128, 2 x 88 + 56 < 3 x 80.
BUDGETS = {(1, 1): (0, 0), (2, 1): (40, 232), (3, 1): (32, 160), (1, 2): (0, 0), (2, 2): (56, 88)}
# 1D1D, whose producer carries scales of both operands: 2 x 224 + 56 = 3 x 168.
BUDGETS_1D1D = {(2, 1): (56, 224)}
ORDER_REGISTERS = 8  # ping-pong: the order barrier and the tile in flight
GROUP_REGISTERS, RAGGED_REGISTERS = 8, 16  # the group; and rows stored one by one


def _key(config: GemmConfig) -> tuple[int, int]:
    return config.tile.num_math_warpgroups, config.ctas_per_sm


def num_partials(config: GemmConfig) -> int:
    """Return the sets of partial sums: 0 where accumulators stay in the tensor core.

    2 where registers allow, so that promotion overlaps the next MMAs.
    """
    mainloop = config.variant.mainloop
    if mainloop in (Mainloop.DIRECT, Mainloop.SCALED_1D1D):
        return int(mainloop is Mainloop.SCALED_1D1D)
    fits = _accumulators(config, 2) <= max_accumulators(config)
    return 2 if config.tile.m_slices == 1 and fits else 1


def accumulators(config: GemmConfig) -> int:
    """Return the registers for accumulators: each slice's, the partial sums, and their scales."""
    return _accumulators(config, num_partials(config))


def _accumulators(config: GemmConfig, partials: int) -> int:
    mainloop, mma_n = config.variant.mainloop, config.tile.mma_n
    scales = 0
    if mainloop is Mainloop.SCALED_1D1D:
        scales = mma_n // 2
    elif mainloop is Mainloop.SCALED_1D2D and config.tile.swap_ab:
        scales = partials * mma_n // 4
    return (config.tile.m_slices + partials) * mma_n // 2 + scales


def max_accumulators(config: GemmConfig) -> int:
    """Return how many registers there are for accumulators; 0 where no such kernel is built."""
    variant = config.variant
    if variant.mainloop is Mainloop.SCALED_1D1D:
        return MAX_ACCUMULATORS_1D1D.get(_key(config), 0)
    others = _epilogue_registers(config) if config.ctas_per_sm == 1 else 0
    others += ORDER_REGISTERS * config.tile.ping_pong
    if variant.is_grouped:
        others += RAGGED_REGISTERS if variant.group_kind.is_ragged else GROUP_REGISTERS
    return max(0, MAX_ACCUMULATORS.get(_key(config), 0) - others)


def _epilogue_registers(config: GemmConfig) -> int:
    return sum(op.registers for op in config.variant.epilogue)


def prefetches_c(config: GemmConfig) -> bool:
    """Say whether registers allow to read C for the next store stage while one is being stored.

    Beside the accumulators there are then the values of a stage, and C for it and the next one.
    """
    values = config.tile.m_slices * config.tile.mma_n // 2 + 3 * config.store.stage_mma_n // 2
    room = max_accumulators(config) - _epilogue_registers(config)
    return config.variant.reads_c and values <= room


def budgets(config: GemmConfig) -> tuple[int, int]:
    """Return the registers of a producer and of a math thread after setmaxnreg; (0, 0): as is."""
    is_1d1d = config.variant.mainloop is Mainloop.SCALED_1D1D
    return (BUDGETS_1D1D if is_1d1d else {}).get(_key(config), BUDGETS[_key(config)])
