"""Every configuration worth considering; a pure function of the device and the variant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ..problem import GemmProblem, GemmVariant, Mainloop
from ..problem.variant import FP8_1D2D
from .device import DeviceSpec
from .gemm_config import GemmConfig
from .legality import MAX_STAGES, SWIZZLED_BYTES, is_box, problem_conflicts, violations
from .shared_storage import shared_storage, stage_bytes
from .tile import SLICE_M, StoreConfig, TileConfig

_NO_STORE = StoreConfig(0, 0, 0)
# Bytes of output that a math warpgroup stages at a time; more of 16-bit output with 1D2D scaling,
# whose tiles are small for their registers.
MAX_STAGED, MAX_STAGED_1D2D = 16 << 10, 36 << 10
_WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by mma_m

# Tiles, (BLOCK_M, BLOCK_N), that were ever the best of a sweep (benchmarks/sweep.py).
PROMOTED_TILES = (
    (64, 16), (64, 32), (64, 48), (64, 64), (64, 96), (64, 128), (64, 136), (64, 144),
    (128, 64), (128, 96), (128, 128), (128, 136), (128, 144), (128, 160), (128, 192),
    (192, 96), (192, 128), (256, 128), (256, 136), (256, 144),
)  # fmt: skip
TILES_1D1D = (
    (64, 32), (64, 64), (64, 96), (64, 128),
    (128, 64), (128, 96), (128, 104), (128, 112), (128, 120), (128, 128), (128, 136),
)  # fmt: skip
DIRECT_TILES = (
    (64, 32), (64, 64), (64, 96), (64, 128), (64, 160), (64, 192), (64, 256),
    (128, 32), (128, 64), (128, 96), (128, 112), (128, 128), (128, 144), (128, 160), (128, 176),
    (128, 192), (128, 208), (128, 224), (128, 256),
    (192, 128), (192, 192), (256, 64), (256, 96), (256, 112), (256, 128),
)  # fmt: skip
PING_PONG_TILES = ((64, 192), (64, 256), (128, 96), (128, 128), (128, 160), (128, 192))
SWAP_AB_TILES = ((8, 64), (16, 64), (32, 64), (8, 128), (16, 128), (32, 128))
# With swap-AB, (split_k, ctas_per_sm) by BLOCK_N.
_SWAP_AB_SPLITS = {
    64: ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2)),
    128: ((1, 1), (2, 1), (4, 1)),
}
# Promoted, split-K: (BLOCK_M, BLOCK_N, split_k, cluster_m, cluster_n, ctas_per_sm).
_SPLIT_K = (
    (64, 32, 2, 1, 1, 1), (64, 32, 2, 1, 1, 2), (64, 32, 4, 1, 1, 1),
    (64, 64, 2, 1, 1, 1), (64, 64, 4, 1, 1, 1), (64, 64, 4, 2, 1, 1), (64, 64, 8, 1, 1, 1),
    (64, 96, 2, 1, 1, 1), (64, 96, 2, 2, 1, 1), (64, 96, 4, 1, 1, 1), (64, 96, 4, 2, 1, 1),
    (64, 128, 2, 2, 1, 1), (64, 128, 2, 1, 2, 1), (64, 128, 4, 1, 1, 1),
    (64, 136, 2, 1, 1, 1), (64, 144, 2, 1, 1, 1),
    (128, 64, 2, 1, 1, 1), (128, 96, 2, 1, 1, 1), (128, 96, 2, 2, 1, 1), (128, 96, 4, 1, 1, 1),
    (128, 128, 2, 1, 1, 1), (128, 136, 2, 1, 1, 1),
)  # fmt: skip
# With groups: tiles that were never the best of a sweep, and further ones that were, as
# ((BLOCK_M, BLOCK_N), (cluster_m, cluster_n)).
_NOT_GROUPED = {
    (64, 136), (64, 144), (128, 136), (128, 144), (128, 160), (256, 136), (256, 144),
}  # fmt: skip
_GROUPED = (((128, 128), (1, 2)),)


@cache
def candidates(device: DeviceSpec, variant: GemmVariant = FP8_1D2D) -> tuple[GemmConfig, ...]:
    """Return all legal configurations of a variant for a device, with as many stages as fit."""
    tiles = {Mainloop.DIRECT: _direct, Mainloop.SCALED_1D1D: _scaled_1d1d}
    found = list(tiles.get(variant.mainloop, _promoted)())
    if variant.is_grouped and variant.mainloop in (Mainloop.SCALED_1D2D, Mainloop.PROMOTED):
        found = [c for c in found if c.split_k > 1 or not _is_left_out(c.tile)]
        found += [GemmConfig(_tile(*shape), *shared, 0, _NO_STORE) for shape, shared in _GROUPED]
    finished = (finalize(replace(config, variant=variant), device) for config in found)
    return tuple(config for config in finished if not violations(config, device))


def _is_left_out(tile: TileConfig) -> bool:
    return (tile.mma_m, tile.mma_n) in _NOT_GROUPED


# Each yields tiles with their clusters; neither stages nor store path are chosen.


def _promoted() -> Iterator[GemmConfig]:
    for block_m, block_n in PROMOTED_TILES:
        for cluster_m, cluster_n in _clusters(block_m, block_n):
            yield GemmConfig(_tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE)
    for block_m, block_n, split_k, cluster_m, cluster_n, ctas_per_sm in _SPLIT_K:
        yield GemmConfig(
            _tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE, split_k, ctas_per_sm
        )
    yield from _swap_ab()


def _scaled_1d1d() -> Iterator[GemmConfig]:
    for block_m, block_n in TILES_1D1D:
        for cluster_m, cluster_n in _clusters(block_m, block_n):
            yield GemmConfig(_tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE)
        if block_m == 64 or block_n <= 96:
            for split_k in (2, 4):
                yield GemmConfig(_tile(block_m, block_n), 1, 1, 0, _NO_STORE, split_k)


def _direct() -> Iterator[GemmConfig]:
    for block_m, block_n in DIRECT_TILES:
        tile = _tile(block_m, block_n)
        yield GemmConfig(tile, 1, 1, 0, _NO_STORE)
        if block_n % 16 == 0:
            yield GemmConfig(tile, 2, 1, 0, _NO_STORE)
        if block_m >= 128 and (block_n >= 128 or block_m == 256):
            yield GemmConfig(tile, 1, 2, 0, _NO_STORE)
        if block_m <= 128 and block_n <= 144:
            for split_k in (2, 4) if block_n <= 128 else (2,):
                yield GemmConfig(tile, 1, 1, 0, _NO_STORE, split_k)
    for block_m, block_n in PING_PONG_TILES:
        for cluster_m, cluster_n in ((1, 1), (2, 1), (1, 2)):
            tile = TileConfig(block_m, block_n, 2, ping_pong=True)
            yield GemmConfig(tile, cluster_m, cluster_n, 0, _NO_STORE)
    yield from _swap_ab()


def _swap_ab() -> Iterator[GemmConfig]:
    for block_m, block_n in SWAP_AB_TILES:
        tile = TileConfig(block_m, block_n, _WARPGROUPS[block_n], swap_ab=True)
        for split_k, ctas_per_sm in _SWAP_AB_SPLITS[block_n]:
            yield GemmConfig(tile, 1, 1, 0, _NO_STORE, split_k, ctas_per_sm)


def _clusters(block_m: int, block_n: int) -> tuple[tuple[int, int], ...]:
    """Return the ways to share operands that were ever the best of a sweep."""
    if block_n in (136, 144) or (block_m, block_n) == (192, 96):
        return ((1, 1),)
    if block_m == 64 or (block_m, block_n) == (128, 128):
        return ((1, 1), (2, 1))
    return ((1, 1), (2, 1), (1, 2))


def _tile(block_m: int, block_n: int) -> TileConfig:
    return TileConfig(block_m, block_n, _WARPGROUPS[block_m])


def is_applicable(config: GemmConfig, problem: GemmProblem, num_sms: int) -> bool:
    """Say whether a configuration is worth pricing for a problem.

    A tile with swap-AB must hold all rows of A, of a group those expected, and be the smallest that
    does; a cluster must fit the SMs.
    """
    if config.cluster_size > num_sms or problem_conflicts(config, problem):
        return False
    if not config.tile.swap_ab:
        return True
    m = problem.expected[1].m
    return config.tile.block_m == next((b for b in _SWAP_AB_BLOCK_M if b >= m), None)


_SWAP_AB_BLOCK_M = sorted({block_m for block_m, _ in SWAP_AB_TILES})


def finalize(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return a configuration with its store path, and as many stages as fit.

    1D1D, whose epilogues are long, has two store stages of half the tile each where that costs no
    pipeline stage: nothing then waits for a store.
    """
    chosen = max_stages(replace(config, store=store_choice(config)), device)
    columns = config.reduce_mma_n // 2
    if config.variant.mainloop is not Mainloop.SCALED_1D1D or chosen.store.num_stages != 2:
        return chosen
    if columns % chosen.store.box_n:
        return chosen
    halves = replace(chosen, store=replace(chosen.store, stage_mma_n=columns))
    halves = max_stages(halves, device)
    return halves if halves.num_stages == chosen.num_stages else chosen


