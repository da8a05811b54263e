"""Raster: clusters of tiles cover the problem; residue tiles are halves that even out a wave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config.raster import ResidueTiles, raster
from deep_gemm.problem import GemmProblem

from .config_kit import EVERY, VARIANTS, config_of, sized

extents = st.integers(1, 20000)
HALF_TILES = config_of(128, 128, variant=VARIANTS["1d1d"])  # has MMAs for half of BLOCK_N


@given(extents, extents, st.integers(1, 132), st.sampled_from(EVERY))
@settings(max_examples=200, deadline=None)
def test_clusters_of_tiles_cover_the_problem(m, n, resident, config):
    order = raster(GemmProblem.block_scaled(m, n, 512), config, resident)
    cluster_m = config.tile.block_m * config.cluster_m
    cluster_n = config.tile.block_n * config.cluster_n
    assert (order.m_clusters - 1) * cluster_m < m <= order.m_clusters * cluster_m
    assert (order.n_clusters - 1) * cluster_n < n <= order.n_clusters * cluster_n
    assert order.swizzle_width >= 1


@given(extents, extents, st.integers(1, 132), st.sampled_from(EVERY))
@settings(max_examples=300, deadline=None)
def test_residue_tiles_are_half_tiles_of_the_last_row_or_column(m, n, resident, config):
    order = raster(sized("1d1d", m, n, 512), config, resident)
    residue = order.residue
    if residue == ResidueTiles():
        return
    lengths = order.m_clusters, order.n_clusters
    assert residue.head + residue.tail == lengths[residue.in_m]
    assert residue.tail == order.clusters % resident
    extent, block = (m, config.tile.block_m) if residue.in_m else (n, config.tile.block_n)
    half = config.half_m if residue.in_m else config.half_n
    assert 0 < extent % block <= half <= block // 2


@pytest.mark.parametrize(
    ("m", "n", "resident", "residue"),
    [
        (7168, 2112, 132, ResidueTiles(28, 28, False)),  # 56 x 17 tiles, 28 more than 7 waves
        (2112, 7168, 132, ResidueTiles(28, 28, True)),
        (7168, 2112, 66, ResidueTiles(28, 28, False)),
        (7168, 2112, 119, ResidueTiles()),  # whole waves
        (7168, 2120, 132, ResidueTiles()),  # more than half a tile
        (7168, 2048, 132, ResidueTiles()),  # no half tiles
        (4096, 2112, 132, ResidueTiles(16, 16, False)),  # 32 x 17 tiles, 16 more than 4 waves
        (896, 2112, 132, ResidueTiles()),  # 119 tiles, no wave before them, and 7 residue tiles
    ],
)
def test_residue_tiles_of_weight_gradients(m, n, resident, residue):
    assert raster(sized("1d1d", m, n, 4096), HALF_TILES, resident).residue == residue


def test_no_cluster_has_half_tiles_beside_whole_ones():
    problem, shared = sized("1d1d", 7168, 2112, 4096), replace(HALF_TILES, cluster_m=2)
    assert raster(problem, shared, 66).residue == ResidueTiles(14, 14, False)
    assert raster(problem, replace(HALF_TILES, cluster_n=2), 66).residue == ResidueTiles()
    promoted = config_of(128, 128, variant=VARIANTS["promoted_fp32"])
    assert raster(problem, promoted, 132).residue == ResidueTiles()
