"""Every configuration worth considering; a pure function of the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ..problem import BLOCK_SCALED, Form, GemmProblem
from .cost_model import K_BLOCK_CYCLES, ROWS_K_BLOCK_CYCLES, SWAPPED_K_BLOCK_CYCLES
from .device import DeviceSpec
from .legality import MAX_STAGES, is_box, misfits, reasons
from .smem_plan import plan
from .tile import SWIZZLED_BYTES, WAVE_M, GemmConfig, StoreConfig, TileConfig

_NO_STORE = StoreConfig(0, 0, 0)
# Bytes of output that a warpgroup stages at once; more of bf16 beside partial sums, whose tiles are
# small for their registers.
MAX_STAGED, MAX_STAGED_BLOCK = 16 << 10, 36 << 10
_WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by BLOCK_M
# Tiles whose sums stay in the tensor core.
DIRECT_TILES = (
    (64, 32), (64, 64), (64, 96), (64, 128), (64, 160), (64, 192), (64, 256),
    (128, 32), (128, 64), (128, 96), (128, 112), (128, 128), (128, 144), (128, 160), (128, 176),
    (128, 192), (128, 208), (128, 224), (128, 256),
    (192, 128), (192, 192), (256, 64), (256, 96), (256, 112), (256, 128),
)  # fmt: skip
# Of such, tiles that belong to one warpgroup of two.
PING_PONG_TILES = ((64, 192), (64, 256), (128, 96), (128, 128), (128, 160), (128, 192))
# K split over a cluster: (BLOCK_M, BLOCK_N, split_k, cluster_m, cluster_n, ctas_per_sm).
_SPLIT = (
    (64, 32, 2, 1, 1, 1), (64, 32, 2, 1, 1, 2), (64, 32, 4, 1, 1, 1),
    (64, 64, 2, 1, 1, 1), (64, 64, 4, 1, 1, 1), (64, 64, 4, 2, 1, 1), (64, 64, 8, 1, 1, 1),
    (64, 96, 2, 1, 1, 1), (64, 96, 2, 2, 1, 1), (64, 96, 4, 1, 1, 1), (64, 96, 4, 2, 1, 1),
    (64, 128, 2, 2, 1, 1), (64, 128, 2, 1, 2, 1), (64, 128, 4, 1, 1, 1),
    (64, 136, 2, 1, 1, 1), (64, 144, 2, 1, 1, 1),
    (128, 64, 2, 1, 1, 1), (128, 96, 2, 1, 1, 1), (128, 96, 2, 2, 1, 1), (128, 96, 4, 1, 1, 1),
    (128, 128, 2, 1, 1, 1), (128, 136, 2, 1, 1, 1),
)  # fmt: skip
# Of groups: tiles that were never the best of a sweep, and further ones that were, as
# ((BLOCK_M, BLOCK_N), (cluster_m, cluster_n)).
_NOT_GROUPED = {
    (64, 136), (64, 144), (128, 136), (128, 144), (128, 160), (256, 136), (256, 144),
}  # fmt: skip
_GROUPED = (((128, 128), (1, 2)),)
# Tokens as columns: (split_k, ctas_per_sm) by BLOCK_M.
_SWAPPED = {
    64: ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2)),
    128: ((1, 1), (2, 1), (4, 1)),
}


@cache
def candidates(device: DeviceSpec, form: Form = BLOCK_SCALED) -> tuple[GemmConfig, ...]:
    """Return all legal configurations of a form for a device, each with as many stages as fit."""
    tiles = list({"none": _direct, "rows": _rows}.get(form.promotion, _promoted)())
    if form.grouping != "none" and form.promotion in ("block", "unit"):
        tiles = [tile for tile in tiles if tile.split_k > 1 or _shape(tile) not in _NOT_GROUPED]
        tiles += [GemmConfig(_tile(*shape), *shared, 0, _NO_STORE) for shape, shared in _GROUPED]
    found = (complete(replace(config, form=form), device) for config in tiles)
    return tuple(config for config in found if not reasons(config, device))


def _promoted() -> Iterator[GemmConfig]:
    """Yield tiles whose sums are promoted, with their clusters; neither stages nor store chosen."""
    for block_m, block_n in K_BLOCK_CYCLES:
        for cluster_m, cluster_n in _clusters(block_m, block_n):
            yield GemmConfig(_tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE)
    for block_m, block_n, split_k, cluster_m, cluster_n, ctas_per_sm in _SPLIT:
        yield GemmConfig(
            _tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE, split_k, False, ctas_per_sm
        )
    yield from _swapped()


def _rows() -> Iterator[GemmConfig]:
    """Yield tiles promoted with scales of rows and of columns, likewise."""
    for block_m, block_n in ROWS_K_BLOCK_CYCLES:
        for cluster_m, cluster_n in _clusters(block_m, block_n):
            yield GemmConfig(_tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE)
        if block_m == 64 or block_n <= 96:
            for split_k in (2, 4):
                yield GemmConfig(_tile(block_m, block_n), 1, 1, 0, _NO_STORE, split_k)


def _direct() -> Iterator[GemmConfig]:
    """Yield tiles whose sums stay in the tensor core, likewise."""
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
    yield from _swapped()


def _swapped() -> Iterator[GemmConfig]:
    """Yield tiles with tokens as columns, likewise."""
    for block_m, block_n in SWAPPED_K_BLOCK_CYCLES:
        for split_k, ctas_per_sm in _SWAPPED[block_m]:
            tile = _tile(block_m, block_n)
            yield GemmConfig(tile, 1, 1, 0, _NO_STORE, split_k, True, ctas_per_sm)


def _clusters(block_m: int, block_n: int) -> tuple[tuple[int, int], ...]:
    """Return the ways to share operands that were ever the best of a sweep."""
    if block_n in (136, 144) or (block_m, block_n) == (192, 96):
        return ((1, 1),)
    if block_m == 64 or (block_m, block_n) == (128, 128):
        return ((1, 1), (2, 1))
    return ((1, 1), (2, 1), (1, 2))


def suits(config: GemmConfig, problem: GemmProblem, num_sms: int) -> bool:
    """Say whether a configuration is worth pricing for a problem.

    A swapped tile must hold all tokens, of a group those expected, and be the narrowest that does;
    a cluster must fit.
    """
    if config.cluster > num_sms or misfits(config, problem):
        return False
    widths = sorted({n for _, n in SWAPPED_K_BLOCK_CYCLES})
    tokens = problem.expected[1].m
    fits = next((n for n in widths if n >= tokens), None)
    return not config.swapped or config.tile.block_n == fits


def _shape(config: GemmConfig) -> tuple[int, int]:
    return config.tile.block_m, config.tile.block_n


def _tile(block_m: int, block_n: int) -> TileConfig:
    return TileConfig(block_m, block_n, _WARPGROUPS[block_m])


def complete(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return a configuration with its store path, and as many stages as fit.

    Of `rows`, whose ends of tiles are long, two slabs are half the tile each where that costs no
    stage: nothing then waits for a store.
    """
    chosen = deepest(replace(config, store=store_choice(config)), device)
    columns = config.piece_n // 2
    if config.form.promotion != "rows" or chosen.store.num_buffers != 2:
        return chosen
    if columns % chosen.store.box_columns:
        return chosen
    halves = deepest(replace(chosen, store=replace(chosen.store, slab_columns=columns)), device)
    return halves if halves.num_stages == chosen.num_stages else chosen


