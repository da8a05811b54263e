"""What a kernel can be built with and what a problem can be run with, as sentences."""

from __future__ import annotations

from ..problem import GemmProblem, GroupKind, Mainloop, Major
from .device import DeviceSpec
from .gemm_config import BOX_MN, SCALE_N, GemmConfig
from .registers import accumulators, max_accumulators
from .shared_storage import shared_storage
from .tile import SLICE_M

MAX_STAGES = 16
MAX_CLUSTER = 8  # CTAs of a cluster on every Hopper GPU
SWIZZLED_BYTES = (32, 64, 128)  # rows of a store box that TMA swizzles


def violations(config: GemmConfig, device: DeviceSpec) -> list[str]:
    """Return why a configuration cannot be built for a device; an empty list means it can."""
    if config.split_k < 1 or config.ctas_per_sm < 1:
        return [f"split-K by {config.split_k}, {config.ctas_per_sm} CTAs an SM; 1 at least"]
    return (
        _tile(config)
        + _variant(config)
        + _cluster(config)
        + _store(config)
        + _storage(config, device)
    )


def problem_conflicts(config: GemmConfig, problem: GemmProblem) -> list[str]:
    """Return why a problem cannot be run with a configuration of its variant, as sentences."""
    grouping, block_m = problem.grouping, config.tile.block_m
    if grouping is None or grouping.kind is not GroupKind.LABELS:
        return []
    if grouping.alignment % block_m:
        return [f"BLOCK_M = {block_m} where labels change every {grouping.alignment} rows"]
    return []


def _tile(config: GemmConfig) -> list[str]:
    tile, found = config.tile, []
    limit = max_accumulators(config)
    if not limit:
        return [
            f"{tile.num_math_warpgroups} math warpgroups with {config.ctas_per_sm} CTAs an SM; "
            "1 to 3 fit the registers of an SM, 1 or 2 twice"
        ]
    if tile.mma_m % (SLICE_M * tile.warpgroups_per_tile) or not 0 < tile.mma_m <= 256:
        found.append(f"{tile.mma_m} along mma_m is not whole slices of 64 rows, or is over 256")
    if tile.mma_n % 8 or not 8 <= tile.mma_n <= 256:
        found.append(f"{tile.mma_n} along mma_n; wgmma takes multiples of 8 from 8 to 256")
    if config.n_tail and (SCALE_N % config.n_tail or config.n_tail == SCALE_N):
        found.append(
            f"BLOCK_N = {tile.block_n} with 128x128 scales; it is a power of two up to 128, or one "
            "more such part behind the largest"
        )
    if (taken := accumulators(config)) > limit:
        found.append(f"{taken} registers of accumulators in a thread; {limit} fit")
    return found


def _variant(config: GemmConfig) -> list[str]:
    """Return what a variant does not allow a tile to be."""
    variant, tile, found = config.variant, config.tile, []
    if variant.is_integer and tile.mma_n > 24 and tile.mma_n % 16:
        found.append(f"{tile.mma_n} along mma_n; wgmma of INT8 takes 8, 24 and multiples of 16")
    if tile.ping_pong and (variant.mainloop is not Mainloop.DIRECT or config.split_k > 1):
        found.append("ping-pong with promotion or split-K")
    if variant.mainloop is Mainloop.SCALED_1D1D and (tile.swap_ab or tile.m_slices > 1):
        found.append("1x128 scales of both operands with swap-AB, or with several slices")
    if variant.adds_c and tile.mma_n % config.reduce_mma_n:
        found.append("split-K parts of a tile that overlap, where C is added")
    shares = (
        (variant.a_major, tile.block_m, tile.block_m // config.cluster_n),
        (variant.b_major, tile.block_n, config.n_head // config.cluster_m),
    )
    for major, whole, share in shares:
        if major is Major.MN and share != whole and share % BOX_MN:
            found.append(f"a multicast share of {share} of an operand loaded in boxes of {BOX_MN}")
    return found


def _cluster(config: GemmConfig) -> list[str]:
    if config.cluster_m not in (1, 2) or config.cluster_n not in (1, 2) or config.multicast > 2:
        return [
            f"a cluster of {config.cluster_m} x {config.cluster_n}; one operand can be shared by 2"
        ]
    tile = config.tile
    shared = ("M", tile.block_m, config.cluster_n), ("N", tile.block_n, config.cluster_m)
    for axis, block, sharers in shared:
        if sharers == 2 and block % 16:
            return [f"half of BLOCK_{axis} = {block} is no multiple of the 8-row swizzle"]
    return _split(config)


def _split(config: GemmConfig) -> list[str]:
    if config.split_k == 1:
        return []
    found = []
    if config.cluster_size > MAX_CLUSTER:
        found.append(f"split-K by {config.split_k}; a cluster has up to {MAX_CLUSTER} CTAs")
    if config.tile.m_slices > 1:
        found.append("split-K with several slices of 64 rows")
    return found


def _store(config: GemmConfig) -> list[str]:
    store, found = config.store, []
    if store.box_n < 1 or store.num_stages < 1:
        return ["no store box, or no store stage"]
    element = config.variant.d.bytes
    widths = (store.box_n, config.store_tail_n) if config.store_tail_n else (store.box_n,)
    wrong = [width for width in widths if not is_box(width * element)]
    if wrong:
        found.append(
            f"store boxes of {wrong[0]} columns, {wrong[0] * element} bytes; 32, 64 or 128 are "
            "swizzled, an odd number of 16 needs no swizzle"
        )
    elif config.tile.swap_ab:
        whole = (SWIZZLED_BYTES[-1], config.reduce_mma_n)
        if (store.box_n * element, store.stage_mma_n) != whole:
            found.append("a tile with swap-AB is stored in boxes of 128 bytes and all its rows")
    elif config.n_tail:
        boxed = config.reduce_mma_n - config.n_tail
        if store.stage_mma_n != config.reduce_mma_n or boxed % store.box_n:
            found.append("the store stage is not whole boxes and one of the N tail")
    elif store.stage_mma_n != config.reduce_mma_n and store.stage_mma_n % store.box_n:
        found.append("the store stage is neither whole boxes nor the whole tile")
    return found


def is_box(row_bytes: int) -> bool:
    """Say whether a store box can have rows of so many bytes."""
    return row_bytes in SWIZZLED_BYTES or row_bytes % 32 == 16


def _storage(config: GemmConfig, device: DeviceSpec) -> list[str]:
    found = []
    if not 2 <= config.num_stages <= MAX_STAGES:
        found.append(f"{config.num_stages} stages; 2 to {MAX_STAGES} are supported")
    total, room = shared_storage(config).total, device.smem_per_cta(config.ctas_per_sm)
    if total > room:
        found.append(f"{total} bytes of shared memory; a CTA has {room}")
    return found
