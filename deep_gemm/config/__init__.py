"""Choosing a configuration: candidates, legality, cost; pure functions over frozen objects."""

from __future__ import annotations

from .candidates import candidates
from .device import DeviceSpec, by_name, from_index
from .gemm_config import GemmConfig
from .legality import violations
from .select import Candidate, choices, explain, forced, select
from .tile import StoreConfig, TileConfig

__all__ = [
    "Candidate",
    "DeviceSpec",
    "GemmConfig",
    "StoreConfig",
    "TileConfig",
    "by_name",
    "candidates",
    "choices",
    "explain",
    "forced",
    "from_index",
    "select",
    "violations",
]
