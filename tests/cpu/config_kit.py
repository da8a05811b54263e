"""Configurations nobody has to choose, as the candidates are made: any tile, split and cluster."""

from __future__ import annotations

from typing import Any

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, by_name
from deep_gemm.config.candidates import complete

H200 = by_name("h200")
WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by BLOCK_M


def config_of(
    block_m: int,
    block_n: int,
    split_k: int = 1,
    cluster_m: int = 1,
    cluster_n: int = 1,
    **rest: Any,
) -> GemmConfig:
    """Return a configuration, legal or not, with its store path and as many stages as fit."""
    tile, unknown = TileConfig(block_m, block_n, WARPGROUPS[block_m]), StoreConfig(0, 0, 0)
    return complete(GemmConfig(tile, cluster_m, cluster_n, 0, unknown, split_k, **rest), H200)