def store_choice(config: GemmConfig) -> StoreConfig:
    """Return how a tile is stored: in the widest boxes that its columns allow, in one store stage
    if that leaves room for pipeline stages, else box by box in two.

    Boxes whose rows are 128, 64 or 32 bytes are swizzled; an odd number of 16 bytes is one box
    without. The N tail is one box more.
    """
    variant, tile, columns, tail = config.variant, config.tile, config.reduce_mma_n, config.n_tail
    widths = [size // variant.d.bytes for size in reversed(SWIZZLED_BYTES)]
    if tile.swap_ab:
        return StoreConfig(widths[0], columns, tile.m_slices)
    is_1d2d = variant.mainloop is Mainloop.SCALED_1D2D and variant.d.bytes == 2
    boxed = columns - tail or tail
    remainders = [n for n in range(0, 64, 8) if n == 0 or is_box(n * variant.d.bytes)]
    allowed = {0} if is_1d2d else set(remainders)
    box = next((w for w in widths if w <= boxed and boxed % w in allowed), boxed)
    staged = SLICE_M * columns * variant.d.bytes * tile.m_slices
    if not tail and staged > (MAX_STAGED_1D2D if is_1d2d else MAX_STAGED):
        return StoreConfig(box, max(box, widths[0] // box * box), 2)
    return StoreConfig(box, columns, tile.m_slices)


def max_stages(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return the configuration with the most pipeline stages that fit, at most MAX_STAGES."""
    per_stage = stage_bytes(config)
    fixed = shared_storage(config).total - config.num_stages * per_stage
    stages = (device.smem_per_cta(config.ctas_per_sm) - fixed) // per_stage
    return replace(config, num_stages=min(MAX_STAGES, stages))
