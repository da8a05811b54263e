"""The device's tile order, compiled as host C++ and compared with what it must cover."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from .host_kit import Source, compile_host


@pytest.fixture(scope="module")
def scheduled():
    """Return a function: launches to their tiles, as (cluster of CTAs, m_cluster, n_cluster).

    A launch is (m_clusters, n_clusters, swizzle_width, along_n, residue head, tail, in_m, grid).
    """
    run = compile_host(Source("raster"))

    def tiles(launches):
        printed = run("\n".join(" ".join(map(str, launch)) for launch in launches))
        return [list(zip(row[::3], row[1::3], row[2::3], strict=True)) for row in printed]

    return tiles


def test_every_tile_is_visited_once_and_clusters_share_evenly(scheduled):
    chance = random.Random(0)
    launches = [(1, 1, 1, 0, 0, 0, 0, 1), (1, 1, 16, 1, 0, 0, 0, 66), (3, 5, 2, 1, 0, 0, 0, 4)]
    launches += [(3, 5, 2, 0, 0, 0, 0, 4), (1, 1, 1, 0, 0, 1, 1, 7), (5, 1, 4, 1, 2, 3, 0, 2)]
    for _ in range(2000):
        clusters = chance.randint(1, 70), chance.randint(1, 70)
        order = chance.choice([1, 2, 4, 8, 16]), chance.randint(0, 1)
        residue, in_m = (0, 0, 0), chance.randint(0, 1)
        if chance.randint(0, 1):
            tail = chance.randint(1, clusters[in_m])
            residue = clusters[in_m] - tail, tail, in_m
        launches.append((*clusters, *order, *residue, chance.choice([1, 7, 65, 66, 131, 132])))
    for launch, tiles in zip(launches, scheduled(launches), strict=True):
        m_clusters, n_clusters, *_, grid = launch
        assert all(n < n_clusters for _, _, n in tiles), launch
        visited = sorted([m * n_clusters + n for _, m, n in tiles])
        assert visited == list(range(m_clusters * n_clusters)), launch
        counts = Counter([cluster for cluster, _, _ in tiles])
        assert set(counts) <= set(range(grid)), launch
        assert max(counts.values()) - min(counts[i] for i in range(grid)) <= 1, launch


def test_clusters_side_by_side_are_finished_before_the_next_ones(scheduled):
    (tiles,) = scheduled([(6, 4, 2, 1, 0, 0, 0, 1)])
    assert [m for _, m, _ in tiles] == [0, 1] * 4 + [2, 3] * 4 + [4, 5] * 4
    assert [n for _, _, n in tiles[:8]] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_residue_tiles_come_first_and_last(scheduled):
    in_n, in_m = scheduled([(3, 4, 2, 1, 1, 2, 0, 1), (3, 4, 2, 0, 3, 1, 1, 1)])
    inner = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert [tuple(tile[1:]) for tile in in_n] == [(0, 3), *inner, (1, 3), (2, 3)]
    inner = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert [tuple(tile[1:]) for tile in in_m] == [(2, 0), (2, 1), (2, 2), *inner, (2, 3)]
