"""GemmConfig: what follows from a tile, a cluster and a variant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig
from deep_gemm.config.registers import accumulators, num_partials
from deep_gemm.problem import Mainloop

from .config_kit import VARIANTS

GOOD = GemmConfig(TileConfig(128, 128, 2), 2, 1, 5, StoreConfig(64, 128, 1))
SPLIT = GemmConfig(TileConfig(64, 96, 1), 2, 1, 8, StoreConfig(16, 48, 1), split_k=2)
SWAP_AB = GemmConfig(TileConfig(32, 64, 1, swap_ab=True), 1, 1, 8, StoreConfig(64, 8, 1), 4)
TWICE = GemmConfig(TileConfig(64, 32, 1), 1, 1, 8, StoreConfig(32, 32, 1), ctas_per_sm=2)
MN_MAJOR = GemmConfig(
    TileConfig(128, 64, 2), 1, 1, 5, StoreConfig(32, 64, 1), variant=VARIANTS["bf16_mn_fp32_read"]
)
BYTES = GemmConfig(
    TileConfig(128, 128, 2), 1, 1, 5, StoreConfig(32, 128, 1), variant=VARIANTS["int8"]
)
ROWS = GemmConfig(TileConfig(64, 64, 1), 1, 1, 5, StoreConfig(64, 64, 1), variant=VARIANTS["1d1d"])


def swap_ab(mma_m, mma_n, warpgroups=1):
    """Return the tile with swap-AB that has these extents along the axes of the MMA."""
    return TileConfig(mma_n, mma_m, warpgroups, swap_ab=True)


def test_mma_axes_are_those_of_the_problem_unless_swapped():
    assert (GOOD.tile.mma_m, GOOD.tile.mma_n) == (128, 128)
    assert (SPLIT.tile.mma_m, SPLIT.tile.mma_n) == (64, 96)
    assert (SWAP_AB.tile.mma_m, SWAP_AB.tile.mma_n) == (64, 32)


@pytest.mark.parametrize(
    "block_n, head, tail",
    [(8, 8, 0), (24, 16, 8), (64, 64, 0), (80, 64, 16), (96, 64, 32), (112, 64, 48)]
    + [(128, 128, 0), (136, 128, 8), (144, 128, 16), (192, 128, 64), (256, 128, 128)],
)
def test_the_n_head_is_a_power_of_two_and_the_tail_what_is_left(block_n, head, tail):
    config = replace(GOOD, tile=TileConfig(128, block_n, 2))
    assert (config.n_head, config.n_tail) == (head, tail)
    # With swap-AB the columns of an MMA are rows of A, with a scale each.
    swapped = replace(config, tile=TileConfig(128, block_n, 2, swap_ab=True))
    assert (swapped.n_head, swapped.n_tail) == (block_n, 0)


@pytest.mark.parametrize(
    "mma_n, split_k, part",
    [(96, 1, 96), (96, 2, 48), (96, 4, 24), (32, 8, 8), (24, 5, 8), (40, 4, 16), (24, 2, 16)],
)
def test_a_split_k_part_is_a_share_in_groups_of_8(mma_n, split_k, part):
    config = replace(SWAP_AB, tile=swap_ab(64, mma_n), split_k=split_k)
    assert config.reduce_mma_n == part
    # All parts together cover the tile; those beyond it are of CTAs that own nothing.
    assert split_k * part >= mma_n


@pytest.mark.parametrize(
    "block_n, split_k, part",
    [(96, 1, 96), (96, 2, 48), (96, 4, 32), (96, 8, 32), (16, 4, 8), (24, 2, 16), (64, 3, 24)]
    + [(128, 7, 24), (136, 2, 72), (144, 2, 72), (144, 4, 40), (160, 3, 56), (192, 5, 64)],
)
def test_a_split_k_part_has_room_for_the_n_tail(block_n, split_k, part):
    assert replace(SPLIT, tile=TileConfig(64, block_n, 1), split_k=split_k).reduce_mma_n == part


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("split_k", range(1, 9))
def test_split_k_parts_are_the_least_of_which_only_the_last_reaches_the_n_tail(split_k, swapped):
    for mma_n in range(8, 257, 8):
        tile = swap_ab(64, mma_n) if swapped else TileConfig(64, mma_n, 1)
        config = replace(SPLIT, tile=tile, split_k=split_k)

        def serves(part, config=config, mma_n=mma_n):
            others = -(-mma_n // part) - 1
            fits = others < config.split_k and part >= config.n_tail
            return fits and others * part <= mma_n - config.n_tail

        assert config.reduce_mma_n == next(part for part in range(8, 257, 8) if serves(part))


def test_a_cluster_counts_sharers_and_parts_of_k():
    assert (GOOD.multicast, GOOD.cluster_size) == (2, 2)
    assert (SPLIT.multicast, SPLIT.cluster_size) == (2, 4)
    assert (SWAP_AB.multicast, SWAP_AB.cluster_size) == (1, 4)


def test_sums_that_stay_in_the_tensor_core_have_no_partial_sums():
    direct = replace(GOOD, variant=VARIANTS["fast_scaled"])
    assert (num_partials(direct), accumulators(direct)) == (0, 64)
    promoted = replace(GOOD, variant=VARIANTS["promoted_scaled_read"])
    assert (num_partials(promoted), accumulators(promoted)) == (2, 3 * 64)
    # Scales of each element take registers as well.
    assert num_partials(ROWS) > 0 and accumulators(ROWS) > (1 + num_partials(ROWS)) * 32


@pytest.mark.parametrize(
    "name", [name for name in VARIANTS if VARIANTS[name].mainloop is not Mainloop.SCALED_1D2D]
)
def test_only_128x128_scales_need_an_n_tail(name):
    config = replace(GOOD, tile=TileConfig(128, 144, 2), variant=VARIANTS[name])
    assert (config.n_head, config.n_tail) == (144, 0)


def test_a_k_block_is_128_bytes():
    of_16_bits = {name for name in VARIANTS if name[:4] in ("bf16", "fp16")}
    assert {name: v.block_k for name, v in VARIANTS.items() if v.a.bytes == 2} == dict.fromkeys(
        of_16_bits, 64
    )
    assert {v.block_k for v in VARIANTS.values() if v.a.bytes == 1} == {128}
    assert "tile 128 x 64 x 64" in MN_MAJOR.describe() and "x 128 x 128" in BYTES.describe()


def test_registers_of_slices_partial_sums_and_column_scales():
    assert (num_partials(GOOD), accumulators(GOOD)) == (2, 3 * 64)
    slices = replace(GOOD, tile=TileConfig(256, 128, 2))
    assert (num_partials(slices), accumulators(slices)) == (1, 3 * 64)
    wide = replace(GOOD, tile=TileConfig(128, 192, 2))
    assert (num_partials(wide), accumulators(wide)) == (1, 2 * 96)
    # A sum of 64 x 32 is 16 registers of a thread, its column scales 8.
    assert (num_partials(SWAP_AB), accumulators(SWAP_AB)) == (2, 3 * 16 + 2 * 8)
    # Two CTAs to an SM have half the registers.
    halved = replace(TWICE, tile=TileConfig(64, 96, 1))
    assert (num_partials(halved), num_partials(replace(halved, ctas_per_sm=1))) == (1, 2)


@pytest.mark.parametrize(
    "config, said",
    [
        (GOOD, ["tile 128 x 128 x 128", "2 math warpgroups", "B multicast to 2", "5 stages"]),
        (replace(GOOD, cluster_m=1, cluster_n=2), ["A multicast to 2"]),
        (replace(GOOD, cluster_m=1), ["no multicast"]),
        (SPLIT, ["split-K by 2", "B multicast to 2", "store stages of 64 x 48"]),
        (SWAP_AB, ["tile 32 x 64 x 128, swap-AB", "split-K by 4", "no multicast"]),
        (replace(SWAP_AB, cluster_n=2), ["A multicast to 2"]),
        (replace(SWAP_AB, cluster_m=2), ["B multicast to 2"]),
        (TWICE, ["2 CTAs an SM"]),
    ],
)
def test_a_description_says_what_is_special(config, said):
    text = config.describe()
    assert all(words in text for words in said), text
    assert ("split-K" in text) == (config.split_k > 1)
    assert ("swap-AB" in text) == config.tile.swap_ab
    assert ("CTAs an SM" in text) == (config.ctas_per_sm > 1)
