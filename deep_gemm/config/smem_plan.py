"""Shared memory of a configuration: the one table; the kernel asserts that it agrees."""

from __future__ import annotations

from dataclasses import dataclass

from .tile import ROW_BYTES, WAVE_M, GemmConfig

RING_SLOTS, SLOT_BYTES = 8, 32  # of tiles of groups, on their way to all roles
OUTER_BYTES = 32  # of the scale of a row or column where they are operands of an MMA


@dataclass(frozen=True)
class SmemPlan:
    """Bytes of each region of a CTA's shared memory, in the order in which they lie."""

    operands: int
    output: int
    exchange: int
    scales: int
    vectors: int
    tiles: int
    barriers: int

    @property
    def total(self) -> int:
        """Bytes of dynamic shared memory the kernel is launched with."""
        return sum(vars(self).values())


def plan(config: GemmConfig) -> SmemPlan:
    """Return the shared-memory plan of a configuration.

    A stage holds BLOCK_M + BLOCK_N rows of 128 bytes and the scales along K: one of each token
    (room for whole warps) and 16 bytes of those of the weights' blocks, or 32 bytes for each of
    both. Scales after all of K are there for the rows and columns of each tile that is in work.
    Where K is split, every CTA is sent its piece of each other's sums.
    """
    tile, store, stages, form = config.tile, config.store, config.num_stages, config.form
    slab = WAVE_M * store.slab_columns * form.d.bytes
    exchanged = (config.split_k - 1) * tile.num_math_warpgroups * WAVE_M * config.piece_n * 4
    vectors = -(-(tile.block_m + tile.block_n) * 4 // 16) * 16
    slots = RING_SLOTS if form.grouping != "none" else 0
    return SmemPlan(
        operands=stages * config.stage_rows * ROW_BYTES,
        output=tile.num_math_warpgroups * store.num_buffers * slab,
        exchange=exchanged,
        scales=stages * _scales_of_stage(config),
        vectors=tile.at_once * vectors if form.scaled else 0,
        tiles=slots * SLOT_BYTES,
        barriers=2 * 8 * (stages + 1 + tile.at_once + slots),
    )


def _scales_of_stage(config: GemmConfig) -> int:
    promotion = config.form.promotion
    if promotion not in ("block", "rows"):
        return 0
    tile = config.tile
    tokens, weights = tile.block_m, tile.block_n
    if config.swapped:
        tokens, weights = weights, tokens
    if promotion == "rows":
        return (tokens + weights) * OUTER_BYTES
    return -(-tokens // 32) * 32 * 4 + 16
