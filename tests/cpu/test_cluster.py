"""How a cluster shares work, compiled as host C++: parts of K, tiles, multicast boxes, sums.

What the device does by assembly is simulated there, the CTAs of a cluster taking turns.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from deep_gemm.config import candidates
from deep_gemm.kernels.gemm_sm90 import GemmParams, fill_params, tensor_maps
from deep_gemm.problem import Major

from .config_kit import FORMS, H200, config_of
from .host_kit import cases_of, compile_host, launch_numbers, walk_of

SPLIT = [
    config
    for form in (FORMS["block"], FORMS["rows"], FORMS["int8"], FORMS["bf16_turned_fp32_read"])
    for config in candidates(H200, form)
    if config.split_k > 1
]


# --- where a CTA stands, and what it loads ------------------------------------------------------

# Every division of K; then every way to share operands, alone and with K split.
DIVIDED = [config_of(64, 8, split_k, swap_ab=True) for split_k in range(1, 9)]
SHARED = [
    config_of(128, 128, 1, 2, 1),
    config_of(128, 96, 1, 1, 2),
    config_of(64, 48, 1, 2, 1),
    config_of(64, 72, 1, 1, 2),
    config_of(128, 136, 1, 1, 2),
    config_of(256, 144, 1, 2, 1),
    config_of(128, 192, 1, 2, 1),
    config_of(256, 128, 1, 1, 2),
    config_of(64, 96, 2, 2, 1),
    config_of(64, 64, 4, 2, 1),
    config_of(64, 160, 3, 2, 1),
    config_of(128, 144, 2),
    config_of(64, 128, 2, 1, 2),
    config_of(64, 16, 4, swap_ab=True),
    config_of(64, 32, 4, 2, 1, swap_ab=True),
    config_of(64, 32, 2, 1, 2, swap_ab=True),
]
# Operands of 16 bits; then such whose rows, not K, are contiguous: whole boxes of 64 of them.
TURNED, ROWS_TURNED = FORMS["bf16_turned_fp32_read"], FORMS["fp16_a_turned_fp32_reduce"]
WIDE = [
    config_of(128, 96, 2, form=FORMS["bf16"]),
    config_of(128, 192, 1, 2, 1, form=FORMS["bf16"]),
    config_of(64, 96, form=TURNED),
    config_of(256, 112, form=TURNED),
    config_of(128, 128, 1, 2, 1, form=TURNED),
    config_of(128, 208, 1, 1, 2, form=TURNED),
    config_of(256, 128, 1, 1, 2, form=TURNED),
    config_of(64, 72, 4, form=TURNED),
    config_of(64, 128, 2, 2, 1, form=TURNED),
    config_of(64, 24, 3, swap_ab=True, form=TURNED),
    config_of(128, 40, 1, 1, 2, form=ROWS_TURNED),
    config_of(64, 32, 4, swap_ab=True, form=ROWS_TURNED),
    config_of(64, 32, 2, 1, 2, swap_ab=True, form=ROWS_TURNED),
    config_of(128, 48, 1, 2, 1, form=ROWS_TURNED),
    config_of(128, 128, 1, 2, 1, form=FORMS["bf16_b_turned"]),
    config_of(64, 136, 3, form=FORMS["bf16_b_turned"]),
]
CONFIGS = [*DIVIDED, *SHARED, *WIDE]
assert not any(violations(config, H200) for config in CONFIGS)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return a function: rows of (config, m, n, k, clusters in the grid) to three tables each.

    Parts: (CTA, row, column, extra column, first block, blocks). Loads: (CTA reached, map, address,
    barrier, first element, first row). Of the stage loaded: (address of rows, of columns, barrier).
    """
    folder = tmp_path_factory.mktemp("cta")
    run = compile_host("cta", folder, {"cases.inc": cases_of(CONFIGS)})

    def show(cases):
        lines = []
        for config, *shape, clusters in cases:
            walk = walk_of(config, *shape, clusters)
            lines.append((CONFIGS.index(config), *launch_numbers(config, *shape, walk, clusters)))
        rows = run("\n".join(" ".join(map(str, line)) for line in lines))
        assert len(rows) == 3 * len(cases)
        return [
            (in_tuples(rows[i], 6), in_tuples(rows[i + 1], 6), tuple(rows[i + 2]))
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


@pytest.mark.parametrize("config", [*SHARED, *WIDE], ids=lambda c: c.name)
def test_a_grid_computes_every_block_of_every_tile_once(config, shown):
    chance = random.Random(0)
    cases = [
        (config, *(chance.randint(1, 1000) for _ in range(3)), chance.choice([1, 2, 7, 16]))
        for _ in range(40)
    ]
    for (_, m, n, k, _), (parts, _, _) in zip(cases, shown(cases), strict=True):
        computed = Counter(
            (row, column, extra, first + i)
            for _, row, column, extra, first, count in parts
            for i in range(count)
        )
        tile, extents = config.tile, config.oriented(m, n)
        rows = -(-extents[0] // (tile.block_m * config.cluster_m)) * config.cluster_m
        columns = -(-extents[1] // (tile.block_n * config.cluster_n)) * config.cluster_n
        # The extra columns of all tiles lie behind their main ones.
        behind = columns * config.n_head
        wanted = {
            (tile.block_m * i, config.n_head * j, behind + config.n_tail * j, block)
            for i in range(rows)
            for j in range(columns)
            for block in range(-(-k // config.variant.block_k))
        }
        assert computed == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_the_boxes_that_reach_a_stage_are_its_tile(config, shown):
    """A CTA's own boxes and those multicast to it fill its stage once, and count on its barrier."""
    chance = random.Random(1)
    shapes = [(1, 8, 1024), (5, 40, 4096), (2000, 2000, 2000), (2000, 8, 9000), (3, 3000, 1152)]
    shapes += [tuple(chance.randint(1, 1500) for _ in range(3)) for _ in range(20)]
    found = shown([(config, *shape, 1) for shape in shapes])
    form = config.variant
    for (m, n, k), (parts, loads, (*at, barrier)) in zip(shapes, found, strict=True):
        strides = (m if form.a_major is Major.MN else k), (n if form.b_major is Major.MN else k)
        operands = GemmLayout(m, n, k, *strides, n, (1, m, 0), (1, 1, 0))
        maps = tensor_maps(config, operands)
        boxes = [maps[name] for name in ("map_a", "map_b", "map_extra") if name in maps]
        params = GemmParams()
        walk = walk_of(config, m, n, k)
        fill_params(params, config, operands, walk, 0)
        for cta in range(config.cluster_size):
            mine = [load for reached, *load in loads if reached == cta]
            walked = [part for of, *part in parts if of == cta]
            row, column, extra, first, count = walked[walk.clusters // 2]
            if count == 0:
                assert not mine
                continue
            assert {signalled for _, _, signalled, *_ in mine} == {barrier}
            brought = (boxes[of].box_outer * boxes[of].box_inner for of, *_ in mine)
            assert sum(brought) * form.a.bytes == params.stage_bytes
            # Of rows, columns and extra columns: the map, the address, what is to lie there.
            maps_of_sides = (1, 0) if config.tile.swap_ab else (0, 1)
            behind = at[1] + config.n_head * 128
            sides = (
                (maps_of_sides[0], at[0], row, config.tile.block_m),
                (maps_of_sides[1], at[1], column, config.n_head),
                (2, behind, extra, config.n_tail),
            )
            sides = [side for side in sides if side[-1]]
            assert {of for of, *_ in mine} == {of for of, *_ in sides}
            last = (first + count - 1) * form.block_k
            for of, smem, start, block in sides:
                major = (form.a_major, form.b_major, form.b_major)[of]
                landed = [(to, *place) for which, to, _, *place in mine if which == of]
                filled = filled_by(landed, boxes[of], major, last, smem - start * 128)
                assert len(filled) == len(set(filled))
                # Rows in boxes of 64 are more than some tiles have; there is room for them.
                room = -(-block // 64) * 64 if major == "mn" else block
                assert set(filled) <= set(range(start, start + room))
                # Rows that the operand does not have may keep what was there.
                exist = min(start + block, (m, n, n)[of])
                assert set(filled) >= set(range(start, exist))


def filled_by(landed, box, major, k, zero):
    """Return the rows of an operand that boxes, landed at (address, inner, outer), bring.

    A row has 128 bytes of the k-block at k, and row 0 would have them at address `zero`.
    """
    rows, depth = box.box_outer, box.box_inner
    placed = [(to, *place) for to, *place in landed]
    if major == "mn":
        rows, depth = depth, rows
        placed = [(to, *place[::-1]) for to, *place in landed]
    assert depth * box.dtype_bytes == 128
    assert all((at, to - zero) == (k, first * 128) for to, at, first in placed)
    # The swizzle of a box repeats every 8 rows; a share begins with it.
    assert all(to % 1024 == 0 for to, *_ in placed)
    return [row for _, _, first in placed for row in range(first, first + rows)]


# --- sums over a cluster ------------------------------------------------------------------------

# (CTAs of a tile, tiles of a cluster, groups of 8 columns, math warpgroups, groups of a piece): of
# candidates; then some that no candidate has, of fewer owners than CTAs and of pieces that
# overlap by one group to all but one among them.
SHAPES = sorted(
    {
        (
            c.split_k,
            c.multicast,
            c.tile.block_n // 8,
            c.tile.num_math_warpgroups,
            c.reduce_mma_n // 8,
        )
        for c in SPLIT
    }
    | {(3, 1, 12, 1, 4), (3, 2, 1, 2, 1), (5, 1, 2, 1, 1), (7, 1, 4, 1, 1), (8, 1, 3, 2, 1)}
    | {(2, 1, 17, 1, 9), (4, 1, 12, 2, 4), (3, 1, 18, 1, 7), (5, 2, 5, 1, 2), (2, 1, 3, 1, 3)}
    | {(2, 2, 18, 2, 17), (6, 1, 16, 1, 3)}
)
EXCHANGES = [(sums, *shape) for sums in ("float", "int") for shape in SHAPES]


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """Return what host/exchange.cpp found of each of EXCHANGES: a tuple for each CTA."""
    calls = [
        f"{{ static deep_gemm::Cluster<{', '.join(map(str, numbers))}> c; c.show(); }}"
        for numbers in EXCHANGES
    ]
    folder = tmp_path_factory.mktemp("exchange")
    rows = compile_host("exchange", folder, {"cases.inc": "\n".join(calls)})("")
    return dict(zip(EXCHANGES, (in_tuples(row, 10) for row in rows), strict=True))


@pytest.mark.parametrize("numbers", EXCHANGES, ids=lambda n: "x".join(map(str, n)))
def test_every_owner_is_sent_its_columns_and_sums_them_in_order_of_ranks(numbers, exchanged):
    _, split, tiles, groups, warpgroups, owned = numbers
    owners = -(-groups // owned)
    of_others = (split - 1) * warpgroups * owned * 128 * 16
    assert len(exchanged[numbers]) == split * tiles
    for cta, found in enumerate(exchanged[numbers]):
        full, empty, expected, arrived, released, stray, uneven, first, columns, wrong = found
        assert (full, empty) == (1, split * warpgroups * 4)
        # The buffer is free when every math warp of every CTA of the tile has said so.
        assert released == empty
        rank = cta // tiles
        # The last piece ends with the tile, wherever that lets it begin.
        piece = (0, 0) if rank >= owners else (min(rank * owned, groups - owned) * 8, owned * 8)
        assert (first, columns) == piece
        assert expected == arrived == (rank < owners) * of_others
        assert (stray, uneven, wrong) == (0, 0, 0)


def exchange_of(config):
    tile, piece = config.tile, config.reduce_mma_n // 8
    sums = "int" if config.variant.integer else "float"
    shape = config.split_k, config.multicast, tile.block_n // 8, tile.num_math_warpgroups, piece
    return sums, *shape


def pieces_of(config, exchanged):
    """Columns of each CTA of the cluster's first tile, as the exchange deals them out."""
    found = exchanged[exchange_of(config)][:: config.multicast]
    return [range(first, first + columns) for *_, first, columns, _ in found]


@pytest.mark.parametrize("config", SPLIT, ids=lambda c: c.name)
def test_pieces_cover_a_tile_and_the_last_alone_has_the_extra_columns(config, exchanged):
    pieces = list(filter(None, pieces_of(config, exchanged)))
    assert {column for piece in pieces for column in piece} == set(range(config.tile.block_n))
    *others, last = pieces
    assert all(piece.stop <= config.n_head for piece in others) or len(pieces) == 1
    assert last.start <= config.n_head and last.stop == config.tile.block_n
    # Only the last two overlap, so no column is stored more than twice.
    assert all(one.stop == two.start for one, two in pairwise(others))


@pytest.mark.parametrize("config", SPLIT, ids=lambda c: c.name)
def test_the_host_plans_pieces_and_buffer_as_the_exchange_does(config, exchanged):
    _, _, expected, *_ = exchanged[exchange_of(config)][0]
    assert len(pieces_of(config, exchanged)[0]) == config.reduce_mma_n
    assert expected == plan(config).exchange
