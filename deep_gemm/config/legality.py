"""What a kernel can be built with and what a problem can be run with, as sentences."""

from __future__ import annotations

from ..problem import GemmProblem
from .device import DeviceSpec
from .smem_plan import plan
from .tile import BOX_MN, SCALE_N, SWIZZLED_BYTES, WAVE_M, GemmConfig

MAX_STAGES = 16
MAX_CLUSTER = 8  # CTAs of a cluster on every Hopper GPU


def reasons(config: GemmConfig, device: DeviceSpec) -> list[str]:
    """Return why a configuration cannot be built for a device; an empty list means it can."""
    if config.split_k < 1 or config.ctas_per_sm < 1:
        return [f"K split over {config.split_k} CTAs, {config.ctas_per_sm} CTAs an SM; 1 at least"]
    return (
        _tile(config) + _form(config) + _cluster(config) + _store(config) + _storage(config, device)
    )


def misfits(config: GemmConfig, problem: GemmProblem) -> list[str]:
    """Return why a problem cannot be run with a configuration of its form, likewise."""
    of = problem.grouping
    if of is not None and of.kind == "labels" and of.alignment % config.tokens:
        return [f"tiles of {config.tokens} tokens where labels change every {of.alignment}"]
    return []


def _tile(config: GemmConfig) -> list[str]:
    tile, found = config.tile, []
    limit = config.max_accumulators
    if not limit:
        return [
            f"{tile.num_math_warpgroups} math warpgroups with {config.ctas_per_sm} CTAs an SM; "
            "1 to 3 fit the registers of an SM, 1 or 2 twice"
        ]
    if tile.block_m % (WAVE_M * tile.sharing) or not 0 < tile.block_m <= 256:
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


def _form(config: GemmConfig) -> list[str]:
    """Return what a form of product does not allow a tile to be."""
    form, block_n, found = config.form, config.tile.block_n, []
    if form.integer and block_n > 24 and block_n % 16:
        found.append(f"BLOCK_N = {block_n}; wgmma of INT8 takes 8, 24 and multiples of 16")
    if config.tile.ping_pong and (form.promotion != "none" or config.split_k > 1):
        found.append("tiles of single warpgroups by turns, where sums are promoted, or K is split")
    if form.promotion == "rows" and (config.swapped or config.tile.waves > 1):
        found.append("1x128 scales of both operands with tokens as columns, or several waves")
    if form.addend != "none" and block_n % config.piece_n:
        found.append("shares of a split tile that overlap, where C is added")
    shares = (
        config.tile.block_m // config.cluster_n,
        config.main_n // config.cluster_m,
    )
    for major, share, whole in zip(
        config.majors, shares, (config.tile.block_m, block_n), strict=True
    ):
        if major == "mn" and share != whole and share % BOX_MN:
            found.append(f"a multicast share of {share} of an operand loaded in boxes of {BOX_MN}")
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
    if store.box_columns < 1 or store.num_buffers < 1:
        return ["no output box, or no slab"]
    widths = (store.box_columns, config.rest_n) if config.rest_n else (store.box_columns,)
    box_bytes = store.box_columns * config.form.d.bytes
    unfit = [w for w in widths if not is_box(w * config.form.d.bytes)]
    if unfit:
        found.append(
            f"output boxes of {unfit[0]} columns, {unfit[0] * config.form.d.bytes} bytes; 32, 64 "
            "or 128 are swizzled, an odd number of 16 needs no swizzle"
        )
    elif config.swapped:
        if (box_bytes, store.slab_columns) != (SWIZZLED_BYTES[-1], config.piece_n):
            found.append("a swapped tile is stored in boxes of 128 bytes and all its tokens")
    elif config.extra_n:
        boxed = config.piece_n - config.extra_n
        if store.slab_columns != config.piece_n or boxed % store.box_columns:
            found.append("the output slab is not whole boxes and one of the tile's extra columns")
    elif store.slab_columns != config.piece_n and store.slab_columns % store.box_columns:
        found.append("the output slab is neither whole boxes nor the whole tile")
    return found


def is_box(row_bytes: int) -> bool:
    """Say whether an output box can have rows of so many bytes."""
    return row_bytes in SWIZZLED_BYTES or row_bytes % 32 == 16


def _storage(config: GemmConfig, device: DeviceSpec) -> list[str]:
    found = []
    if not 2 <= config.num_stages <= MAX_STAGES:
        found.append(f"{config.num_stages} stages; 2 to {MAX_STAGES} are supported")
    total, room = plan(config).total, device.smem_per_cta(config.ctas_per_sm)
    if total > room:
        found.append(f"{total} bytes of shared memory; a CTA has {room}")
    return found
