"""The plan of a kernel and the two parts of a tile's columns, compiled as host C++.

What is done with them is simulated by test_simulated.py.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import accumulate

import pytest

from deep_gemm.config import candidates
from deep_gemm.problem import Mainloop

from .config_kit import FORMS, H200, WARPGROUPS, config_of
from .host_kit import cases_of, compile_host, launch_numbers, walk_of

SHARED = ((1, 1), (2, 1), (1, 2))


def legal(drafts):
    return [config for config in drafts if not violations(config, H200)]


# --- constants ----------------------------------------------------------------------------------

# Every legal tile of columns with every split; then every way to share operands. Some of every
# form, in every order of its rows and columns.
EVERY = legal(
    [
        *candidates(H200),
        *(config for form in FORMS.values() for config in candidates(H200, form)[::7]),
        *(
            config_of(*shape, form=form, swapped=swapped)
            for form in FORMS.values()
            for shape in ((64, 24, 3), (128, 80, 2), (256, 72), (192, 112))
            for swapped in (False, True)
        ),
        *(
            config_of(64, block_n, split_k, swapped=swapped)
            for block_n in range(8, 257, 8)
            for split_k in range(1, 9)
            for swapped in (False, True)
        ),
        *(
            config_of(block_m, block_n, split_k, *shared)
            for block_m in WARPGROUPS
            for block_n in range(8, 257, 8)
            for split_k in (1, 2, 3)
            for shared in SHARED
        ),
    ]
)
EVERY = list(dict.fromkeys(EVERY))


def test_every_legal_configuration_passes_the_kernels_assertions(tmp_path):
    run = compile_host("plans", tmp_path, {"cases.inc": cases_of(EVERY)})
    rows = run(" ".join(str(i) for i in range(len(EVERY))))
    for config, row in zip(EVERY, rows, strict=True):
        owners = -(-config.tile.block_n // config.reduce_mma_n)
        regions = plan(config)
        numbers = config.variant.block_k, config.n_head, config.n_tail, config.reduce_mma_n, owners
        assert tuple(row[:5]) == numbers, config.name
        # What the host plans as one region are rows and columns to the kernel.
        columns, *starts = row[5:]
        assert starts == list(accumulate(vars(regions).values())), config.name
        assert starts[-1] == regions.total
        boxes = (-(-extent // 64) * 64 for extent in (config.tile.block_m, config.tile.block_n))
        extents = config.tile.block_m, config.tile.block_n
        rooms = [
            whole if major == "mn" else extent
            for whole, extent, major in zip(boxes, extents, config.majors, strict=True)
        ]
        assert (columns, starts[0]) == tuple(
            config.num_stages * 128 * room for room in (rooms[0], sum(rooms))
        )


# --- places and scales ---------------------------------------------------------------------------

CONFIGS = [
    # One part of columns, and two of every width.
    *(config_of(64, block_n) for block_n in (8, 64, 128)),
    *(config_of(64, block_n) for block_n in (24, 40, 48, 72, 80, 96, 136, 144, 160, 192)),
    # Rows by one and two waves, columns of clusters: the last tiles may have none that exist.
    config_of(256, 136),
    config_of(256, 144, cluster_m=2),
    config_of(128, 192, cluster_n=2),
    config_of(192, 96, cluster_n=2),
    config_of(64, 48, cluster_m=2),
    # K split: pieces of equal columns, and such as overlap.
    config_of(64, 32, 4),
    config_of(64, 64, 3),
    config_of(64, 96, 2, cluster_m=2),
    config_of(64, 96, 4),
    config_of(64, 128, 7),
    config_of(64, 136, 2),
    config_of(128, 144, 2),
    config_of(64, 144, 6),
    config_of(64, 160, 3),
    config_of(64, 80, 8),
    # Tokens as columns; the rows of a tall tile lie in several blocks of 128 weights.
    config_of(64, 8, swap_ab=True),
    config_of(128, 32, swap_ab=True),
    config_of(64, 40, 4, swap_ab=True),
    config_of(64, 24, 5, swap_ab=True),
    config_of(64, 32, 2, cluster_n=2, swap_ab=True),
    *legal([config_of(192, 16, swap_ab=True), config_of(256, 64, swap_ab=True)]),
    # Forms without blocks of weights, whose columns are one part.
    *(
        config_of(128, 96, form=FORMS[form], cluster_n=cluster_n)
        for form in ("rows", "unit_scaled_read", "int8", "bf16_b_turned")
        for cluster_n in (1, 2)
    ),
]


def shapes_of(config):
    """Problems of one tile, of a few, and of tiles not whole; each k-block has a stage."""
    chance = random.Random(config.name)
    wide = config.tile.block_n * config.cluster_n
    columns = [8, config.n_head, config.n_head + 8, wide - 8, wide, wide + 8, 2 * wide, 5 * wide]
    columns += [8 * chance.randint(1, 120) for _ in range(4)]
    for extent in (extent for extent in columns if extent > 0):
        rows = 8 * chance.randint(1, 40)
        m, n = (extent, rows) if config.tile.swap_ab else (rows, extent)
        yield m, n, 128 * config.split_k * chance.randint(1, min(3, config.num_stages)) - 112


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return a function: a configuration to what host/columns.cpp shows of each of its shapes.

    That is (first row, places of columns, scale blocks of both parts) of every tile.
    """
    folder = tmp_path_factory.mktemp("columns")
    run = compile_host("columns", folder, {"cases.inc": cases_of(CONFIGS)})

    @cache
    def show(config):
        lines = [line_of(config, *shape) for shape in shapes_of(config)]
        rows = run("\n".join(" ".join(map(str, line)) for line in lines))
        assert len(rows) == len(lines)
        return [tiles_of(config, row) for row in rows]

    return show


def line_of(config, m, n, k):
    walk = walk_of(config, m, n, k)
    return CONFIGS.index(config), *launch_numbers(config, m, n, k, walk, walk.clusters)


def tiles_of(config, row):
    width = config.tile.block_n + 3
    tiles = [row[i : i + width] for i in range(0, len(row), width)]
    return [(first, places, scales) for first, *places, a, b in tiles for scales in [(a, b)]]


def test_configurations_are_legal_and_of_every_kind():
    assert all(not violations(config, H200) for config in CONFIGS)
    assert {c.n_tail for c in CONFIGS} == {0, 8, 16, 32, 64}
    assert {c.store.box_columns for c in CONFIGS} >= {8, 16, 24, 32, 56, 64}
    assert {c.multicast > 1 and c.n_tail > 0 for c in CONFIGS} == {False, True}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_every_column_is_in_one_tile_and_every_part_in_one_block_of_weights(config, shown):
    main, block_n = config.n_head, config.tile.block_n
    for (m, n, _), tiles in zip(shapes_of(config), shown(config), strict=True):
        _, columns = config.oriented(m, n)
        across = -(-columns // (block_n * config.cluster_n)) * config.cluster_n
        for row in {row for row, _, _ in tiles}:
            places = Counter(x for first, places, _ in tiles if first == row for x in places)
            assert places == dict.fromkeys(range(across * block_n), 1)
        for row, places, scales in tiles:
            if config.tile.swap_ab:
                assert scales[0] == row // 128
                continue
            parts = places[:main], places[main:]
            for part, block in zip(parts, scales, strict=True):
                assert part == list(range(min(part, default=0), max(part, default=-1) + 1))
                if config.variant.mainloop is Mainloop.SCALED_1D2D:
                    assert {column // 128 for column in part} <= {block}
