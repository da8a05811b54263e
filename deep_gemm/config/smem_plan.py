"""Shared memory of a configuration: the one table; the kernel asserts that it agrees."""

from __future__ import annotations

from dataclasses import dataclass

from .tile import BLOCK_K, WAVE_M, GemmConfig


@dataclass(frozen=True)
class SmemPlan:
    """Bytes of each region of a CTA's shared memory, in the order in which they lie."""

    rows: int
    columns: int
    output: int
    exchange: int
    scales: int
    barriers: int

    @property
    def total(self) -> int:
        """Bytes of dynamic shared memory the kernel is launched with."""
        return sum(vars(self).values())


def plan(config: GemmConfig) -> SmemPlan:
    """Return the shared-memory plan of a configuration.

    A stage holds BLOCK_M + BLOCK_N rows of 128 bytes, a scale of each token (room for whole warps)
    and 16 bytes for those of the weights. Where K is split, every CTA is sent its piece of each
    other's sums.
    """
    tile, store, stages = config.tile, config.store, config.num_stages
    slab = WAVE_M * store.slab_columns * 2
    tokens = tile.block_n if config.swapped else tile.block_m
    exchanged = (config.split_k - 1) * tile.num_math_warpgroups * WAVE_M * config.piece_n * 4
    return SmemPlan(
        rows=stages * tile.block_m * BLOCK_K,
        columns=stages * tile.block_n * BLOCK_K,
        output=tile.num_math_warpgroups * store.num_buffers * slab,
        exchange=exchanged,
        scales=stages * (-(-tokens // 32) * 32 * 4 + 16),
        barriers=2 * 8 * (stages + 1),
    )
