"""Shared memory of a configuration: cuda/gemm/shared_storage.cuh, whose size the kernel asserts."""

from __future__ import annotations

from typing import NamedTuple

from ..layouts import align
from ..problem.choices import Mainloop
from .gemm_config import ROW_BYTES, GemmConfig
from .tile import SLICE_M

WORK_TILE_STAGES, WORK_TILE_BYTES = 8, 32  # tiles of groups, broadcast to all roles
SCALE_BYTES_1D1D = 32  # of one m or n in a stage, where scales are operands of an MMA
BARRIER_BYTES = 8


class SharedStorage(NamedTuple):
    """Bytes of each part of a CTA's shared memory, in the order in which they lie."""

    operands: int
    store: int
    reduce: int
    scales: int
    epilogue_scales: int
    work_tiles: int
    barriers: int

    @property
    def total(self) -> int:
        """Bytes of dynamic shared memory that the kernel is launched with."""
        return sum(self)


def shared_storage(config: GemmConfig) -> SharedStorage:
    """Return the parts of a configuration's shared memory.

    A stage holds BLOCK_M + BLOCK_N rows of 128 bytes and the scales along K. Epilogue scales are
    those of each tile in flight. Where K is split, a CTA receives its columns of the other CTAs'
    partial sums.
    """
    tile, store, stages, variant = config.tile, config.store, config.num_stages, config.variant
    store_stage = SLICE_M * store.stage_mma_n * variant.d.bytes
    received = (config.split_k - 1) * tile.num_math_warpgroups * SLICE_M * config.reduce_mma_n * 4
    tile_scales = 4 * (tile.block_m + tile.block_n) if variant.has_epilogue_scales else 0
    work_tiles = WORK_TILE_STAGES if variant.is_grouped else 0
    pairs = stages + 1 + tile.tiles_in_flight + work_tiles  # of full and empty barriers
    return SharedStorage(
        operands=stages * sum(config.stage_rows) * ROW_BYTES,
        store=tile.num_math_warpgroups * store.num_stages * store_stage,
        reduce=received,
        scales=stages * _stage_scale_bytes(config),
        epilogue_scales=tile.tiles_in_flight * tile_scales,
        work_tiles=work_tiles * WORK_TILE_BYTES,
        barriers=2 * BARRIER_BYTES * pairs,
    )


def stage_bytes(config: GemmConfig) -> int:
    """Return the bytes that one more pipeline stage takes: operands, scales and two barriers."""
    return sum(config.stage_rows) * ROW_BYTES + _stage_scale_bytes(config) + 2 * BARRIER_BYTES


def _stage_scale_bytes(config: GemmConfig) -> int:
    tile, mainloop = config.tile, config.variant.mainloop
    if mainloop is Mainloop.SCALED_1D1D:
        return (tile.block_m + tile.block_n) * SCALE_BYTES_1D1D
    if mainloop is Mainloop.SCALED_1D2D:
        return align(tile.block_m, 32) * 4 + 16
    return 0
