"""Whole kernels compiled as host C++, on a simulated cluster, beside the documented arithmetic.

Producers fill shared memory, the tensor core reads it through the kernel's own descriptors, and the
math threads promote, reduce over the cluster, scale, add C and store, one thread at a time. Each
k-block has a stage, and each CTA one tile, or two with ping-pong. Every element of D must have the
very bits that the formula gives. Left out are what barriers order, the rounding to 16 bits, and the
tensor core's own rounding.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from deep_gemm.config import violations
from deep_gemm.config.raster import ResidueTiles
from deep_gemm.config.registers import num_partials
from deep_gemm.kernels.gemm_sm90 import GemmLayout, fill_params, spec
from deep_gemm.problem import Mainloop, Major

from .config_kit import H200, VARIANTS, config_of
from .host_kit import launch_words, map_words, raster_of, simulator

# (BLOCK_M, BLOCK_N, split_k, cluster_m, cluster_n). Each variant has one of each line: one slice
# and several, split-K with even and odd parts, multicast, alone and with split-K.
TILES = (
    ((64, 48), (128, 128), (192, 32)),
    ((256, 64), (256, 80), (256, 32)),
    ((64, 64, 4), (128, 64, 3), (64, 96, 2)),
    ((128, 64, 1, 2, 1), (64, 80, 1, 1, 2), (64, 64, 2, 2, 1), (128, 128, 1, 1, 2)),
)
SWAP_AB_TILES = (
    ((16, 64), (24, 128), (32, 256)),
    ((32, 64, 4), (32, 64, 2, 2, 1), (24, 64, 3)),
)
# Where accumulators stay in the tensor core.
PING_PONG_TILES = (
    ((64, 192), (128, 96)),
    ((128, 128, 1, 2, 1), (64, 256, 1, 1, 2), (128, 160, 1, 1, 2)),
)
# Further tiles of a variant: N tails of every width, split-K parts that overlap, widths that are
# not whole boxes of an operand or of D.
VARIANT_TILES = {
    "1d2d": (
        *((64, 24), (64, 72), (64, 136), (64, 192), (256, 136), (256, 144, 1, 2, 1)),
        *((128, 192, 1, 1, 2), (192, 96, 1, 1, 2), (64, 64, 3), (64, 136, 2), (64, 144, 6)),
    ),
    "1d1d": ((128, 128), (64, 72, 5), (64, 128, 1, 1, 2)),
    "bf16_mn_fp32_read": ((128, 128, 1, 2, 1), (128, 208, 1, 1, 2), (256, 112)),
    "fp16_a_mn_fp32_reduce": ((128, 64, 1, 1, 2),),
    "bf16_b_mn": ((128, 256, 1, 2, 1), (64, 136, 2), (128, 72, 1, 1, 2)),
    "fast_scaled": ((64, 72, 5), (256, 128)),
    "int8_scaled_bf16_read": ((128, 240),),
}
VARIANT_SWAP_AB_TILES = {
    "1d2d": ((24, 64, 5), (16, 192), (40, 64, 4)),
    "bf16_mn_fp32_read": ((24, 64, 3),),
    "fast_scaled": ((40, 64, 4),),
}


def legal(name, tiles, **options):
    made = (config_of(*tile, variant=VARIANTS[name], **options) for tile in tiles)
    return [config for config in made if not violations(config, H200)]


def configs_of(index, name):
    """Return what of these can be built, of each line the first from the index-th on."""
    found = []
    kinds = (
        (TILES, VARIANT_TILES, {}),
        (PING_PONG_TILES, {}, {"ping_pong": True}),
        (SWAP_AB_TILES, VARIANT_SWAP_AB_TILES, {"swap_ab": True}),
    )
    for lines, further, kind in kinds:
        for line in lines:
            at = index % len(line)
            found += legal(name, line[at:] + line[:at], **kind)[:1]
        found += legal(name, further.get(name, ()), **kind)
    return list(dict.fromkeys(found))


CONFIGS = {name: configs_of(index, name) for index, name in enumerate(VARIANTS)}
ALL = [config for configs in CONFIGS.values() for config in configs]
# Split-K parts overlap: two CTAs store the columns that both own.
OVERLAPPING = [config for config in ALL if config.tile.mma_n % config.reduce_mma_n]
# Those that add to D with their store alone.
REDUCING = [c for c in ALL if c.variant.reduces_into_d and not c.tile.swap_ab and c.split_k == 1]
NO_GROUPS = (0,) * 6
RESIDENT = 3  # clusters at a time, to the raster


def cluster_extents(config):
    """Return the extents of a cluster's tiles along the axes of the MMA."""
    along_m, along_n = config.cluster_m, config.cluster_n
    along_mma_m, along_mma_n = (along_n, along_m) if config.tile.swap_ab else (along_m, along_n)
    return config.tile.mma_m * along_mma_m, config.tile.mma_n * along_mma_n


