"""The tiles of groups, compiled as host C++, beside what the device tensors are to mean."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from deep_gemm.problem import GROUPINGS, GroupKind

from .group_kit import FILL, Case, Rows, meaning
from .host_kit import PROGRAMS, compile_host

TOKENS = (8, 24, 64, 72, 128, 192, 256)  # of tiles that the program is built with
WORDS = 11  # of a tile printed


class Tile(NamedTuple):
    """A tile of a CTA, as the program prints it."""

    cluster: int
    rank: int
    cluster_m: int
    cluster_n: int
    group: int
    first: int
    end: int
    stored_end: int
    idle: int
    k: int
    first_scale: int


def random_case(kind: str, chance: random.Random) -> Case:
    alignment, tile = chance.randint(1, 256), chance.choice(TOKENS)
    if kind is GroupKind.LABELS:
        alignment = chance.choice([64, 128])
        tile = chance.choice([8, 64, 128] if alignment == 128 else [8, 64])
    made = {
        "groups": chance.choice([1, 2, 3, 8, 8, 40]),
        "rows": chance.choice([1, 60, 64, 128, chance.randint(1, 400), chance.randint(1, 700)]),
        "alignment": alignment,
    }
    return Case(
        kind=kind,
        tile=tile,
        sharers=chance.choice([1, 2]),
        swapped=chance.random() < 0.5,
        weights=chance.choice([1, 1, 2, 3]),
        band=chance.choice([1, 2, 3, 4, 8, 16]),
        band_on_m=chance.random() < 0.5,
        grid=chance.choice([1, 2, 7, 65, 66, 131, 132]),
        clears=chance.random() < 0.5,
        of=FILL[kind](chance, made) if kind in FILL else (),
        **made,
    )


def walker(folder: Path, options: tuple[str, ...] = ()):
    """Return a function: cases to the tiles of each, by cluster and rank in their order."""
    grid = {"grid.h": (PROGRAMS / "grid.h").read_text()}
    run = compile_host("group_tiles", folder, grid, options)

    def tiles(cases):
        printed = run("\n".join(case.line() for case in cases))
        assert len(printed) == len(cases)
        return [[Tile(*row[i : i + WORDS]) for i in range(0, len(row), WORDS)] for row in printed]

    return tiles


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Return what walker() does, a warp being one thread."""
    return walker(tmp_path_factory.mktemp("group_tiles"))


def clusters_of(case: Case, tiles: list[Tile]) -> list[list[tuple[Tile, ...]]]:
    """Return the tiles of each cluster in order, those of its CTAs together."""
    walked: list[list[list[Tile]]] = [[[] for _ in range(case.sharers)] for _ in range(case.grid)]
    for tile in tiles:
        walked[tile.cluster_size][tile.rank].append(tile)
    for ranks in walked:
        assert len({len(rank) for rank in ranks}) == 1, case
    return [list(zip(*ranks, strict=True)) for ranks in walked]


def rows_of(case: Case, tile: Tile) -> Rows:
    """Return the rows that a CTA stores, and those that it multiplies."""
    place = tile.cluster_n if case.tile.swap_ab else tile.cluster_m
    row = tile.first + (place * case.sharers + tile.rank) * case.tile
    until = [min(row + case.tile, end) for end in (tile.stored_end, tile.end)]
    return Rows(*(set(range(row, end)) for end in until))


KINDS = GROUPINGS[1:]
CASES = {
    kind: [random_case(kind, random.Random(f"{kind} {i}")) for i in range(600)] for kind in KINDS
}


@pytest.fixture(scope="module")
def walked(walk):
    """Return, of a kind, its cases and their clusters' tiles."""
    found = {}

    def of(kind):
        if kind not in found:
            found[kind] = [
                (case, clusters_of(case, tiles))
                for case, tiles in zip(CASES[kind], walk(CASES[kind]), strict=True)
            ]
        return found[kind]

    return of


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_of_every_group_is_stored_once_by_every_column_of_tiles(kind, walked):
    for case, clusters in walked(kind):
        stored, multiplied = Counter(), Counter()
        for tile in (tile for of in clusters for together in of for tile in together):
            weight = tile.cluster_m if case.tile.swap_ab else tile.cluster_n
            rows = rows_of(case, tile)
            assert rows.multiplied <= rows.stored, case
            stored.update((tile.group, weight, row) for row in rows.stored)
            multiplied.update((tile.group, weight, row) for row in rows.multiplied)
        for found, part in ((stored, 0), (multiplied, 1)):
            wanted = {
                (group, weight, row)
                for group, rows in meaning(case).items()
                for weight in range(case.weights)
                for row in rows[part]
            }
            assert found == dict.fromkeys(wanted, 1), case


