"""Constants of kernels, and the N head and N tail of their tiles, compiled as host C++.

What the kernels compute with them is simulated by test_simulated.py.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import accumulate

import pytest

from deep_gemm.config import candidates, violations
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.problem import Grouping, GroupKind, Mainloop, Major

from .config_kit import CANDIDATES, H200, TEMPLATES, VARIANTS, WARPGROUPS, config_of
from .host_kit import Source, compile_host, configs_text, launch_words, raster_of

CLUSTERS = ((1, 1), (2, 1), (1, 2))


def legal(configs):
    return [config for config in configs if not violations(config, H200)]


def config_of_mma_tile(mma_m, mma_n, *args, swap_ab, **rest):
    """Return the configuration of a tile that is mma_m x mma_n, with swap-AB or without it."""
    tile = (mma_n, mma_m) if swap_ab else (mma_m, mma_n)
    return config_of(*tile, *args, swap_ab=swap_ab, **rest)


# --- constants ------------------------------------------------------------------------------------

# Every legal BLOCK_N with every split_k; then every cluster. Some of every variant, with swap-AB
# and without it, and some of every kind of groups.
LEGAL = legal(
    [
        *CANDIDATES,
        *(config for variant in VARIANTS.values() for config in candidates(H200, variant)[::7]),
        *(
            config_of_mma_tile(*shape, variant=variant, swap_ab=swap_ab)
            for variant in VARIANTS.values()
            for shape in ((64, 24, 3), (128, 80, 2), (256, 72), (192, 112))
            for swap_ab in (False, True)
        ),
        *(
            config_of_mma_tile(64, mma_n, split_k, swap_ab=swap_ab)
            for mma_n in range(8, 257, 8)
            for split_k in range(1, 9)
            for swap_ab in (False, True)
        ),
        *(
            config_of(block_m, block_n, split_k, *cluster)
            for block_m in WARPGROUPS
            for block_n in range(8, 257, 8)
            for split_k in (1, 2, 3)
            for cluster in CLUSTERS
        ),
        *(
            config_of(128, block_n, variant=replace(TEMPLATES[name], grouping=grouping).variant)
            for grouping in (Grouping(kind, 1) for kind in GroupKind)
            for name in ("1d2d", "1d1d", "int8_scaled_fp32", "bf16")
            for block_n in (64, 136)
        ),
    ]
)
LEGAL = list(dict.fromkeys(LEGAL))


def test_every_legal_configuration_passes_the_kernels_assertions():
    stand_ins = ("cluster", "warp")
    included = {"configs.inc": configs_text(LEGAL)}
    rows = compile_host(Source("shared_storage", stand_ins, (), included))("")
    for config, row in zip(LEGAL, rows, strict=True):
        tile, variant, stages = config.tile, config.variant, config.num_stages
        owners = -(-tile.mma_n // config.reduce_mma_n)
        constants = variant.block_k, config.n_head, config.n_tail, config.reduce_mma_n, owners
        assert tuple(row[:5]) == constants, config.name
        # Stages of A and of B are one part to the host, and so are all barriers.
        stage_a, begin_b, *begins, size, passed = row[5:]
        extents = tile.block_m, tile.block_n
        rows_a, rows_b = (
            -(-extent // 64) * 64 if major is Major.MN else extent
            for extent, major in zip(extents, (variant.a_major, variant.b_major), strict=True)
        )
        assert (stage_a, begin_b) == (rows_a * 128, stages * rows_a * 128), config.name
        parts = shared_storage(config)._asdict()
        assert parts["operands"] == stages * (rows_a + rows_b) * 128, config.name
        *wanted, end = accumulate(parts.values())
        assert size == passed == end == shared_storage(config).total, config.name
        check_begins(config, begins, dict(zip(list(parts)[1:], wanted, strict=True)))


def check_begins(config, begins, wanted):
    """Fail unless the parts of shared memory behind the operands begin where the host plans them.

    A part without bytes is an empty member of the kernel's struct, which may lie anywhere.
    """
    *begins, reduce_barriers, epilogue_scale_barriers, work_tile_barriers = begins
    parts = shared_storage(config)._asdict()
    assert len(begins) == len(wanted)
    for (name, begin), found in zip(wanted.items(), begins, strict=True):
        assert parts[name] == 0 or found == begin, (config.name, name)
    if config.variant.mainloop is Mainloop.SCALED_1D1D:
        # Scales are an operand of an MMA there, with the 32-byte swizzle.
        assert wanted["scales"] % 256 == 0, config.name
    # A full and an empty barrier for each stage, for the reduction, for each tile in flight and
    # for each tile that the scheduler warp broadcasts.
    assert reduce_barriers == wanted["barriers"] + 16 * config.num_stages
    assert epilogue_scale_barriers == reduce_barriers + 16
    end = epilogue_scale_barriers + 16 * config.tile.tiles_in_flight
    if config.variant.is_grouped:
        assert work_tile_barriers == end
        end += 16 * parts["work_tiles"] // 32
    assert wanted["barriers"] + parts["barriers"] == end


# --- columns and scales ---------------------------------------------------------------------------

CONFIGS = [
    # N heads alone, then N tails of every width.
    *(config_of(64, block_n) for block_n in (8, 64, 128)),
    *(config_of(64, block_n) for block_n in (24, 40, 48, 72, 80, 96, 136, 144, 160, 192)),
    # One and two slices of 64 rows, clusters along M and N: the last tiles may be out of bounds.
    config_of(256, 136),
    config_of(256, 144, cluster_m=2),
    config_of(128, 192, cluster_n=2),
    config_of(192, 96, cluster_n=2),
    config_of(64, 48, cluster_m=2),
    # Split-K, with owners that have equal columns, and with some that overlap.
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
    # Swap-AB; a tile with more than 128 columns along N lies in several blocks of scales.
    config_of(8, 64, swap_ab=True),
    config_of(32, 128, swap_ab=True),
    config_of(40, 64, 4, swap_ab=True),
    config_of(24, 64, 5, swap_ab=True),
    config_of(32, 64, 2, cluster_m=2, swap_ab=True),
    *legal([config_of(16, 192, swap_ab=True), config_of(64, 256, swap_ab=True)]),
    # Variants without 128x128 scales, whose tiles have no N tail.
    *(
        config_of(128, 96, variant=VARIANTS[variant], cluster_n=cluster_n)
        for variant in ("1d1d", "promoted_scaled_read", "int8", "bf16_b_mn")
        for cluster_n in (1, 2)
    ),
]


def mma_head(config):
    """Return the columns along mma_n in front of the N tail."""
    return config.tile.mma_n - config.n_tail


def cluster_mma_n(config):
    """Return the CTAs of a cluster along mma_n."""
    return config.cluster_m if config.tile.swap_ab else config.cluster_n


def shapes_of(config):
    """Problems of one tile, of a few, and with partial tiles; each k-block has a stage."""
    chance, head = random.Random(config.name), mma_head(config)
    wide = config.tile.mma_n * cluster_mma_n(config)
    columns = [8, head, head + 8, wide - 8, wide, wide + 8, 2 * wide, 5 * wide]
    columns += [8 * chance.randint(1, 120) for _ in range(4)]
    for extent in (extent for extent in columns if extent > 0):
        rows = 8 * chance.randint(1, 40)
        m, n = (extent, rows) if config.tile.swap_ab else (rows, extent)
        yield m, n, 128 * config.split_k * chance.randint(1, min(3, config.num_stages)) - 112


@pytest.fixture(scope="module")
def shown():
    """Return a function: a configuration to what host/columns.cpp prints of each of its shapes.

    That is, of every tile: its first row along mma_m, its columns along mma_n, and two blocks of
    scales of B: of head and tail, or, with swap-AB, of the tile's rows along mma_m.
    """
    included = {"configs.inc": configs_text(CONFIGS)}
    run = compile_host(Source("columns", ("cluster", "warp"), (), included))

    @cache
    def show(config):
        launches = [launch_of(config, *shape) for shape in shapes_of(config)]
        rows = run("\n".join(" ".join(map(str, launch)) for launch in launches))
        assert len(rows) == len(launches)
        return [tiles_of(config, row) for row in rows]

    return show


def launch_of(config, m, n, k):
    order = raster_of(config, m, n, k)
    return CONFIGS.index(config), *launch_words(config, m, n, k, order, order.clusters)


def tiles_of(config, row):
    width = config.tile.mma_n + 3
    tiles = [row[i : i + width] for i in range(0, len(row), width)]
    return [(first, columns, scales) for first, *columns, a, b in tiles for scales in [(a, b)]]


def test_configurations_are_legal_and_of_every_kind():
    assert all(not violations(config, H200) for config in CONFIGS)
    assert {c.n_tail for c in CONFIGS} == {0, 8, 16, 32, 64}
    assert {c.store.box_n for c in CONFIGS} >= {8, 16, 24, 32, 56, 64}
    assert {c.multicast > 1 and c.n_tail > 0 for c in CONFIGS} == {False, True}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_every_column_is_in_one_tile_and_every_part_in_one_block_of_scales(config, shown):
    head, mma_n, cluster_n = mma_head(config), config.tile.mma_n, cluster_mma_n(config)
    for (m, n, _), tiles in zip(shapes_of(config), shown(config), strict=True):
        extent = m if config.tile.swap_ab else n
        num_tiles = -(-extent // (mma_n * cluster_n)) * cluster_n
        for row in {row for row, _, _ in tiles}:
            found = Counter(x for first, columns, _ in tiles if first == row for x in columns)
            assert found == dict.fromkeys(range(num_tiles * mma_n), 1)
        for row, columns, scales in tiles:
            if config.tile.swap_ab:
                assert scales == (row // 128, row // 128 + 1)
                continue
            parts = columns[:head], columns[head:]
            for part, block in zip(parts, scales, strict=True):
                assert part == list(range(min(part, default=0), max(part, default=-1) + 1))
                if config.variant.mainloop is Mainloop.SCALED_1D2D:
                    assert {column // 128 for column in part} <= {block}
