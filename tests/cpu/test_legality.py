"""What no kernel can be built with, said in sentences, and what can be built beyond candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import StoreConfig, TileConfig, violations

from .config_cases import (
    GOOD,
    INTEGER,
    MN_MAJOR,
    REDUCING_1D1D,
    SCALED_1D1D,
    SPLIT_K,
    SWAP_AB,
    TWO_CTAS,
    UNEVEN,
)
from .config_kit import EVERY, H200, VARIANTS


def swap_ab(block_m: int, block_n: int = 64) -> TileConfig:
    return TileConfig(block_m, block_n, 1, swap_ab=True)


@pytest.mark.parametrize(
    "base, change, said",
    [
        (GOOD, {"tile": TileConfig(96, 128, 1)}, "64 rows"),
        (GOOD, {"tile": TileConfig(512, 64, 2)}, "over 256"),
        (GOOD, {"tile": TileConfig(128, 100, 2)}, "multiples of 8"),
        (GOOD, {"tile": TileConfig(128, 264, 2)}, "from 8 to 256"),
        (
            GOOD,
            {"tile": TileConfig(256, 256, 2)},
            "384 registers of accumulators in a thread; 216 fit",
        ),
        (GOOD, {"tile": TileConfig(512, 64, 4)}, "4 math warpgroups with 1 CTAs an SM"),
        (GOOD, {"cluster_m": 2, "cluster_n": 2}, "cluster of 2 x 2"),
        (GOOD, {"cluster_m": 4}, "cluster of 4 x 1"),
        (
            GOOD,
            {"tile": TileConfig(64, 24, 1), "store": StoreConfig(8, 24, 1)},
            "half of BLOCK_N = 24",
        ),
        (GOOD, {"tile": TileConfig(128, 112, 2)}, "BLOCK_N = 112 with 128x128 scales; it is a"),
        (GOOD, {"tile": TileConfig(64, 88, 1)}, "BLOCK_N = 88 with 128x128 scales"),
        (GOOD, {"tile": TileConfig(64, 224, 1)}, "BLOCK_N = 224 with 128x128 scales"),
        (GOOD, {"store": StoreConfig(128, 128, 1)}, "store boxes of 128 columns"),
        (GOOD, {"store": StoreConfig(48, 96, 1)}, "store boxes of 48 columns, 96 bytes; 32, 64 or"),
        (GOOD, {"store": StoreConfig(64, 96, 1)}, "whole boxes"),
        (GOOD, {"store": StoreConfig(64, 128, 0)}, "no store stage"),
        (GOOD, {"store": StoreConfig(0, 128, 1)}, "no store box"),
        (GOOD, {"num_stages": 1}, "1 stages"),
        (SWAP_AB, {"num_stages": 17}, "17 stages"),
        (GOOD, {"num_stages": 8}, "bytes of shared memory; a CTA has 232448"),
        # split-K
        (SPLIT_K, {"split_k": 8}, "split-K by 8; a cluster has up to 8 CTAs"),
        (SPLIT_K, {"split_k": -2}, "split-K by -2"),
        (SPLIT_K, {"tile": TileConfig(128, 96, 1)}, "several slices"),
        # The N tail is one box at the end of a store stage, which holds all that a CTA reduces.
        (SPLIT_K, {"store": StoreConfig(32, 96, 1)}, "not whole boxes and one of the N tail"),
        (SPLIT_K, {"store": StoreConfig(32, 48, 1)}, "not whole boxes and one of the N tail"),
        (SPLIT_K, {"store": StoreConfig(16, 16, 1)}, "not whole boxes and one of the N tail"),
        # swap-AB
        (SWAP_AB, {"store": StoreConfig(64, 32, 1)}, "boxes of 128 bytes and all its rows"),
        (SWAP_AB, {"store": StoreConfig(8, 8, 1)}, "boxes of 128 bytes and all its rows"),
        (SWAP_AB, {"tile": swap_ab(40)}, "boxes of 128 bytes and all its rows"),
        (
            SWAP_AB,
            {"tile": swap_ab(24), "cluster_n": 2, "store": StoreConfig(64, 8, 1)},
            "half of BLOCK_M = 24",
        ),
        (SWAP_AB, {"variant": VARIANTS["promoted_fp32"]}, "store boxes of 64 columns, 256 bytes"),
        (SWAP_AB, {"tile": swap_ab(176)}, "220 registers of accumulators in a thread; 216 fit"),
        # several CTAs to an SM
        (TWO_CTAS, {"ctas_per_sm": 3}, "1 math warpgroups with 3 CTAs an SM"),
        (TWO_CTAS, {"tile": TileConfig(192, 32, 3)}, "3 math warpgroups with 2 CTAs an SM"),
        (
            TWO_CTAS,
            {"tile": TileConfig(64, 104, 1)},
            "104 registers of accumulators in a thread; 96 fit",
        ),
        (TWO_CTAS, {"num_stages": 9}, "bytes of shared memory; a CTA has 115712"),
        # variants
        (GOOD, {"variant": VARIANTS["1d2d_fp32_reduce"]}, "store boxes of 64 columns, 256 bytes"),
        (MN_MAJOR, {"store": StoreConfig(64, 64, 1)}, "store boxes of 64 columns, 256 bytes"),
        (INTEGER, {"tile": TileConfig(128, 104, 2)}, "104 along mma_n; wgmma of INT8 takes 8, 24"),
        (INTEGER, {"tile": TileConfig(128, 40, 2)}, "40 along mma_n; wgmma of INT8"),
        (MN_MAJOR, {"tile": TileConfig(128, 96, 2), "cluster_m": 2}, "a multicast share of 48"),
        (MN_MAJOR, {"tile": TileConfig(64, 64, 1), "cluster_n": 2}, "a multicast share of 32"),
        (MN_MAJOR, {"cluster_m": 2}, "a multicast share of 32 of an operand loaded in boxes of 64"),
        (SCALED_1D1D, {"tile": swap_ab(64)}, "1x128 scales of both operands with swap-AB"),
        (
            REDUCING_1D1D,
            {"tile": TileConfig(64, 72, 1), "split_k": 5},
            "split-K parts of a tile that overlap, where C is added",
        ),
    ],
)
def test_what_cannot_be_built_says_why(base, change, said):
    assert not violations(base, H200)
    found = violations(replace(base, **change), H200)
    assert any(said in reason for reason in found), found


@pytest.mark.parametrize(
    "change, said",
    [({"split_k": 0}, "split-K by 0"), ({"ctas_per_sm": 0}, "0 CTAs an SM")],
)
def test_counts_of_zero_are_refused(change, said):
    found = violations(replace(SPLIT_K, **change), H200)
    assert any(said in reason for reason in found), found


@pytest.mark.parametrize(
    "config",
    [
        replace(SWAP_AB, split_k=8),
        replace(SWAP_AB, tile=swap_ab(8), split_k=3),
        replace(SWAP_AB, cluster_n=2),
        replace(SWAP_AB, cluster_m=2),
        # Parts of mma_n that are not equal, and CTAs without one.
        replace(SPLIT_K, cluster_m=1, split_k=5, store=StoreConfig(32, 32, 1)),
        replace(SPLIT_K, tile=TileConfig(64, 16, 1), split_k=4, store=StoreConfig(8, 8, 1)),
        replace(UNEVEN, tile=TileConfig(64, 160, 1), split_k=3, store=StoreConfig(24, 56, 1)),
        replace(SWAP_AB, tile=swap_ab(40), store=StoreConfig(64, 16, 1)),
        replace(TWO_CTAS, tile=TileConfig(128, 32, 2), num_stages=4),
        replace(GOOD, compiled=(0, 4096, 7168)),
        # What other variants do not allow.
        replace(INTEGER, tile=TileConfig(128, 24, 2), store=StoreConfig(8, 24, 1)),
        replace(SCALED_1D1D, tile=TileConfig(64, 72, 1), store=StoreConfig(72, 72, 1)),
        replace(MN_MAJOR, tile=TileConfig(128, 128, 2), cluster_m=2, store=StoreConfig(32, 64, 1)),
        replace(MN_MAJOR, tile=TileConfig(128, 72, 2), cluster_n=2, store=StoreConfig(8, 72, 1)),
        replace(REDUCING_1D1D, split_k=3),
    ],
    ids=lambda c: c.name,
)
def test_more_than_the_candidates_can_be_built(config):
    assert not violations(config, H200)
    assert config not in EVERY