def store_choice(config: GemmConfig) -> StoreConfig:
    """Return how a tile's output is staged: in the widest boxes that its columns allow, whole if
    that leaves room for stages, else box by box in two slabs.

    Boxes whose rows are 128, 64 or 32 bytes are swizzled; an odd number of 16 bytes is one box
    without. Extra columns are one box more.
    """
    form, piece, extra = config.form, config.piece_n, config.extra_n
    widths = [size // form.d.bytes for size in reversed(SWIZZLED_BYTES)]
    if config.swapped:
        return StoreConfig(widths[0], piece, config.tile.waves)
    block = form.promotion == "block" and form.d.bytes == 2
    boxed = piece - extra or extra
    rests = (0,) if block else tuple(n for n in range(0, 64, 8) if is_box(n * form.d.bytes))
    box = next((w for w in widths if w <= boxed and boxed % w in (0, *rests)), boxed)
    staged = WAVE_M * piece * form.d.bytes * config.tile.waves
    if not extra and staged > (MAX_STAGED_BLOCK if block else MAX_STAGED):
        return StoreConfig(box, max(box, widths[0] // box * box), 2)
    return StoreConfig(box, piece, config.tile.waves)


def deepest(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return the configuration with the most stages that fit, at most MAX_STAGES."""
    fixed = plan(replace(config, num_stages=0)).total
    per_stage = plan(replace(config, num_stages=1)).total - fixed
    stages = (device.smem_per_cta(config.ctas_per_sm) - fixed) // per_stage
    return replace(config, num_stages=min(MAX_STAGES, stages))
