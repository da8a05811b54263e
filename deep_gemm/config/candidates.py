"""Every configuration worth considering; a pure function of the device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .device import DeviceSpec
from .legality import MAX_STAGES, reasons
from .smem_plan import plan
from .tile import GemmConfig, StoreConfig, TileConfig

# (BLOCK_M, math warpgroups): block n's. Narrow tiles fill the SMs when M is small; 112, 144 and 176
# are there because 7168 = 64 * 112, 2112 = 12 * 176 and 576 = 4 * 144.
_TILES = {
    (64, 1): (16, 24, 32, 48, 64, 96, 112, 128, 144, 160, 176, 192),
    (128, 2): (16, 24, 32, 48, 64, 96, 112, 128, 144, 160, 176, 192),
    (192, 3): (64, 96, 112, 128),
    (256, 2): (64, 96, 112, 128),
}
_CLUSTERS = ((1, 1), (2, 1), (1, 2))


@cache
def candidates(device: DeviceSpec) -> tuple[GemmConfig, ...]:
    """Return all legal configurations for a device, each with as many stages as fit."""
    return tuple(c for c in _enumerate(device) if not reasons(c, device))


def _enumerate(device: DeviceSpec) -> Iterator[GemmConfig]:
    for (block_m, warpgroups), block_ns in _TILES.items():
        for block_n in block_ns:
            tile = TileConfig(block_m, block_n, warpgroups)
            for cluster_m, cluster_n in _CLUSTERS:
                for store in store_choices(tile):
                    config = GemmConfig(tile, cluster_m, cluster_n, 2, store)
                    yield deepest(config, device)


def store_choices(tile: TileConfig) -> list[StoreConfig]:
    """Return the ways to stage a tile's output: all of it, and, if it is large, one slab in turn.

    A whole tile is written without waiting; a slab leaves room for another stage.
    """
    box = next(b for b in (64, 32, 16, 8) if tile.block_n % b == 0)
    whole = StoreConfig(box, tile.block_n, tile.waves)
    if tile.block_m * tile.block_n < 192 * 128:
        return [whole]
    lean = StoreConfig(box, 64 if box == 64 else tile.block_n // 2, 1)
    return [whole, lean] if tile.block_n % lean.slab_columns == 0 else [whole]


def deepest(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return the configuration with the most stages that fit, at most MAX_STAGES."""

    def with_stages(stages: int) -> GemmConfig:
        return GemmConfig(
            config.tile, config.cluster_m, config.cluster_n, stages, config.store
        )

    fixed = plan(with_stages(0)).total
    per_stage = plan(with_stages(1)).total - fixed
    return with_stages(min(MAX_STAGES, (device.smem_bytes - fixed) // per_stage))
