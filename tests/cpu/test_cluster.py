"""How a cluster shares work, compiled as host C++: split-K, tiles, multicast, the reduction.

What the device does by assembly is simulated; the CTAs of a cluster run one after the other.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from deep_gemm.config import candidates, violations
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.kernels.gemm_sm90 import GemmLayout, fill_params, spec, tensor_maps
from deep_gemm.problem import Major

from .config_kit import H200, VARIANTS, config_of
from .host_kit import Source, compile_host, configs_text, launch_words, raster_of

SPLIT_K = [
    config
    for name in ("1d2d", "1d1d", "int8", "bf16_mn_fp32_read")
    for config in candidates(H200, VARIANTS[name])
    if config.split_k > 1
]


# --- where a CTA stands, and what it loads --------------------------------------------------------

# Every division of K; then every way to share operands, alone and with split-K.
DIVISIONS = [config_of(8, 64, split_k, swap_ab=True) for split_k in range(1, 9)]
SHARING = [
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
    config_of(16, 64, 4, swap_ab=True),
    config_of(32, 64, 4, 1, 2, swap_ab=True),
    config_of(32, 64, 2, 2, 1, swap_ab=True),
]
# Operands of 16 bits; then MN-major ones, in whole boxes of 64.
MN_MAJOR, A_MN_MAJOR = VARIANTS["bf16_mn_fp32_read"], VARIANTS["fp16_a_mn_fp32_reduce"]
WIDE = [
    config_of(128, 96, 2, variant=VARIANTS["bf16"]),
    config_of(128, 192, 1, 2, 1, variant=VARIANTS["bf16"]),
    config_of(64, 96, variant=MN_MAJOR),
    config_of(256, 112, variant=MN_MAJOR),
    config_of(128, 128, 1, 2, 1, variant=MN_MAJOR),
    config_of(128, 208, 1, 1, 2, variant=MN_MAJOR),
    config_of(256, 128, 1, 1, 2, variant=MN_MAJOR),
    config_of(64, 72, 4, variant=MN_MAJOR),
    config_of(64, 128, 2, 2, 1, variant=MN_MAJOR),
    config_of(24, 64, 3, swap_ab=True, variant=MN_MAJOR),
    config_of(128, 40, 1, 1, 2, variant=A_MN_MAJOR),
    config_of(32, 64, 4, swap_ab=True, variant=A_MN_MAJOR),
    config_of(32, 64, 2, 2, 1, swap_ab=True, variant=A_MN_MAJOR),
    config_of(128, 48, 1, 2, 1, variant=A_MN_MAJOR),
    config_of(128, 128, 1, 2, 1, variant=VARIANTS["bf16_b_mn"]),
    config_of(64, 136, 3, variant=VARIANTS["bf16_b_mn"]),
]
CONFIGS = [*DIVISIONS, *SHARING, *WIDE]
assert not any(violations(config, H200) for config in CONFIGS)


@pytest.fixture(scope="module")
def shown():
    """Return a function: rows of (config, m, n, k, clusters in the grid) to three tables each.

    Tiles: (CTA, m, n of the head, n of the tail, first k-block, k-blocks). Loads: (CTA reached,
    map, address, barrier, first element, first row). Of the stage loaded: (address of A, address
    of B, barrier).
    """
    source = Source("cta", ("cluster", "tma", "warp"), (), {"configs.inc": configs_text(CONFIGS)})
    run = compile_host(source)

    def show(cases):
        launches = []
        for config, *shape, clusters in cases:
            order = raster_of(config, *shape, clusters)
            words = launch_words(config, *shape, order, clusters)
            launches.append((CONFIGS.index(config), *words))
        rows = run("\n".join(" ".join(map(str, launch)) for launch in launches))
        assert len(rows) == 3 * len(cases)
        return [
            (in_tuples(rows[i], 6), in_tuples(rows[i + 1], 6), tuple(rows[i + 2]))
            for i in range(0, len(rows), 3)
        ]

    return show


def in_tuples(row, width):
    return list(zip(*[iter(row)] * width, strict=True))


@pytest.mark.parametrize("config", DIVISIONS, ids=lambda c: f"split{c.split_k}")
def test_parts_of_k_cover_every_block_once_and_in_order(config, shown):
    extents = [0, *(128 * blocks - less for blocks in range(1, 201) for less in (0, 112))]
    cases = [(config, 8, 64, k, 1) for k in extents]
    for k, (tiles, _, _) in zip(extents, shown(cases), strict=True):
        assert [cta for cta, *_ in tiles] == list(range(config.split_k))
        blocks = [first + i for *_, first, count in tiles for i in range(count)]
        assert blocks == list(range(-(-k // 128)))
        # The first part is the longest: the host counts with it what may be loaded early.
        counts = [count for *_, count in tiles]
        assert counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


@pytest.mark.parametrize("config", [*SHARING, *WIDE], ids=lambda c: c.name)
def test_a_grid_computes_every_block_of_every_tile_once(config, shown):
    chance = random.Random(0)
    cases = [
        (config, *(chance.randint(1, 1000) for _ in range(3)), chance.choice([1, 2, 7, 16]))
        for _ in range(40)
    ]
    for (_, m, n, k, _), (tiles, _, _) in zip(cases, shown(cases), strict=True):
        computed = Counter(
            (m_idx, head, tail, first + i)
            for _, m_idx, head, tail, first, count in tiles
            for i in range(count)
        )
        tile = config.tile
        m_tiles = -(-m // (tile.block_m * config.cluster_m)) * config.cluster_m
        n_tiles = -(-n // (tile.block_n * config.cluster_n)) * config.cluster_n
        # The N tails of all tiles lie behind their heads.
        first_tail = n_tiles * config.n_head
        wanted = {
            (tile.block_m * i, config.n_head * j, first_tail + config.n_tail * j, block)
            for i in range(m_tiles)
            for j in range(n_tiles)
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
    variant, tile = config.variant, config.tile
    for (m, n, k), (tiles, loads, (*at, barrier)) in zip(shapes, found, strict=True):
        stride_a = m if variant.a_major is Major.MN else k
        stride_b = n if variant.b_major is Major.MN else k
        layout = GemmLayout(m, n, k, stride_a, stride_b, n, (1, m, 0), (1, 1, 0))
        maps = tensor_maps(config, layout)
        boxes = [maps[name] for name in ("map_a", "map_b", "map_b_tail") if name in maps]
        params = spec(config).params()
        order = raster_of(config, m, n, k)
        fill_params(params, config, layout, order, 0)
        for cta in range(config.cluster_size):
            received = [load for reached, *load in loads if reached == cta]
            own_tiles = [tile for owner, *tile in tiles if owner == cta]
            m_idx, head, tail, first, count = own_tiles[order.clusters // 2]
            if count == 0:
                assert not received
                continue
            assert {signalled for _, _, signalled, *_ in received} == {barrier}
            elements = (boxes[map_].box_outer * boxes[map_].box_inner for map_, *_ in received)
            assert sum(elements) * variant.a.bytes == params.stage_bytes
            # The rows of A, of B's head and tail: the map, the address, what is to lie there.
            at_tail = at[1] + config.n_head * 128
            wanted = [
                (0, at[0], m_idx, tile.block_m),
                (1, at[1], head, config.n_head),
                (2, at_tail, tail, config.n_tail),
            ]
            wanted = [rows for rows in wanted if rows[-1]]
            assert {map_ for map_, *_ in received} == {map_ for map_, *_ in wanted}
            last_k = (first + count - 1) * variant.block_k
            for map_, smem, start, block in wanted:
                major = variant.b_major if map_ else variant.a_major
                landed = [(to, *place) for which, to, _, *place in received if which == map_]
                filled = rows_of(landed, boxes[map_], major, last_k, smem - start * 128)
                assert len(filled) == len(set(filled))
                # MN-major boxes have 64 rows, more than some tiles; there is room for them.
                room = -(-block // 64) * 64 if major is Major.MN else block
                assert set(filled) <= set(range(start, start + room))
                # Rows that the operand does not have may keep what was there.
                end = min(start + block, (m, n, n)[map_])
                assert set(filled) >= set(range(start, end))


def rows_of(landed, box, major, k, zero):
    """Return the rows of an operand that boxes, landed at (address, inner, outer), bring.

    A row has 128 bytes of the k-block at k, and row 0 would have them at address `zero`.
    """
    rows, depth = box.box_outer, box.box_inner
    placed = [(to, *place) for to, *place in landed]
    if major is Major.MN:
        rows, depth = depth, rows
        placed = [(to, *place[::-1]) for to, *place in landed]
    assert depth * box.dtype_bytes == 128
    assert all((at, to - zero) == (k, first * 128) for to, at, first in placed)
    # The swizzle of a box repeats every 8 rows; a share begins with it.
    assert all(to % 1024 == 0 for to, *_ in placed)
    return [row for _, _, first in placed for row in range(first, first + rows)]


# --- the split-K reduction ------------------------------------------------------------------------

# (split_k, tiles of a cluster, groups of 8 columns, math warpgroups, groups of an owner): those of
# candidates; then some that no candidate has, among them fewer owners than CTAs, and owners that
# overlap by one group to all but one.
SHAPES = sorted(
    {
        (
            c.split_k,
            c.multicast,
            c.tile.mma_n // 8,
            c.tile.num_math_warpgroups,
            c.reduce_mma_n // 8,
        )
        for c in SPLIT_K
    }
    | {(3, 1, 12, 1, 4), (3, 2, 1, 2, 1), (5, 1, 2, 1, 1), (7, 1, 4, 1, 1), (8, 1, 3, 2, 1)}
    | {(2, 1, 17, 1, 9), (4, 1, 12, 2, 4), (3, 1, 18, 1, 7), (5, 2, 5, 1, 2), (2, 1, 3, 1, 3)}
    | {(2, 2, 18, 2, 17), (6, 1, 16, 1, 3)}
)
REDUCTIONS = [(accum, *shape) for accum in ("float", "int") for shape in SHAPES]


@pytest.fixture(scope="module")
def reduced():
    """Return what host/cluster_reduce.cpp prints of each of REDUCTIONS: a tuple for each CTA."""
    lines = [f"ReductionOf<{', '.join(map(str, numbers))}>::kReduction," for numbers in REDUCTIONS]
    stand_ins = ("cluster", "mbarrier", "memory", "warp")
    source = Source("cluster_reduce", stand_ins, (), {"reductions.inc": "\n".join(lines)})
    rows = compile_host(source)("")
    return dict(zip(REDUCTIONS, (in_tuples(row, 10) for row in rows), strict=True))


@pytest.mark.parametrize("numbers", REDUCTIONS, ids=lambda n: "x".join(map(str, n)))
def test_every_owner_receives_its_columns_and_adds_them_in_order_of_rank(numbers, reduced):
    _, split_k, tiles, groups, warpgroups, owned = numbers
    owners = -(-groups // owned)
    bytes_of_others = (split_k - 1) * warpgroups * owned * 128 * 16
    assert len(reduced[numbers]) == split_k * tiles
    for cta, found in enumerate(reduced[numbers]):
        full, empty, expected, arrived, released, misplaced, uneven, first, columns, wrong = found
        assert (full, empty) == (1, split_k * warpgroups * 4)
        # The buffer is free when every math warp of every CTA of the tile has said so.
        assert released == empty
        rank = cta // tiles
        # The last owner's columns end with the tile, wherever that lets them begin.
        own = (0, 0) if rank >= owners else (min(rank * owned, groups - owned) * 8, owned * 8)
        assert (first, columns) == own
        assert expected == arrived == (rank < owners) * bytes_of_others
        assert (misplaced, uneven, wrong) == (0, 0, 0)


def reduction_of(config):
    tile, owned = config.tile, config.reduce_mma_n // 8
    accum = "int" if config.variant.is_integer else "float"
    shape = config.split_k, config.multicast, tile.mma_n // 8, tile.num_math_warpgroups, owned
    return accum, *shape


def owned_columns(config, reduced):
    """Return the columns of each CTA of the cluster's first tile, as the reduction deals them."""
    found = reduced[reduction_of(config)][:: config.multicast]
    return [range(first, first + columns) for *_, first, columns, _ in found]


@pytest.mark.parametrize("config", SPLIT_K, ids=lambda c: c.name)
def test_owners_cover_a_tile_and_the_last_one_alone_has_the_n_tail(config, reduced):
    owned = list(filter(None, owned_columns(config, reduced)))
    mma_n, head = config.tile.mma_n, config.tile.mma_n - config.n_tail
    assert {column for columns in owned for column in columns} == set(range(mma_n))
    *others, last = owned
    assert all(columns.stop <= head for columns in others) or len(owned) == 1
    assert last.start <= head and last.stop == mma_n
    # Only the last two overlap, so no column is stored more than twice.
    assert all(one.stop == two.start for one, two in pairwise(others))


@pytest.mark.parametrize("config", SPLIT_K, ids=lambda c: c.name)
def test_the_host_plans_owners_and_buffer_as_the_reduction_does(config, reduced):
    _, _, expected, *_ = reduced[reduction_of(config)][0]
    assert len(owned_columns(config, reduced)[0]) == config.reduce_mma_n
    assert expected == shared_storage(config).reduce
