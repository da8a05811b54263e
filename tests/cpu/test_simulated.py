"""The whole kernel compiled as host C++, on a simulated cluster, beside the documented arithmetic.

Producers fill shared memory, the tensor core reads it through the kernel's own descriptors, and the
math threads promote, exchange, scale, add C and store, one thread at a time; each k-block has a
stage, and each CTA one tile, or two where its warpgroups have tiles of their own. Every element of
D must have the very bits that the formula gives. Left out are what barriers order, the rounding to
16 bits, and the tensor core's own.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from deep_gemm.config import violations
from deep_gemm.config.raster import Edge
from deep_gemm.kernels.gemm_sm90 import GemmParams, fill_params
from deep_gemm.problem import CMode, Mainloop, Major

from .config_kit import FORMS, H200, config_of
from .host_kit import cases_of, compile_host, launch_numbers, map_numbers, walk_of

# (BLOCK_M, BLOCK_N, split_k, cluster_m, cluster_n): what every form goes through, one of each line:
# one wave and several, K in even and odd parts, operands shared, alone and beside parts of K. Then
# the same with tokens as columns.
PLAIN = (
    ((64, 48), (128, 128), (192, 32)),
    ((256, 64), (256, 80), (256, 32)),
    ((64, 64, 4), (128, 64, 3), (64, 96, 2)),
    ((128, 64, 1, 2, 1), (64, 80, 1, 1, 2), (64, 64, 2, 2, 1), (128, 128, 1, 1, 2)),
)
SWAPPED = (
    ((64, 16), (128, 24), (256, 32)),
    ((64, 32, 4), (64, 32, 2, 1, 2), (64, 24, 3)),
)
# Two warpgroups with tiles of their own, where sums stay in the tensor core.
PING_PONG = (((64, 192), (128, 96)), ((128, 128, 1, 2, 1), (64, 256, 1, 1, 2), (128, 160, 1, 1, 2)))
# Beyond them: extra columns of every width, shares that do not come out even, widths that are no
# whole boxes of an operand or of the output.
OF_FORM = {
    "block": (
        *((64, 24), (64, 72), (64, 136), (64, 192), (256, 136), (256, 144, 1, 2, 1)),
        *((128, 192, 1, 1, 2), (192, 96, 1, 1, 2), (64, 64, 3), (64, 136, 2), (64, 144, 6)),
    ),
    "rows": ((128, 128), (64, 72, 5), (64, 128, 1, 1, 2)),
    "bf16_turned_fp32_read": ((128, 128, 1, 2, 1), (128, 208, 1, 1, 2), (256, 112)),
    "fp16_a_turned_fp32_reduce": ((128, 64, 1, 1, 2),),
    "bf16_b_turned": ((128, 256, 1, 2, 1), (64, 136, 2), (128, 72, 1, 1, 2)),
    "fast_scaled": ((64, 72, 5), (256, 128)),
    "int8_scaled_bf16_read": ((128, 240),),
}
OF_FORM_SWAPPED = {
    "block": ((64, 24, 5), (192, 16), (64, 40, 4)),
    "bf16_turned_fp32_read": ((64, 24, 3),),
    "fast_scaled": ((64, 40, 4),),
}


def legal(form, shapes, **rest):
    made = (config_of(*shape, form=FORMS[form], **rest) for shape in shapes)
    return [config for config in made if not violations(config, H200)]


def configs_of(index, form):
    """Return what of these can be built, of every line the first from the index-th on."""
    found = []
    kinds = (
        (PLAIN, OF_FORM, {}),
        (PING_PONG, {}, {"ping_pong": True}),
        (SWAPPED, OF_FORM_SWAPPED, {"swapped": True}),
    )
    for lines, own, kind in kinds:
        for line in lines:
            at = index % len(line)
            found += legal(form, line[at:] + line[:at], **kind)[:1]
        found += legal(form, own.get(form, ()), **kind)
    return list(dict.fromkeys(found))


CONFIGS = {form: configs_of(index, form) for index, form in enumerate(FORMS)}
EVERY = [config for configs in CONFIGS.values() for config in configs]
# Pieces that do not come out even: what two CTAs own is stored by both.
UNEVEN = [config for config in EVERY if config.tile.block_n % config.reduce_mma_n]
# Those that add to D with their store alone.
ADDING = [
    c for c in EVERY if c.variant.c_mode is CMode.REDUCE and not c.tile.swap_ab and c.split_k == 1
]
NO_GROUPS = (0,) * 6
SLOTS = 3  # clusters at once, as far as the order of tiles goes
HALVES = EVERY[::2], EVERY[1::2]  # each a program, compiled at the same time


def shapes_of(config):
    """Problems of one tile that is hardly there, of one that is not whole, and of several."""
    chance = random.Random(config.name)
    tile, step = config.tile, config.variant.block_k * config.split_k
    rows, columns = tile.block_m * config.cluster_m, tile.block_n * config.cluster_n
    for extents, parts in (
        ((chance.randint(1, 8), 8), 1),
        ((chance.randint(rows // 2, rows + 9), columns - 8 * chance.randint(0, 1)), 2),
        ((chance.randint(1, 80), (columns + 8 * chance.randint(1, 9)) * tile.at_once), 3),
    ):
        m, n = extents[::-1] if config.tile.swap_ab else extents
        n = -(-n // 8) * 8
        m -= chance.randint(0, 7) if config.tile.swap_ab else 0
        most = min(parts, config.num_stages // tile.at_once)
        yield m, n, step * most - chance.randint(0, step - 1)
    yield from edged(config, chance)


def edged(config, chance):
    """Problems of two by two clusters, of which two are a last column or row of half tiles."""
    half_m, half_n = config.half_tile
    rows, columns = config.tile.block_m * config.cluster_m, config.tile.block_n * config.cluster_n
    if half_n and config.cluster_n == 1:
        yield rows + chance.randint(1, rows), columns + 8 * chance.randint(1, half_n // 8), 200
    if half_m and config.cluster_m == 1:
        yield rows + chance.randint(1, half_m), 2 * columns, 200


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Return a function: a configuration to what host/kernel.cpp found of each of its shapes."""
    folders = [tmp_path_factory.mktemp("kernel") for _ in HALVES]

    def compiled(half, folder):
        options = ["-O1", "-ffp-contract=off"]
        return compile_host("kernel", folder, {"cases.inc": cases_of(half)}, options)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(compiled, HALVES, folders))

    @cache
    def show(config):
        half = EVERY.index(config) % len(HALVES)
        lines = [
            (HALVES[half].index(config), *line_of(config, shape, variant, in_place))
            for variant, shape in enumerate(shapes_of(config))
            for in_place in ((0, 1) if config.variant.c_mode is CMode.READ else (0,))
        ]
        rows = runs[half]("\n".join(" ".join(map(str, line)) for line in lines))
        assert len(rows) == len(lines)
        return rows

    return show


