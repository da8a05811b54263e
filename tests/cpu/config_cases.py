"""Configurations that several tests start from."""

from __future__ import annotations

import pytest

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig

from .config_kit import VARIANTS

GOOD = GemmConfig(TileConfig(128, 128, 2), 2, 1, 5, StoreConfig(64, 128, 1))
SPLIT_K = GemmConfig(TileConfig(64, 96, 1), 2, 1, 8, StoreConfig(16, 48, 1), split_k=2)
UNEVEN = GemmConfig(TileConfig(64, 144, 1), 2, 1, 5, StoreConfig(56, 72, 1), split_k=2)
SWAP_AB = GemmConfig(TileConfig(32, 64, 1, swap_ab=True), 1, 1, 8, StoreConfig(64, 8, 1), 4)
TWO_CTAS = GemmConfig(TileConfig(64, 32, 1), 1, 1, 8, StoreConfig(32, 32, 1), ctas_per_sm=2)
MN_MAJOR = GemmConfig(
    TileConfig(128, 64, 2),
    1,
    1,
    5,
    StoreConfig(32, 64, 1),
    variant=VARIANTS["bf16_mn_fp32_read"],
)
INTEGER = GemmConfig(
    TileConfig(128, 128, 2), 1, 1, 5, StoreConfig(32, 128, 1), variant=VARIANTS["int8"]
)
SCALED_1D1D = GemmConfig(
    TileConfig(64, 64, 1), 1, 1, 5, StoreConfig(64, 64, 1), variant=VARIANTS["1d1d"]
)
REDUCING_1D1D = GemmConfig(
    TileConfig(64, 96, 1), 1, 1, 6, StoreConfig(32, 96, 1), variant=VARIANTS["1d1d_fp32_reduce"]
)

each_variant = pytest.mark.parametrize("variant", VARIANTS)
