"""What a kernel can be built with and what a problem can be run with, as sentences."""

from __future__ import annotations

from .device import DeviceSpec
from .smem_plan import plan
from .tile import MAX_ACCUMULATORS, WAVE_M, GemmConfig

MAX_STAGES = 16


def reasons(config: GemmConfig, device: DeviceSpec) -> list[str]:
    """Return why a configuration cannot be built for a device; an empty list means it can."""
    return _tile(config) + _cluster(config) + _store(config) + _storage(config, device)


def _tile(config: GemmConfig) -> list[str]:
    tile, found = config.tile, []
    if tile.num_math_warpgroups not in MAX_ACCUMULATORS:
        return [f"{tile.num_math_warpgroups} math warpgroups; 1 to 3 fit a CTA's registers"]
    if tile.block_m % (WAVE_M * tile.num_math_warpgroups) or not 0 < tile.block_m <= 256:
        found.append(f"BLOCK_M = {tile.block_m} is not whole waves of 64 rows, or is over 256")
    if tile.block_n % 8 or not 8 <= tile.block_n <= 256:
        found.append(f"BLOCK_N = {tile.block_n}; wgmma takes multiples of 8 from 8 to 256")
    limit = MAX_ACCUMULATORS[tile.num_math_warpgroups]
    if tile.accumulators > limit:
        found.append(f"{tile.accumulators} registers of sums in a thread; {limit} fit")
    return found


def _cluster(config: GemmConfig) -> list[str]:
    if config.cluster_m not in (1, 2) or config.cluster_n not in (1, 2) or config.cluster > 2:
        return [
            f"a cluster of {config.cluster_m} x {config.cluster_n}; one operand can be shared by 2"
        ]
    if config.cluster_m == 2 and config.tile.block_n % 16:
        return [f"half of BLOCK_N = {config.tile.block_n} is no multiple of the 8-row swizzle"]
    return []


def _store(config: GemmConfig) -> list[str]:
    store, found = config.store, []
    if store.box_columns not in (8, 16, 32, 64):
        found.append(f"output boxes of {store.box_columns} columns; 8, 16, 32 or 64 have a swizzle")
    elif store.slab_columns % store.box_columns or config.tile.block_n % store.slab_columns:
        found.append("output slabs are not whole boxes, or the tile is not whole slabs")
    if store.num_buffers < 1:
        found.append("no output slab")
    return found


def _storage(config: GemmConfig, device: DeviceSpec) -> list[str]:
    found = []
    if not 2 <= config.num_stages <= MAX_STAGES:
        found.append(f"{config.num_stages} stages; 2 to {MAX_STAGES} are supported")
    total = plan(config).total
    if total > device.smem_bytes:
        found.append(f"{total} bytes of shared memory; a CTA has {device.smem_bytes}")
    return found