def line_of(config, shape, variant, in_place):
    m, n, k = shape
    form = config.variant
    strides = (m if form.a_major is Major.MN else k), (n if form.b_major is Major.MN else k)
    operands = GemmLayout(m, n, k, *strides, n)
    walk = walk_of(config, m, n, k, SLOTS)
    params = GemmParams()
    clusters = -(-walk.clusters // config.tile.at_once)
    early = min(variant, config.num_stages)
    fill_params(params, config, operands, walk, early)
    return (
        *launch_numbers(config, m, n, k, walk, clusters),
        *(params.stage_bytes, early, in_place, variant + form.scaled),
        *map_numbers(config, operands),
        *NO_GROUPS,
    )


def test_every_form_goes_through_every_kind_of_tile_it_allows():
    for form, configs in CONFIGS.items():
        plain = [c for c in configs if not c.tile.swap_ab]
        assert {c.split_k > 1 for c in plain} == {False, True}, form
        # "rows" has neither; boxes of 64 rows cannot always be halved.
        if FORMS[form].mainloop is not Mainloop.SCALED_1D1D:
            assert {c.split_k > 1 for c in configs if c.tile.swap_ab} == {False, True}, form
            assert {c.tile.waves > 1 for c in plain} == {False, True}, form
        direct = FORMS[form].mainloop is Mainloop.DIRECT
        assert (sum(c.tile.ping_pong for c in plain) == len(PING_PONG)) == direct, form
    turns = {(c.tile.waves, c.variant.scaled) for c in EVERY if c.tile.ping_pong}
    assert turns == {(1, False), (1, True), (2, False), (2, True)}
    for promotion in ("none", "unit", "block", "rows"):
        of = [c for c in EVERY if c.variant.promotion == promotion]
        assert {c.multicast > 1 for c in of} == {False, True}
        assert {(c.cluster_m, c.cluster_n) for c in of} == {(1, 1), (1, 2), (2, 1)}, promotion
    assert {c.partials for c in EVERY} == {0, 1, 2}
    assert {c.n_tail for c in EVERY} >= {0, 8, 16, 32, 64}
    assert {c.tile.swap_ab for c in UNEVEN} == {False, True}
    assert {c.n_tail > 0 for c in UNEVEN if not c.tile.swap_ab} == {False, True}
    shared = {(c.majors, c.cluster_m, c.cluster_n) for c in EVERY if "mn" in c.majors}
    assert {(("mn", "mn"), 2, 1), (("mn", "mn"), 1, 2), (("k", "mn"), 2, 1)} <= shared


@pytest.mark.parametrize("config", EVERY, ids=lambda c: c.name)
def test_every_element_has_the_bits_of_the_formula_and_is_stored_once(config, simulated):
    stored_again = ahead = 0
    for wrong, missing, repeated, beyond, uneven, *others in simulated(config):
        *refused, prefetched, needless = others
        assert (wrong, missing) == (0, 0)
        # C is not read beyond its ends, nor after its element of D was written.
        assert beyond == 0
        # What TMA and other CTAs bring is what barriers were told to expect.
        assert uneven == 0
        assert refused == [0, 0, 0, 0]
        assert needless == 0
        stored_again += repeated
        ahead += prefetched
    assert (stored_again > 0) == (config in UNEVEN)
    assert ahead == 0 or config in ADDING


def test_tiles_of_an_edge_are_walked_first_and_last():
    edges = {
        (walk_of(config, *shape, SLOTS).edge, config.multicast)
        for config in EVERY
        for shape in edged(config, random.Random(config.name))
    }
    one = {(Edge(1, 1, False), 1), (Edge(1, 1, True), 1)}
    assert edges >= one and Edge() not in {edge for edge, _ in edges}


# Boxes of the last rows come last: of a larger tile all k-blocks that there are.
@pytest.mark.parametrize(
    "config", [c for c in ADDING if c.tile.block_m < 256], ids=lambda c: c.name
)
def test_boxes_of_d_are_brought_to_l2_with_every_second_k_block(config, simulated):
    assert sum(row[-2] for row in simulated(config)) > 0
