"""How a cluster shares work, compiled as host C++: parts of K, tiles, multicast boxes, sums.

What the device does by assembly is simulated there, the CTAs of a cluster taking turns.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, by_name, candidates, reasons
from deep_gemm.config.candidates import complete
from deep_gemm.config.raster import raster
from deep_gemm.config.smem_plan import plan
from deep_gemm.kernels.gemm_sm90 import (
    GemmParams,
    Operands,
    fill_params,
    tensor_maps,
    translation_unit,
)
from deep_gemm.problem import GemmProblem

from .host_kit import compile_host

H200 = by_name("h200")
SPLIT = [config for config in candidates(H200) if config.split_k > 1]


def config_of(block_m, block_n, split_k, cluster_m=1, cluster_n=1, swapped=False):
    tile = TileConfig(block_m, block_n, 1 if block_m == 64 else 2)
    draft = GemmConfig(tile, cluster_m, cluster_n, 0, StoreConfig(0, 0, 0), split_k, swapped)
    config = complete(draft, H200)
    assert not reasons(config, H200)
    return config


# --- where a CTA stands, and what it loads ------------------------------------------------------

# Every division of K; then every way to share operands, alone and with K split.
DIVIDED = [config_of(64, 8, split_k, swapped=True) for split_k in range(1, 9)]
SHARED = [
    config_of(128, 128, 1, 2, 1),
    config_of(128, 96, 1, 1, 2),
    config_of(256, 128, 1, 1, 2),
    config_of(64, 96, 2, 2, 1),
    config_of(64, 64, 4, 2, 1),
    config_of(64, 128, 2, 1, 2),
    config_of(64, 16, 4, swapped=True),
    config_of(64, 32, 4, 2, 1, swapped=True),
    config_of(64, 32, 2, 1, 2, swapped=True),
]
CONFIGS = [*DIVIDED, *SHARED]


def cases_of(configs):
    """What host/cta.cpp includes: the constants of configurations, as in their kernels' sources."""
    structs, cases = [], []
    for i, config in enumerate(configs):
        members = re.search(r"struct Config (\{.*?\};)", translation_unit(config).source, re.DOTALL)
        assert members
        structs.append(f"struct Config{i} {members[1]}")
        cases.append(f"if (index == {i}) show<Config{i}>(params, grid);")
    show = "void show_case(uint32_t index, const GemmParams& params, uint32_t grid) {\n"
    return "\n".join(["namespace deep_gemm {", *structs, show, *cases, "}", "}"])


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return a function: rows of (config, m, n, k, clusters in the grid) to three tables each.

    Parts: (CTA, row, column, first block, blocks). Loads: (CTA reached, operand, address, barrier,
    first element, first row). Of the stage loaded: (address of rows, of columns, barrier).
    """
    folder = tmp_path_factory.mktemp("cta")
    run = compile_host("cta", folder, {"cases.inc": cases_of(CONFIGS)})

    def show(cases):
        lines = []
        for config, m, n, k, clusters in cases:
            walk = raster(GemmProblem.block_scaled(m, n, k), config, clusters)
            tiles = walk.clusters_m, walk.clusters_n, walk.band, int(walk.band_on_m)
            lines.append((CONFIGS.index(config), m, n, k, *tiles, clusters * config.cluster))
        rows = run("\n".join(" ".join(map(str, line)) for line in lines))
        assert len(rows) == 3 * len(cases)
        return [
            (in_tuples(rows[i], 5), in_tuples(rows[i + 1], 6), tuple(rows[i + 2]))
            for i in range(0, len(rows), 3)
        ]

    return show


def in_tuples(row, width):
    return list(zip(*[iter(row)] * width, strict=True))


@pytest.mark.parametrize("config", DIVIDED, ids=lambda c: f"split{c.split_k}")
def test_parts_of_k_cover_every_block_once_and_in_order(config, shown):
    extents = [0, *(128 * blocks - over for blocks in range(1, 201) for over in (0, 112))]
    cases = [(config, 8, 64, k, 1) for k in extents]
    for k, (parts, _, _) in zip(extents, shown(cases), strict=True):
        assert [cta for cta, *_ in parts] == list(range(config.split_k))
        blocks = [first + i for *_, first, count in parts for i in range(count)]
        assert blocks == list(range(-(-k // 128)))
        # The first part is the longest: the host counts with it what may be read early.
        counts = [count for *_, count in parts]
        assert counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


@pytest.mark.parametrize("config", SHARED, ids=lambda c: c.name)
def test_a_grid_computes_every_block_of_every_tile_once(config, shown):
    chance = random.Random(0)
    cases = [
        (config, *(chance.randint(1, 1000) for _ in range(3)), chance.choice([1, 2, 7, 16]))
        for _ in range(40)
    ]
    for (_, m, n, k, _), (parts, _, _) in zip(cases, shown(cases), strict=True):
        rows, columns = config.oriented(m, n)
        computed = Counter(
            (row, column, first + i)
            for _, row, column, first, count in parts
            if row < rows and column < columns
            for i in range(count)
        )
        wanted = {
            (row, column, block)
            for row in range(0, rows, config.tile.block_m)
            for column in range(0, columns, config.tile.block_n)
            for block in range(-(-k // 128))
        }
        assert computed == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_the_boxes_that_reach_a_stage_are_its_tile(config, shown):
    """A CTA's own boxes and those multicast to it fill its stage once, and count on its barrier."""
    chance = random.Random(1)
    shapes = [(1, 8, 1024), (5, 40, 4096), (2000, 2000, 2000), (2000, 8, 9000), (3, 3000, 1152)]
    shapes += [tuple(chance.randint(1, 1500) for _ in range(3)) for _ in range(20)]
    found = shown([(config, *shape, 1) for shape in shapes])
    for (m, n, k), (parts, loads, (*at, barrier)) in zip(shapes, found, strict=True):
        operands = Operands(m, n, k, k, k, n, (1, m), (1, 1))
        boxes = [tensor_maps(config, operands)[name] for name in ("map_a", "map_b")]
        params = GemmParams()
        walk = raster(GemmProblem.block_scaled(m, n, k), config, 1)
        fill_params(params, config, operands, walk, 0)
        first_tiles = {cta: part for cta, *part in reversed(parts)}
        assert set(first_tiles) == set(range(config.cluster))
        for cta, (row, column, first, count) in first_tiles.items():
            mine = [load for reached, *load in loads if reached == cta]
            if count == 0:
                assert not mine
                continue
            last = (first + count - 1) * 128
            assert {(signalled, k_of) for _, _, signalled, k_of, _ in mine} == {(barrier, last)}
            brought = sum(boxes[of].box_outer * boxes[of].box_inner for of, *_ in mine)
            assert brought == params.stage_bytes
            sides = ((row, config.tile.block_m), (column, config.tile.block_n))
            for side, (start, block) in enumerate(sides):
                of = 1 - side if config.swapped else side
                landed = [(smem, outer) for which, smem, _, _, outer in mine if which == of]
                assert all((smem - at[side]) == (outer - start) * 128 for smem, outer in landed)
                filled = [
                    row for _, outer in landed for row in range(outer, outer + boxes[of].box_outer)
                ]
                assert len(filled) == len(set(filled))
                assert start <= min(filled) and max(filled) < start + block
                # Rows that the operand does not have may keep what was there.
                exist = min(start + block, (m, n)[of])
                assert set(filled) >= set(range(start, exist))