def shapes_of(config):
    """Problems of one tile with few elements, of one that is not whole, and of several."""
    chance = random.Random(config.name)
    tile, step = config.tile, config.variant.block_k * config.split_k
    rows, columns = cluster_extents(config)
    # Where boxes of D are prefetched, that is the last one of a tile, if it has rows.
    least = rows - 63 if config in REDUCING else rows // 2
    for extents, parts in (
        ((chance.randint(1, 8), 8), 1),
        ((chance.randint(least, rows + 9), columns - 8 * chance.randint(0, 1)), 2),
        (
            (chance.randint(1, 80), (columns + 8 * chance.randint(1, 9)) * tile.tiles_in_flight),
            3,
        ),
    ):
        m, n = extents[::-1] if tile.swap_ab else extents
        n = -(-n // 8) * 8
        m -= chance.randint(0, 7) if tile.swap_ab else 0
        most = min(parts, config.num_stages // tile.tiles_in_flight)
        yield m, n, step * most - chance.randint(0, step - 1)
    yield from residue_shapes(config, chance)


def residue_shapes(config, chance):
    """Problems of two by two clusters, of which two are a last row or column of residue tiles."""
    rows, columns = config.tile.block_m * config.cluster_m, config.tile.block_n * config.cluster_n
    if config.half_n and config.cluster_n == 1:
        n = columns + 8 * chance.randint(1, config.half_n // 8)
        yield rows + chance.randint(1, rows), n, 200
    if config.half_m and config.cluster_m == 1:
        yield rows + chance.randint(1, config.half_m), 2 * columns, 200


@pytest.fixture(scope="module")
def simulated():
    """Return a function: a configuration to what host/simulator.cpp prints of each launch."""
    run = simulator(ALL)

    @cache
    def show(config):
        launches = [
            (ALL.index(config), *launch_of(config, shape, i, in_place))
            for i, shape in enumerate(shapes_of(config))
            for in_place in ((0, 1) if config.variant.reads_c else (0,))
        ]
        rows = run("\n".join(" ".join(map(str, launch)) for launch in launches))
        assert len(rows) == len(launches)
        return rows

    return show


def launch_of(config, shape, index, in_place):
    """Return a launch as the simulator reads it, but for the configuration's index."""
    m, n, k = shape
    variant = config.variant
    stride_a = m if variant.a_major is Major.MN else k
    layout = GemmLayout(m, n, k, stride_a, n if variant.b_major is Major.MN else k, n)
    order = raster_of(config, m, n, k, RESIDENT)
    params = spec(config).params()
    clusters = -(-order.clusters // config.tile.tiles_in_flight)
    early = min(index, config.num_stages)
    fill_params(params, config, layout, order, early)
    return (
        *launch_words(config, m, n, k, order, clusters),
        *(params.stage_bytes, early, in_place, index + variant.has_epilogue_scales),
        *map_words(config, layout),
        *NO_GROUPS,
    )


def test_every_variant_has_every_kind_of_tile_it_allows():
    for name, configs in CONFIGS.items():
        straight = [c for c in configs if not c.tile.swap_ab]
        assert {c.split_k > 1 for c in straight} == {False, True}, name
        # 1D1D has neither; boxes of 64 rows cannot always be halved.
        if VARIANTS[name].mainloop is not Mainloop.SCALED_1D1D:
            assert {c.split_k > 1 for c in configs if c.tile.swap_ab} == {False, True}, name
            assert {c.tile.m_slices > 1 for c in straight} == {False, True}, name
        direct = VARIANTS[name].mainloop is Mainloop.DIRECT
        ping_pong = sum(c.tile.ping_pong for c in straight)
        assert (ping_pong == len(PING_PONG_TILES)) == direct, name
    ping_pong = {(c.tile.m_slices, c.variant.has_epilogue_scales) for c in ALL if c.tile.ping_pong}
    assert ping_pong == {(1, False), (1, True), (2, False), (2, True)}
    for mainloop in Mainloop:
        configs = [c for c in ALL if c.variant.mainloop is mainloop]
        straight = [c for c in configs if not c.tile.swap_ab]
        assert {c.multicast > 1 for c in configs} == {False, True}
        clusters = {(c.cluster_m, c.cluster_n) for c in straight}
        assert clusters == {(1, 1), (1, 2), (2, 1)}, mainloop
    assert {num_partials(c) for c in ALL} == {0, 1, 2}
    assert {c.n_tail for c in ALL} >= {0, 8, 16, 32, 64}
    assert {c.tile.swap_ab for c in OVERLAPPING} == {False, True}
    assert {c.n_tail > 0 for c in OVERLAPPING if not c.tile.swap_ab} == {False, True}
    mn_major = {
        (c.variant.a_major, c.variant.b_major, c.cluster_m, c.cluster_n)
        for c in ALL
        if not c.tile.swap_ab
    }
    wanted = {(Major.MN, Major.MN, 2, 1), (Major.MN, Major.MN, 1, 2), (Major.K, Major.MN, 2, 1)}
    assert wanted <= mn_major


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_every_element_has_the_bits_of_the_formula_and_is_stored_once(config, simulated):
    total_repeated = total_prefetched = 0
    for wrong, missing, repeated, out_of_bounds, pending, *others in simulated(config):
        *refused, prefetched, needless = others
        assert (wrong, missing) == (0, 0)
        # C is not read out of bounds, nor after its element of D was written.
        assert out_of_bounds == 0
        # What TMA and other CTAs bring is what barriers were told to expect.
        assert pending == 0
        assert refused == [0, 0, 0, 0]
        assert needless == 0
        total_repeated += repeated
        total_prefetched += prefetched
    assert (total_repeated > 0) == (config in OVERLAPPING)
    assert total_prefetched == 0 or config in REDUCING


def test_residue_tiles_are_first_and_last():
    residues = {
        (raster_of(config, *shape, RESIDENT).residue, config.multicast)
        for config in ALL
        for shape in residue_shapes(config, random.Random(config.name))
    }
    wanted = {(ResidueTiles(1, 1, False), 1), (ResidueTiles(1, 1, True), 1)}
    assert residues >= wanted and ResidueTiles() not in {residue for residue, _ in residues}


@pytest.mark.parametrize("config", REDUCING, ids=lambda c: c.name)
def test_boxes_of_d_are_prefetched_with_every_second_k_block(config, simulated):
    assert sum(row[-2] for row in simulated(config)) > 0
