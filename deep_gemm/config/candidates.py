"""Every configuration worth considering; a pure function of the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ..problem import GemmProblem
from .cost_model import K_BLOCK_CYCLES, SWAPPED_K_BLOCK_CYCLES
from .device import DeviceSpec
from .legality import MAX_STAGES, reasons
from .smem_plan import plan
from .tile import WAVE_M, GemmConfig, StoreConfig, TileConfig

_NO_STORE = StoreConfig(0, 0, 0)
_WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by BLOCK_M
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
# Tokens as columns: (split_k, ctas_per_sm) by BLOCK_M.
_SWAPPED = {
    64: ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2)),
    128: ((1, 1), (2, 1), (4, 1)),
}


@cache
def candidates(device: DeviceSpec) -> tuple[GemmConfig, ...]:
    """Return all legal configurations for a device, each with as many stages as fit."""
    found = (complete(config, device) for config in _enumerate())
    return tuple(config for config in found if not reasons(config, device))


def _enumerate() -> Iterator[GemmConfig]:
    """Yield tiles with their clusters, neither stages nor store chosen yet."""
    for block_m, block_n in K_BLOCK_CYCLES:
        for cluster_m, cluster_n in _clusters(block_m, block_n):
            yield GemmConfig(_tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE)
    for block_m, block_n, split_k, cluster_m, cluster_n, ctas_per_sm in _SPLIT:
        yield GemmConfig(
            _tile(block_m, block_n), cluster_m, cluster_n, 0, _NO_STORE, split_k, False, ctas_per_sm
        )
    for block_m, block_n in SWAPPED_K_BLOCK_CYCLES:
        for split_k, ctas_per_sm in _SWAPPED[block_m]:
            yield GemmConfig(
                _tile(block_m, block_n), 1, 1, 0, _NO_STORE, split_k, True, ctas_per_sm
            )


def _clusters(block_m: int, block_n: int) -> tuple[tuple[int, int], ...]:
    """Return the ways to share operands that were ever the best of a sweep."""
    if block_n in (136, 144) or (block_m, block_n) == (192, 96):
        return ((1, 1),)
    if block_m == 64 or (block_m, block_n) == (128, 128):
        return ((1, 1), (2, 1))
    return ((1, 1), (2, 1), (1, 2))


def suits(config: GemmConfig, problem: GemmProblem, num_sms: int) -> bool:
    """Say whether a configuration is worth pricing for a problem.

    A swapped tile must hold all tokens and be the narrowest that does; a cluster must fit.
    """
    if config.cluster > num_sms:
        return False
    widths = sorted({n for _, n in SWAPPED_K_BLOCK_CYCLES})
    fits = next((n for n in widths if n >= problem.m), None)
    return not config.swapped or config.tile.block_n == fits


def _tile(block_m: int, block_n: int) -> TileConfig:
    return TileConfig(block_m, block_n, _WARPGROUPS[block_m])


def complete(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return a configuration with its store path, and as many stages as fit."""
    return deepest(replace(config, store=store_choice(config)), device)


def store_choice(config: GemmConfig) -> StoreConfig:
    """Return how a tile's output is staged: whole, in the widest boxes that its columns allow.

    Boxes of 64, 32 or 16 columns are swizzled; an odd number of 8 columns is one box without. Extra
    columns are one box more.
    """
    piece, extra, waves = config.piece_n, config.extra_n, config.tile.waves
    if config.swapped:
        return StoreConfig(WAVE_M, piece, waves)
    boxed = piece - extra or extra
    box = next((b for b in (64, 32, 16) if boxed % b == 0), boxed)
    return StoreConfig(box, piece, waves)


def deepest(config: GemmConfig, device: DeviceSpec) -> GemmConfig:
    """Return the configuration with the most stages that fit, at most MAX_STAGES."""
    fixed = plan(replace(config, num_stages=0)).total
    per_stage = plan(replace(config, num_stages=1)).total - fixed
    stages = (device.smem_per_cta(config.ctas_per_sm) - fixed) // per_stage
    return replace(config, num_stages=min(MAX_STAGES, stages))
