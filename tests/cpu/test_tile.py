"""What a tile says of its axes and its warpgroups."""

from __future__ import annotations

import pytest

from deep_gemm.config import TileConfig

from .config_cases import GOOD, SPLIT_K, SWAP_AB
from .config_kit import EVERY


def test_axes_of_wgmma_are_those_of_the_problem_but_with_swap_ab():
    assert (GOOD.tile.mma_m, GOOD.tile.mma_n) == (128, 128)
    assert (SPLIT_K.tile.mma_m, SPLIT_K.tile.mma_n) == (64, 96)
    assert (SWAP_AB.tile.mma_m, SWAP_AB.tile.mma_n) == (64, 32)


@pytest.mark.parametrize(
    "tile, tiles_in_flight, warpgroups_per_tile, m_slices",
    [
        (TileConfig(64, 64, 1), 1, 1, 1),
        (TileConfig(128, 64, 2), 1, 2, 1),
        (TileConfig(192, 64, 3), 1, 3, 1),
        (TileConfig(256, 64, 2), 1, 2, 2),
        (TileConfig(16, 128, 2, swap_ab=True), 1, 2, 1),
        (TileConfig(16, 256, 2, swap_ab=True), 1, 2, 2),
        (TileConfig(64, 256, 2, ping_pong=True), 2, 1, 1),
        (TileConfig(128, 128, 2, ping_pong=True), 2, 1, 2),
    ],
)
def test_math_warpgroups_share_a_tile_or_have_one_each(
    tile, tiles_in_flight, warpgroups_per_tile, m_slices
):
    assert tile.tiles_in_flight == tiles_in_flight
    assert tile.warpgroups_per_tile == warpgroups_per_tile
    assert tile.m_slices == m_slices


def test_every_slice_has_a_warpgroup_and_a_cta_one_more_warpgroup():
    for tile in {config.tile for config in EVERY}:
        assert tile.mma_m == 64 * tile.m_slices * tile.warpgroups_per_tile
        assert tile.threads == 128 * (tile.num_math_warpgroups + 1)