@pytest.mark.parametrize("kind", KINDS)
def test_the_ctas_of_a_cluster_see_the_same_tile_and_one_of_them_stores_some(kind, walked):
    for case, clusters in walked(kind):
        for together in (together for of in clusters for together in of):
            same = {
                (tile.cluster_m, tile.cluster_n, tile.group, tile.first, tile.idle, tile.k)
                for tile in together
            }
            assert len(same) == 1, case
            rows = [rows_of(case, tile) for tile in together]
            assert any(of.stored for of in rows), case
            # Of two groups' blocks both CTAs multiply, whether or not there are tokens.
            if together[0].idle:
                assert not any(of.multiplied for of in rows), case
            elif kind is not GroupKind.LABELS or case.sharers == 1:
                assert any(of.multiplied for of in rows), case


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_share_tiles_evenly(kind, walked):
    even = 0
    for case, clusters in walked(kind):
        counts = [len(of) for of in clusters]
        if kind is GroupKind.LABELS and not one_tile_a_place(case):
            continue
        even += 1
        assert max(counts) - min(counts) <= 1, case
    assert even > 50


def one_tile_a_place(case):
    """Say whether all blocks of labels have a group, and all of a cluster the same one."""
    together = case.tile * case.sharers
    for row in range(0, case.rows, together):
        rows = range(row, min(row + together, case.rows), case.tile)
        labels = {case.of[start // case.alignment * case.alignment] for start in rows}
        if len(labels) > 1 or not labels <= set(range(case.groups)):
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_walks_in_turn_what_one_cluster_walks_alone(kind, walk):
    cases = [case for case in CASES[kind] if case.grid > 1][:150]
    if kind is GroupKind.LABELS:  # every place has one tile
        labels = [[max(0, min(of, case.groups - 1)) for of in case.of] for case in cases]
        cases = [
            replace(case, sharers=1, of=tuple(of)) for case, of in zip(cases, labels, strict=True)
        ]
    alone = [replace(case, grid=1) for case in cases]
    for case, one, many, few in zip(cases, alone, walk(cases), walk(alone), strict=True):
        order = in_turn([[told(of) for of in cluster] for cluster in clusters_of(case, many)])
        assert order == [told(of) for of in clusters_of(one, few)[0]], case
        groups = [group for group, *_ in order]
        assert kind is GroupKind.LABELS or groups == sorted(groups), case


def told(together):
    tile = together[0]
    return tile.group, tile.cluster_m, tile.cluster_n


def in_turn(clusters):
    return [tile for turn in zip_longest(*clusters) for tile in turn if tile is not None]


def test_groups_along_k_have_their_extent_and_their_first_scale(walked):
    for case, clusters in walked("k"):
        extents = [max(0, extent) for extent in case.of]
        for tile in (tile for of in clusters for together in of for tile in together):
            before = sum(-(-extent // 128) for extent in extents[: tile.group])
            assert (tile.k, tile.first_scale) == (extents[tile.group], before), case


def test_a_group_is_finished_band_by_band_before_the_next_begins(walk):
    case = Case("masked", 64, 1, False, 4, 2, True, 1, 3, 400, 1, False, (6 * 64, 0, 130))
    (tiles,) = walk([case])
    assert [tile.group for tile in tiles] == [0] * 24 + [2] * 12
    pairs = [[0, 1] * 4, [2, 3] * 4, [4, 5] * 4, [0, 1] * 4, [2] * 4]
    assert [tile.cluster_m for tile in tiles] == sum(pairs, [])
    assert [tile.cluster_n for tile in tiles[-8:]] == [2, 2, 3, 3, 0, 1, 2, 3]


def test_the_lanes_of_a_warp_walk_as_one_thread_does(walk, tmp_path):
    by_lanes = walker(tmp_path, ("-DWITH_LANES", "-pthread"))
    for kind in KINDS:
        cases = [replace(case, grid=min(case.grid, 3)) for case in CASES[kind][:60]]
        assert by_lanes(cases) == walk(cases)
