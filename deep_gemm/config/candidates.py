"""Every configuration worth considering; a pure function of the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from .cost_model import K_BLOCK_CYCLES
from .device import DeviceSpec
from .legality import MAX_STAGES, reasons
from .smem_plan import plan
from .tile import GemmConfig, StoreConfig, TileConfig

_CLUSTERS = ((1, 1), (2, 1), (1, 2))
_WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by BLOCK_M


@cache
def candidates(device: DeviceSpec) -> tuple[GemmConfig, ...]:
    """Return all legal configurations for a device, each with as many stages as fit."""
    return tuple(c for c in _enumerate(device) if not reasons(c, device))


def _enumerate(device: DeviceSpec) -> Iterator[GemmConfig]:
    for block_m, block_n in K_BLOCK_CYCLES:
        tile = TileConfig(block_m, block_n, _WARPGROUPS[block_m])
        for cluster_m, cluster_n in _CLUSTERS:
            for store in store_choices(tile):
                yield deepest(GemmConfig(tile, cluster_m, cluster_n, 0, store), device)


def store_choices(tile: TileConfig) -> list[StoreConfig]:
    """Return the ways to stage a tile's output.

    A whole tile is written without waiting. Where that much memory would cost the fourth stage,
    one slab written in turn is a choice too.
    """
    box = next(b for b in (64, 32, 16, 8) if tile.block_n % b == 0)
    whole = StoreConfig(box, tile.block_n, tile.waves)
    return [whole, StoreConfig(box, 64, 1)] if (tile.waves, box) == (2, 64) else [whole]


def deepest(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return the configuration with the most stages that fit, at most MAX_STAGES."""
    fixed = plan(replace(config, num_stages=0)).total
    per_stage = plan(replace(config, num_stages=1)).total - fixed
    stages = (device.smem_bytes - fixed) // per_stage
    return replace(config, num_stages=min(MAX_STAGES, stages))
