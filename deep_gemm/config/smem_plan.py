"""Shared memory of a configuration: the one table; the kernel asserts that it agrees."""

from __future__ import annotations

from dataclasses import dataclass

from .tile import BLOCK_K, WAVE_M, GemmConfig


@dataclass(frozen=True)
class SmemPlan:
    """Bytes of each region of a CTA's shared memory, in the order in which they lie."""

    operand_a: int
    operand_b: int
    output: int
    scales: int
    barriers: int

    @property
    def total(self) -> int:
        """Bytes of dynamic shared memory the kernel is launched with."""
        return self.operand_a + self.operand_b + self.output + self.scales + self.barriers


def plan(config: GemmConfig) -> SmemPlan:
    """Return the shared-memory plan of a configuration.

    A stage holds BLOCK_M + BLOCK_N rows of 128 bytes, BLOCK_M scales of A and up to 4 of B.
    """
    tile, store, stages = config.tile, config.store, config.num_stages
    slab = WAVE_M * store.slab_columns * 2
    return SmemPlan(
        operand_a=stages * tile.block_m * BLOCK_K,
        operand_b=stages * tile.block_n * BLOCK_K,
        output=tile.num_math_warpgroups * store.num_buffers * slab,
        scales=stages * (tile.block_m * 4 + 16),
        barriers=stages * 2 * 8,
    )