# --- sums over a cluster ------------------------------------------------------------------------

# (CTAs of a tile, tiles of a cluster, groups of 8 columns, math warpgroups): of every candidate;
# then some that no candidate has, of more CTAs than groups among them.
EXCHANGES = sorted(
    {(c.split_k, c.multicast, c.tile.block_n // 8, c.tile.num_math_warpgroups) for c in SPLIT}
    | {(3, 1, 12, 1), (3, 2, 1, 2), (5, 1, 2, 1), (7, 1, 4, 1), (8, 1, 3, 2)}
)


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """Return what host/exchange.cpp found of each of EXCHANGES: a tuple for each CTA."""
    calls = [
        f"{{ static deep_gemm::Cluster<{', '.join(map(str, numbers))}> c; c.show(); }}"
        for numbers in EXCHANGES
    ]
    folder = tmp_path_factory.mktemp("exchange")
    rows = compile_host("exchange", folder, {"cases.inc": "\n".join(calls)})("")
    return dict(zip(EXCHANGES, (in_tuples(row, 9) for row in rows), strict=True))


@pytest.mark.parametrize("numbers", EXCHANGES, ids=lambda n: "x".join(map(str, n)))
def test_every_column_is_summed_once_and_in_order_of_ranks(numbers, exchanged):
    split, tiles, groups, warpgroups = numbers
    owned = -(-groups // split)
    of_others = (split - 1) * warpgroups * owned * 128 * 16
    assert len(exchanged[numbers]) == split * tiles
    for cta, found in enumerate(exchanged[numbers]):
        full, empty, expected, arrived, released, stray, uneven, columns, wrong = found
        assert (full, empty) == (1, split * warpgroups * 4)
        # The buffer is free when every math warp of every CTA of the tile has said so.
        assert released == empty
        owns = cta // tiles * owned < groups
        assert columns == owns * owned * 8
        assert expected == arrived == owns * of_others
        assert (stray, uneven, wrong) == (0, 0, 0)
    assert sum(found[7] for found in exchanged[numbers]) == tiles * groups * 8


@pytest.mark.parametrize("config", SPLIT, ids=lambda c: c.name)
def test_the_host_plans_pieces_and_buffer_as_the_exchange_does(config, exchanged):
    tile = config.tile
    numbers = config.split_k, config.multicast, tile.block_n // 8, tile.num_math_warpgroups
    _, _, expected, *_, columns, _ = exchanged[numbers][0]
    assert columns == config.piece_n
    assert expected == plan(config).exchange
