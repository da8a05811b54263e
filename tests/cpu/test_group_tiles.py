"""Tile schedulers of grouped products, compiled as host C++, beside what grouped layouts mean."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import pytest

from deep_gemm.problem import GroupKind

from .group_kit import RANDOM_LAYOUTS, Case, Rows, meaning
from .host_kit import Source, compile_host

BLOCK_M = (8, 24, 64, 72, 128, 192, 256)  # that host/group_tiles.cpp has schedulers for
ONE_THREAD = Source("group_tiles", ("warp",))
WARP = Source("group_tiles", (), ("-DWITH_LANES",))


class Tile(NamedTuple):
    """A tile of a CTA, as the program prints it."""

    cluster: int
    rank: int
    m_cluster: int
    n_cluster: int
    group: int
    m_begin: int
    m_end: int
    m_store_end: int
    k: int
    scale_begin: int


WORDS = len(Tile._fields)


def random_case(kind: GroupKind, chance: random.Random) -> Case:
    alignment, block_m = chance.randint(1, 256), chance.choice(BLOCK_M)
    if kind is GroupKind.LABELS:
        alignment = chance.choice([64, 128])
        block_m = chance.choice([8, 64, 128] if alignment == 128 else [8, 64])
    chosen = {
        "num_groups": chance.choice([1, 2, 3, 8, 8, 40]),
        "m": chance.choice([1, 60, 64, 128, chance.randint(1, 400), chance.randint(1, 700)]),
        "alignment": alignment,
    }
    return Case(
        kind=kind,
        block_m=block_m,
        cluster_m=chance.choice([1, 2]),
        n_clusters=chance.choice([1, 1, 2, 3]),
        swizzle_width=chance.choice([1, 2, 3, 4, 8, 16]),
        along_n=chance.random() < 0.5,
        grid=chance.choice([1, 2, 7, 65, 66, 131, 132]),
        zero_fill=chance.random() < 0.5,
        layout=RANDOM_LAYOUTS[kind](chance, chosen) if kind in RANDOM_LAYOUTS else (),
        **chosen,
    )


def scheduler(source: Source):
    """Return a function: cases to their tiles, by cluster and rank, in the order of visits."""
    run = compile_host(source)

    def tiles(cases):
        printed = run("\n".join(case.line() for case in cases))
        assert len(printed) == len(cases)
        return [[Tile(*row[i : i + WORDS]) for i in range(0, len(row), WORDS)] for row in printed]

    return tiles


@pytest.fixture(scope="module")
def schedule():
    """Return what scheduler() does, with a warp that is one thread."""
    return scheduler(ONE_THREAD)


def by_cluster(case: Case, tiles: list[Tile]) -> list[list[tuple[Tile, ...]]]:
    """Return the tiles of each cluster in order, each as its CTAs see it."""
    visits: list[list[list[Tile]]] = [[[] for _ in range(case.cluster_m)] for _ in range(case.grid)]
    for tile in tiles:
        visits[tile.cluster][tile.rank].append(tile)
    for ranks in visits:
        assert len({len(rank) for rank in ranks}) == 1, case
    return [list(zip(*ranks, strict=True)) for ranks in visits]


def rows_of(case: Case, tile: Tile) -> Rows:
    """Return the rows that a CTA stores, and those that it multiplies, as ranges."""
    begin = tile.m_begin + (tile.m_cluster * case.cluster_m + tile.rank) * case.block_m
    ends = [min(begin + case.block_m, end) for end in (tile.m_store_end, tile.m_end)]
    return Rows(*(range(begin, end) for end in ends))


KINDS = [kind for kind in GroupKind if kind is not GroupKind.NONE]
CASES = {
    kind: [random_case(kind, random.Random(f"{kind} {i}")) for i in range(600)] for kind in KINDS
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture(scope="module")
def scheduled(schedule):
    """Return a function: a kind to its cases, each with the tiles of its clusters."""
    found = {}

    def of_kind(kind):
        if kind not in found:
            found[kind] = [
                (case, by_cluster(case, tiles))
                for case, tiles in zip(CASES[kind], schedule(CASES[kind]), strict=True)
            ]
        return found[kind]

    return of_kind


@each_kind
def test_every_row_of_every_group_is_stored_once_by_every_column_of_tiles(kind, scheduled):
    for case, clusters in scheduled(kind):
        stored, multiplied = defaultdict(list), defaultdict(list)
        for tile in (tile for visits in clusters for ctas in visits for tile in ctas):
            rows, column = rows_of(case, tile), (tile.group, tile.n_cluster)
            assert set(rows.multiplied) <= set(rows.stored), case
            if rows.stored:
                stored[column] += rows.stored
            if rows.multiplied:
                multiplied[column] += rows.multiplied
        for found, part in ((stored, 0), (multiplied, 1)):
            wanted = {
                (group, n_cluster): sorted(rows[part])
                for group, rows in meaning(case).items()
                for n_cluster in range(case.n_clusters)
                if rows[part]
            }
            assert {column: sorted(rows) for column, rows in found.items()} == wanted, case


@each_kind
def test_ctas_of_a_cluster_visit_the_same_tiles_and_one_of_them_stores_rows(kind, scheduled):
    for case, clusters in scheduled(kind):
        for ctas in (ctas for visits in clusters for ctas in visits):
            common = {
                (tile.m_cluster, tile.n_cluster, tile.group, tile.m_begin, tile.k) for tile in ctas
            }
            assert len(common) == 1, case
            rows = [rows_of(case, tile) for tile in ctas]
            assert any(cta.stored for cta in rows), case
            # Along K, k is the group's extent. Else it is 0 where no CTA multiplies; but where the
            # cluster has M-blocks of two groups, both CTAs multiply, with or without valid rows.
            if kind is GroupKind.ALONG_K:
                assert any(cta.multiplied for cta in rows), case
            elif ctas[0].k == 0:
                assert not any(cta.multiplied for cta in rows), case
            elif kind is not GroupKind.LABELS or case.cluster_m == 1:
                assert any(cta.multiplied for cta in rows), case


@each_kind
def test_clusters_share_tiles_evenly(kind, scheduled):
    num_even = 0
    for case, clusters in scheduled(kind):
        counts = [len(visits) for visits in clusters]
        if kind is GroupKind.LABELS and not has_one_group_per_cluster(case):
            continue
        num_even += 1
        assert max(counts) - min(counts) <= 1, case
    assert num_even > 50


def has_one_group_per_cluster(case):
    """Say whether all M-blocks have a label, and those of a cluster the same one."""
    cluster_rows = case.block_m * case.cluster_m
    for row in range(0, case.m, cluster_rows):
        blocks = range(row, min(row + cluster_rows, case.m), case.block_m)
        labels = {case.layout[start // case.alignment * case.alignment] for start in blocks}
        if len(labels) > 1 or not labels <= set(range(case.num_groups)):
            return False
    return True


@each_kind
def test_clusters_take_the_tiles_of_a_single_cluster_one_after_the_other(kind, schedule):
    cases = [case for case in CASES[kind] if case.grid > 1][:150]
    if kind is GroupKind.LABELS:  # every M-block has a label, so that none is skipped
        cases = [
            replace(
                case,
                cluster_m=1,
                layout=tuple(max(0, min(label, case.num_groups - 1)) for label in case.layout),
            )
            for case in cases
        ]
    alone = [replace(case, grid=1) for case in cases]
    for case, single, tiles, wanted in zip(
        cases, alone, schedule(cases), schedule(alone), strict=True
    ):
        visits = [[place(ctas) for ctas in cluster] for cluster in by_cluster(case, tiles)]
        order = [visit for turn in zip_longest(*visits) for visit in turn if visit is not None]
        assert order == [place(ctas) for ctas in by_cluster(single, wanted)[0]], case
        groups = [group for group, *_ in order]
        assert kind is GroupKind.LABELS or groups == sorted(groups), case


def place(ctas):
    tile = ctas[0]
    return tile.group, tile.m_cluster, tile.n_cluster


def test_groups_along_k_have_their_extent_and_their_first_column_of_scales(scheduled):
    for case, clusters in scheduled(GroupKind.ALONG_K):
        extents = [max(0, extent) for extent in case.layout]
        for tile in (tile for visits in clusters for ctas in visits for tile in ctas):
            scale_begin = sum(-(-extent // 128) for extent in extents[: tile.group])
            assert (tile.k, tile.scale_begin) == (extents[tile.group], scale_begin), case


def test_a_group_is_finished_in_its_raster_before_the_next_begins(schedule):
    case = Case(
        kind=GroupKind.MASKED,
        block_m=64,
        cluster_m=1,
        n_clusters=4,
        swizzle_width=2,
        along_n=True,
        grid=1,
        num_groups=3,
        m=400,
        alignment=1,
        zero_fill=False,
        layout=(6 * 64, 0, 130),
    )
    (tiles,) = schedule([case])
    assert [tile.group for tile in tiles] == [0] * 24 + [2] * 12
    pairs = [[0, 1] * 4, [2, 3] * 4, [4, 5] * 4, [0, 1] * 4, [2] * 4]
    assert [tile.m_cluster for tile in tiles] == sum(pairs, [])
    assert [tile.n_cluster for tile in tiles[-8:]] == [2, 2, 3, 3, 0, 1, 2, 3]


def test_the_lanes_of_a_warp_visit_the_tiles_that_one_thread_visits(schedule):
    schedule_by_warp = scheduler(WARP)
    for kind in KINDS:
        cases = [replace(case, grid=min(case.grid, 3)) for case in CASES[kind][:60]]
        assert schedule_by_warp(cases) == schedule(cases)
