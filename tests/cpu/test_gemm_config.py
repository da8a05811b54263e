"""What follows from a tile, a cluster and a variant: parts of N, of a reduction, and the text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import TileConfig
from deep_gemm.problem import Mainloop

from .config_cases import GOOD, INTEGER, MN_MAJOR, SPLIT_K, SWAP_AB, TWO_CTAS
from .config_kit import VARIANTS


def tile_with_swap_ab(mma_m, mma_n, warpgroups=1):
    return TileConfig(mma_n, mma_m, warpgroups, swap_ab=True)


@pytest.mark.parametrize(
    "block_n, head, tail",
    [(8, 8, 0), (24, 16, 8), (64, 64, 0), (80, 64, 16), (96, 64, 32), (112, 64, 48)]
    + [(128, 128, 0), (136, 128, 8), (144, 128, 16), (192, 128, 64), (256, 128, 128)],
)
def test_with_128x128_scales_the_n_head_is_a_power_of_two(block_n, head, tail):
    config = replace(GOOD, tile=TileConfig(128, block_n, 2))
    assert (config.n_head, config.n_tail) == (head, tail)
    # With swap-AB the columns of an MMA are rows of A, with a scale each.
    swap_ab = replace(config, tile=TileConfig(128, block_n, 2, swap_ab=True))
    assert (swap_ab.n_head, swap_ab.n_tail) == (block_n, 0)


@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if VARIANTS[name].mainloop is not Mainloop.SCALED_1D2D]
)
def test_only_128x128_scales_need_an_n_tail(variant):
    config = replace(GOOD, tile=TileConfig(128, 144, 2), variant=VARIANTS[variant])
    assert (config.n_head, config.n_tail) == (144, 0)


@pytest.mark.parametrize(
    "mma_n, split_k, part",
    [(96, 1, 96), (96, 2, 48), (96, 4, 24), (32, 8, 8), (24, 5, 8), (40, 4, 16), (24, 2, 16)],
)
def test_a_split_k_part_is_a_share_in_groups_of_8(mma_n, split_k, part):
    config = replace(SWAP_AB, tile=tile_with_swap_ab(64, mma_n), split_k=split_k)
    assert config.reduce_mma_n == part
    # All parts together cover the tile; a CTA whose part lies beyond it owns nothing.
    assert split_k * part >= mma_n


@pytest.mark.parametrize(
    "block_n, split_k, part",
    [(96, 1, 96), (96, 2, 48), (96, 4, 32), (96, 8, 32), (16, 4, 8), (24, 2, 16), (64, 3, 24)]
    + [(128, 7, 24), (136, 2, 72), (144, 2, 72), (144, 4, 40), (160, 3, 56), (192, 5, 64)],
)
def test_a_split_k_part_has_room_for_the_n_tail(block_n, split_k, part):
    assert replace(SPLIT_K, tile=TileConfig(64, block_n, 1), split_k=split_k).reduce_mma_n == part


@pytest.mark.parametrize("swap_ab", [False, True])
@pytest.mark.parametrize("split_k", range(1, 9))
def test_split_k_parts_are_the_least_of_which_only_the_last_reaches_the_n_tail(split_k, swap_ab):
    for mma_n in range(8, 257, 8):
        tile = tile_with_swap_ab(64, mma_n) if swap_ab else TileConfig(64, mma_n, 1)
        config = replace(SPLIT_K, tile=tile, split_k=split_k)

        def is_valid(part, config=config, mma_n=mma_n):
            others = -(-mma_n // part) - 1
            fits = others < config.split_k and part >= config.n_tail
            return fits and others * part <= mma_n - config.n_tail

        assert config.reduce_mma_n == next(part for part in range(8, 257, 8) if is_valid(part))


def test_a_cluster_counts_multicast_and_split_k():
    assert (GOOD.multicast, GOOD.cluster_size) == (2, 2)
    assert (SPLIT_K.multicast, SPLIT_K.cluster_size) == (2, 4)
    assert (SWAP_AB.multicast, SWAP_AB.cluster_size) == (1, 4)


def test_a_k_block_is_128_bytes():
    two_bytes = {name for name, variant in VARIANTS.items() if variant.a.bytes == 2}
    assert two_bytes == {name for name in VARIANTS if name.startswith(("bf16", "fp16"))}
    assert {VARIANTS[name].block_k for name in two_bytes} == {64}
    assert {VARIANTS[name].block_k for name in VARIANTS.keys() - two_bytes} == {128}
    assert "tile 128 x 64 x 64" in MN_MAJOR.describe()
    assert "tile 128 x 128 x 128" in INTEGER.describe()


@pytest.mark.parametrize(
    "config, said",
    [
        (GOOD, ["tile 128 x 128 x 128", "2 math warpgroups", "B multicast to 2", "5 stages"]),
        (replace(GOOD, cluster_m=1, cluster_n=2), ["A multicast to 2"]),
        (replace(GOOD, cluster_m=1), ["no multicast"]),
        (SPLIT_K, ["split-K by 2", "B multicast to 2", "1 store stages of 64 x 48"]),
        (SWAP_AB, ["tile 32 x 64 x 128, swap-AB", "split-K by 4", "no multicast"]),
        (replace(SWAP_AB, cluster_n=2), ["A multicast to 2"]),
        (replace(SWAP_AB, cluster_m=2), ["B multicast to 2"]),
        (TWO_CTAS, ["2 CTAs an SM"]),
    ],
)
def test_a_description_says_what_is_special(config, said):
    text = config.describe()
    assert all(words in text for words in said), text
    assert ("split-K" in text) == (config.split_k > 1)
    assert ("swap-AB" in text) == config.tile.swap_ab
    assert ("CTAs an SM" in text) == (config.ctas_per_sm > 1)
