"""What a kernel can be built with and what a problem can be run with, as sentences."""

from __future__ import annotations

from .device import DeviceSpec
from .smem_plan import plan
from .tile import SCALE_N, SWIZZLED, WAVE_M, GemmConfig

MAX_STAGES = 16
MAX_CLUSTER = 8  # CTAs of a cluster on every Hopper GPU


def reasons(config: GemmConfig, device: DeviceSpec) -> list[str]:
    """Return why a configuration cannot be built for a device; an empty list means it can."""
    if config.split_k < 1 or config.ctas_per_sm < 1:
        return [f"K split over {config.split_k} CTAs, {config.ctas_per_sm} CTAs an SM; 1 at least"]
    return _tile(config) + _cluster(config) + _store(config) + _storage(config, device)


def _tile(config: GemmConfig) -> list[str]:
    tile, found = config.tile, []
    limit = config.max_accumulators
    if not limit:
        return [
            f"{tile.num_math_warpgroups} math warpgroups with {config.ctas_per_sm} CTAs an SM; "
            "1 to 3 fit the registers of an SM, 1 or 2 twice"
        ]
    if tile.block_m % (WAVE_M * tile.num_math_warpgroups) or not 0 < tile.block_m <= 256:
        found.append(f"BLOCK_M = {tile.block_m} is not whole waves of 64 rows, or is over 256")
    if tile.block_n % 8 or not 8 <= tile.block_n <= 256:
        found.append(f"BLOCK_N = {tile.block_n}; wgmma takes multiples of 8 from 8 to 256")
    if config.extra_n and (SCALE_N % config.extra_n or config.extra_n == SCALE_N):
        found.append(
            f"BLOCK_N = {tile.block_n} of weights; it is a power of two up to 128, or one more "
            "such part beside the largest"
        )
    if config.accumulators > limit:
        found.append(f"{config.accumulators} registers of sums in a thread; {limit} fit")
    return found


def _cluster(config: GemmConfig) -> list[str]:
    if config.cluster_m not in (1, 2) or config.cluster_n not in (1, 2) or config.multicast > 2:
        return [
            f"a cluster of {config.cluster_m} x {config.cluster_n}; one operand can be shared by 2"
        ]
    if config.cluster_m == 2 and config.tile.block_n % 16:
        return [f"half of BLOCK_N = {config.tile.block_n} is no multiple of the 8-row swizzle"]
    return _split(config)


def _split(config: GemmConfig) -> list[str]:
    if config.split_k == 1:
        return []
    found = []
    if config.cluster > MAX_CLUSTER:
        found.append(f"K split over {config.split_k}; a cluster has up to {MAX_CLUSTER} CTAs")
    if config.tile.waves > 1:
        found.append("K split with several waves of rows")
    return found


def _store(config: GemmConfig) -> list[str]:
    store, found = config.store, []
    if store.box_columns not in SWIZZLED and store.box_columns % 16 != 8:
        found.append(
            f"output boxes of {store.box_columns} columns; 16, 32 or 64 are swizzled, an odd "
            "number of 8 needs no swizzle"
        )
    elif config.swapped:
        if (store.box_columns, store.slab_columns) != (WAVE_M, config.piece_n):
            found.append("a swapped tile is stored as one box, 64 wide, of all its tokens")
    elif config.extra_n:
        boxed = config.piece_n - config.extra_n
        if store.slab_columns != config.piece_n or boxed % store.box_columns:
            found.append("the output slab is not whole boxes and one of the tile's extra columns")
    elif store.slab_columns % store.box_columns or config.piece_n % store.slab_columns:
        found.append("output slabs are not whole boxes, or the tile is not whole slabs")
    if store.num_buffers < 1:
        found.append("no output slab")
    return found


def _storage(config: GemmConfig, device: DeviceSpec) -> list[str]:
    found = []
    if not 2 <= config.num_stages <= MAX_STAGES:
        found.append(f"{config.num_stages} stages; 2 to {MAX_STAGES} are supported")
    total, room = plan(config).total, device.smem_per_cta(config.ctas_per_sm)
    if total > room:
        found.append(f"{total} bytes of shared memory; a CTA has {room}")
    return found
