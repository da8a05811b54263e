"""The device's tile order, compiled as host C++ and compared with what it must cover."""

from __future__ import annotations

import random

import pytest

from .host_kit import compile_host


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Return a function: walks, with the edge's first and last tiles and axis, to their tiles.

    A walk is (clusters_m, clusters_n, band, band_on_m, edge_first, edge_last, edge_on_m, grid).
    """
    run = compile_host("tiles", tmp_path_factory.mktemp("scheduler"))

    def tiles(cases):
        printed = run("\n".join(" ".join(map(str, case)) for case in cases))
        return [list(zip(row[::3], row[1::3], row[2::3], strict=True)) for row in printed]

    return tiles


def test_every_tile_is_met_once_and_clusters_share_evenly(walk):
    chance = random.Random(0)
    cases = [(1, 1, 1, 0, 0, 0, 0, 1), (1, 1, 16, 1, 0, 0, 0, 66), (3, 5, 2, 1, 0, 0, 0, 4)]
    cases += [(3, 5, 2, 0, 0, 0, 0, 4), (1, 1, 1, 0, 0, 1, 1, 7), (5, 1, 4, 1, 2, 3, 0, 2)]
    for _ in range(2000):
        clusters = chance.randint(1, 70), chance.randint(1, 70)
        band = chance.choice([1, 2, 4, 8, 16]), chance.randint(0, 1)
        edge, on_m = (0, 0, 0), chance.randint(0, 1)
        if chance.randint(0, 1):
            last = chance.randint(1, clusters[on_m])
            edge = clusters[on_m] - last, last, on_m
        cases.append((*clusters, *band, *edge, chance.choice([1, 7, 65, 66, 131, 132])))
    for case, tiles in zip(cases, walk(cases), strict=True):
        clusters_m, clusters_n, *_, grid = case
        met = sorted((m, n) for _, m, n in tiles)
        assert met == [(m, n) for m in range(clusters_m) for n in range(clusters_n)], case
        counts = [0] * grid
        for cluster, _, _ in tiles:
            counts[cluster] += 1
        assert max(counts) - min(counts) <= 1, case


def test_a_band_is_finished_before_the_next_begins(walk):
    (tiles,) = walk([(6, 4, 2, 1, 0, 0, 0, 1)])
    assert [m for _, m, _ in tiles] == [0, 1] * 4 + [2, 3] * 4 + [4, 5] * 4
    assert [n for _, _, n in tiles[:8]] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_tiles_of_an_edge_come_first_and_last(walk):
    columns, rows = walk([(3, 4, 2, 1, 1, 2, 0, 1), (3, 4, 2, 0, 3, 1, 1, 1)])
    in_bands = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert [tuple(tile[1:]) for tile in columns] == [(0, 3), *in_bands, (1, 3), (2, 3)]
    in_bands = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert [tuple(tile[1:]) for tile in rows] == [(2, 0), (2, 1), (2, 2), *in_bands, (2, 3)]
