"""The host half of the kernel: boxes of A, B and D, and the parameter block."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, candidates
from deep_gemm.config.raster import Raster, raster
from deep_gemm.jit.tensor_map import TensorMap
from deep_gemm.kernels.gemm_sm90 import (
    GemmParams,
    Operands,
    fill_params,
    maps_of_operands,
    tensor_maps,
)
from deep_gemm.problem import CMode, Mainloop, Major

from .config_kit import FORMS, H200, config_of, sized

PLAIN = GemmConfig(TileConfig(128, 96, 2), 1, 1, 5, StoreConfig(32, 96, 1))
SWAPPED = GemmConfig(TileConfig(64, 16, 1), 1, 1, 8, StoreConfig(64, 8, 1), 4, swap_ab=True)
# Legal, and no candidates: an operand shared by tiles whose columns are tokens.
SHARED_TOKENS = replace(SWAPPED, tile=TileConfig(64, 32, 1), cluster_m=2)
SHARED_WEIGHTS = replace(SWAPPED, tile=TileConfig(64, 32, 1), cluster_n=2, split_k=4)
# One part of columns; extra ones shared by two CTAs; pieces that overlap.
ONE_PART = GemmConfig(TileConfig(128, 64, 2), 1, 1, 5, StoreConfig(64, 64, 1))
SHARED_EXTRA = replace(PLAIN, cluster_m=2)
UNEVEN = GemmConfig(TileConfig(64, 144, 1), 1, 1, 6, StoreConfig(56, 72, 1), 2)
UNEVEN_TOKENS = replace(SWAPPED, tile=TileConfig(64, 40, 1), store=StoreConfig(64, 16, 1))
OWN = [SHARED_TOKENS, SHARED_WEIGHTS, ONE_PART, SHARED_EXTRA, UNEVEN, UNEVEN_TOKENS]
# A few of every form.
OF_FORMS = [config for form in FORMS.values() for config in candidates(H200, form)[::9]]
TURNED = FORMS["bf16_turned_fp32_read"]
CONFIGS = list(dict.fromkeys([*candidates(H200), *OWN, *OF_FORMS]))
WALK = Raster(3, 5, 4, True)


def operands_of(m: int, n: int, k: int, config: GemmConfig = PLAIN) -> Operands:
    """Lines of A, B, C and D apart by more than they hold, so that no stride is an extent."""
    form = config.variant
    a, b = (m if form.a_major is Major.MN else k), (n if form.b_major is Major.MN else k)
    return GemmLayout(m, n, k, a + 16, b + 32, n + 8, (1, m + 4, 0), (7, 11, 0), n + 12)


def params_of(config: GemmConfig, operands: Operands, early: int = 0) -> GemmParams:
    params = GemmParams()
    fill_params(params, config, operands, WALK, early)
    return params


def rows_of_boxes(config: GemmConfig, m: int, n: int) -> tuple[int, int, int]:
    maps = tensor_maps(config, operands_of(m, n, 512, config))
    return maps["map_a"].box_outer, maps["map_b"].box_outer, maps["map_d"].box_outer


def test_maps_describe_the_operands():
    assert tensor_maps(ONE_PART, operands_of(300, 400, 512)) == {
        "map_a": TensorMap(1, 512, 300, 528, 128, 128, 128),
        "map_b": TensorMap(1, 512, 400, 544, 128, 64, 128),
        "map_d": TensorMap(2, 400, 300, 816, 64, 64, 128),
    }


def test_extra_columns_have_maps_of_their_own():
    wide = replace(PLAIN, tile=TileConfig(128, 160, 2), store=StoreConfig(64, 160, 1))
    assert tensor_maps(wide, operands_of(300, 400, 512)) == {
        "map_a": TensorMap(1, 512, 300, 528, 128, 128, 128),
        "map_b": TensorMap(1, 512, 400, 544, 128, 128, 128),
        "map_extra": TensorMap(1, 512, 400, 544, 128, 32, 128),
        "map_d": TensorMap(2, 400, 300, 816, 64, 64, 128),
        "map_rest": TensorMap(2, 400, 300, 816, 32, 64, 64),
    }
    # Each of two sharers loads half of both parts.
    halves = tensor_maps(replace(wide, cluster_m=2), operands_of(300, 8, 512))
    assert (halves["map_b"].box_outer, halves["map_extra"].box_outer) == (64, 16)
    # Boxes of an odd number of 8 columns are not swizzled.
    uneven = tensor_maps(UNEVEN, operands_of(300, 400, 512))
    assert uneven["map_d"] == TensorMap(2, 400, 300, 816, 56, 64, 0)
    assert uneven["map_rest"] == TensorMap(2, 400, 300, 816, 16, 64, 32)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_every_map_is_of_one_operand(config):
    maps = tensor_maps(config, operands_of(304, 400, 512, config))
    names, form = maps_of_operands(config), config.variant
    assert sorted(name for of in names for name in of) == sorted(maps)
    assert all(any(name == field for field, _ in GemmParams._fields_) for name in maps)
    # A, B and D: elements of a line, lines, bytes from one to the next.
    a, b, d = (512, 304, 528), (512, 400, 544), (400, 304, 408)
    if form.a_major is Major.MN:
        a = (304, 512, 320)
    if form.b_major is Major.MN:
        b = (400, 512, 432)
    sizes = form.a.bytes, form.b.bytes, form.d.bytes
    for of, (inner, outer, pitch), size in zip(names, (a, b, d), sizes, strict=True):
        for name in of:
            assert (maps[name].dtype_bytes, maps[name].inner, maps[name].outer) == (
                size,
                inner,
                outer,
            )
            assert maps[name].outer_stride_bytes == pitch * size
    # Only stores of sums onto D need to know its type.
    adds = form.d.name if form.c_mode is CMode.REDUCE else ""
    assert {name: m.adds for name, m in maps.items() if m.adds} == (
        dict.fromkeys(names[2], adds) if adds else {}
    )


def test_operands_of_16_bits_and_such_whose_rows_are_contiguous():
    wide = config_of(128, 96, form=FORMS["bf16"])
    maps = tensor_maps(wide, operands_of(304, 400, 512, wide))
    assert maps["map_a"] == TensorMap(2, 512, 304, 1056, 64, 128, 128)
    assert maps["map_b"] == TensorMap(2, 512, 400, 1088, 64, 96, 128)
    turned = config_of(128, 96, form=TURNED)
    maps = tensor_maps(turned, operands_of(304, 400, 512, turned))
    # Boxes of 64 rows at each of the 64 k of a block, however many rows there are.
    assert maps["map_a"] == TensorMap(2, 304, 512, 640, 64, 64, 128)
    assert maps["map_b"] == TensorMap(2, 400, 512, 864, 64, 64, 128)
    assert tensor_maps(turned, operands_of(1, 8, 16, turned))["map_a"].box_inner == 64


def test_wide_outputs_have_boxes_of_half_the_columns():
    added = config_of(128, 128, form=FORMS["block_fp32_reduce"])
    maps = tensor_maps(added, operands_of(300, 400, 512, added))
    assert maps["map_d"] == TensorMap(4, 400, 300, 1632, 32, 64, 128, "fp32")
    swapped = config_of(64, 16, 2, swap_ab=True, form=FORMS["int8_reduce"])
    maps = tensor_maps(swapped, operands_of(300, 400, 512, swapped))
    assert maps["map_d"] == TensorMap(4, 400, 300, 1632, 32, 8, 128, "int32")


def test_maps_of_a_swapped_tile_take_rows_from_b_and_columns_from_a():
    maps = tensor_maps(SWAPPED, operands_of(300, 400, 512))
    assert maps["map_a"] == TensorMap(1, 512, 300, 528, 128, 16, 128)
    assert maps["map_b"] == TensorMap(1, 512, 400, 544, 128, 64, 128)
    # A box of D is what one CTA stores: its piece of the tokens, 64 wide.
    assert maps["map_d"] == TensorMap(2, 400, 300, 816, 64, 8, 128)


@pytest.mark.parametrize(
    "config, m, n, rows",
    [
        (PLAIN, 1, 8, (1, 8, 64)),
        (PLAIN, 128, 56, (128, 56, 64)),
        (PLAIN, 128, 64, (128, 64, 64)),
        (PLAIN, 128, 96, (128, 64, 64)),
        (PLAIN, 129, 97, (128, 64, 64)),
        (ONE_PART, 128, 64, (128, 64, 64)),
        (ONE_PART, 3, 40, (3, 40, 64)),
        (SWAPPED, 3, 4096, (3, 64, 8)),
        (SWAPPED, 3, 40, (3, 40, 8)),
        (SWAPPED, 17, 4096, (16, 64, 8)),
        (replace(SWAPPED, split_k=1, store=StoreConfig(64, 16, 1)), 3, 4096, (3, 64, 16)),
        # Shares do not shrink with the operand: a CTA's share has its place in the tile.
        (SHARED_EXTRA, 5, 8, (5, 32, 64)),
        (replace(PLAIN, cluster_n=2), 5, 8, (64, 8, 64)),
        (SHARED_TOKENS, 5, 40, (16, 40, 8)),
        (SHARED_WEIGHTS, 5, 40, (5, 32, 8)),
    ],
)
def test_boxes_end_with_the_operand_or_are_the_share_of_a_cta(config, m, n, rows):
    assert not violations(config, H200)
    assert rows_of_boxes(config, m, n) == rows


@pytest.mark.parametrize(
    "kind, config, rows",
    [
        ("offsets", PLAIN, 32),
        ("masked", PLAIN, 32),
        ("masked", replace(PLAIN, cluster_n=2), 32),
        ("masked", GemmConfig(TileConfig(192, 128, 3), 1, 2, 4, StoreConfig(64, 128, 1)), 48),
        ("masked", replace(SWAPPED, tile=TileConfig(64, 32, 1)), 8),
        ("masked", SWAPPED, 8),
        # Whole boxes: of no multiple of 8, or more than a share, or where two CTAs wait for copies.
        ("masked", replace(SWAPPED, tile=TileConfig(64, 40, 1)), 40),
        ("masked", replace(SWAPPED, tile=TileConfig(64, 8, 1), cluster_m=2), 4),
        ("masked", replace(SWAPPED, ctas_per_sm=2), 16),
        ("labels", PLAIN, 128),
        ("batched", PLAIN, 128),
    ],
)
def test_tokens_of_groups_come_in_boxes_that_may_be_left_out(kind, config, rows):
    config = replace(config, form=replace(config.variant, grouping=kind))
    operands = operands_of(4096, 512, 512, config)
    assert tensor_maps(config, operands)["map_a"].box_outer == rows
    tile = config.tile
    assert params_of(config, operands).stage_bytes == (tile.block_m + tile.block_n) * 128


@given(st.sampled_from(CONFIGS), st.integers(1, 700), st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_a_stage_counts_the_bytes_its_boxes_bring(config, m, eights):
    n = 8 * eights
    operands = operands_of(m, n, 512, config)
    maps, tile = tensor_maps(config, operands), config.tile
    # Rows of the tile come from as many CTAs as differ in columns, and the other way round.
    sharers = {"map_a": config.cluster_n, "map_b": config.cluster_m, "map_extra": config.cluster_m}
    rooms = {"map_a": tile.block_m, "map_b": config.n_head, "map_extra": config.n_tail}
    if config.tile.swap_ab:
        sharers = {"map_a": config.cluster_m, "map_b": config.cluster_n}
        rooms = {"map_a": tile.block_n, "map_b": tile.block_m}
    # Or they come as two halves, whoever loads them.
    if config.half_tile[0]:
        sharers["map_a"] = 2
    if config.half_tile[1]:
        sharers["map_b"] = 2
    majors = {"map_a": config.variant.a_major}
    brought = {}
    for name, box in maps.items():
        if name in sharers:
            size = box.box_outer * box.box_inner * box.dtype_bytes
            brought[name] = sharers[name] * size
            if majors.get(name, config.variant.b_major) == "mn":
                # As many boxes as a CTA's share of the rows fills.
                rooms[name] = -(-rooms[name] // sharers[name] // 64) * 64 * sharers[name]
                brought[name] = rooms[name] // 64 * size
    assert params_of(config, operands).stage_bytes == sum(brought.values())
    # They end with the operand, or fill the room there is.
    for name, extent in (("map_a", m), ("map_b", n), ("map_extra", 0)):
        if name in brought:
            assert brought[name] <= rooms[name] * 128
            assert brought[name] in (rooms[name] * 128, extent * 128)
    assert sum(rooms[name] for name in brought) * 128 * config.num_stages == plan(config).operands


@given(st.sampled_from(CONFIGS), st.integers(1, 700), st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_boxes_are_such_as_tma_takes(config, m, eights):
    operands = operands_of(8 * m, 8 * eights, 512, config)
    for described in tensor_maps(config, operands).values():
        inner_bytes = described.box_inner * described.dtype_bytes
        assert 1 <= described.box_outer <= 256 and 1 <= described.box_inner <= 256
        assert inner_bytes % 16 == described.outer_stride_bytes % 16 == 0
        # The swizzle spans a row of the box; rows of an odd number of 16 bytes have none.
        assert described.swizzle_bytes == (inner_bytes if inner_bytes % 32 == 0 else 0)
        assert described.swizzle_bytes in (0, 32, 64, 128)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_a_slab_is_whole_boxes_of_the_output(config):
    maps, store = tensor_maps(config, operands_of(304, 400, 512, config)), config.store
    box, size = maps["map_d"], config.variant.d.bytes
    slabs = config.tile.num_math_warpgroups * store.num_buffers
    assert plan(config).output == slabs * 64 * store.slab_columns * size
    if config.tile.swap_ab:
        # Every CTA of a tile stores its piece, in as many boxes as 64 columns of D take.
        assert (box.box_inner * size, box.box_outer) == (128, config.reduce_mma_n)
        assert store.slab_columns == config.reduce_mma_n and "map_rest" not in maps
        return
    assert box.box_outer == 64
    rest = maps["map_rest"].box_inner if "map_rest" in maps else 0
    assert (config.reduce_mma_n - rest) % box.box_inner == 0
    # All slabs but the last one are of boxes alone.
    assert store.slab_columns == config.reduce_mma_n or store.slab_columns % box.box_inner == 0
    # A box of the last piece that does not hold the extra columns ends before them.
    assert config.n_tail == 0 or (store.slab_columns, rest) == (config.reduce_mma_n, config.n_tail)


def test_parameters_are_the_problem_the_walk_and_what_may_be_read_early():
    params = params_of(SWAPPED, operands_of(3, 400, 520), early=6)
    assert (params.m, params.n, params.k) == (3, 400, 520)
    assert params.c_stride == 412
    assert (params.sfa_stride_m, params.sfa_stride_k) == (1, 7)
    assert (params.sfb_stride_n, params.sfb_stride_k) == (7, 11)
    assert params.stage_bytes == (3 + 64) * 128
    assert params.early_blocks == 6
    tiles = params.tiles
    assert (tiles.clusters_m, tiles.clusters_n, tiles.band, tiles.band_on_m) == (3, 5, 4, 1)


def test_the_edge_of_the_walk_is_a_parameter():
    config, params = config_of(128, 128, form=FORMS["rows"]), GemmParams()
    operands = operands_of(7168, 2112, 512, config)
    fill_params(params, config, operands, raster(sized("rows", 7168, 2112, 512), config, 132), 0)
    tiles = params.tiles
    assert (tiles.edge_first, tiles.edge_last, tiles.edge_on_m) == (28, 28, 0)
    fill_params(params, config, operands, raster(sized("rows", 2112, 7168, 512), config, 132), 0)
    assert (tiles.edge_first, tiles.edge_last, tiles.edge_on_m) == (28, 28, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"split_k": 2, "store": StoreConfig(64, 8, 1)},
        {"swapped": False, "split_k": 2, "store": StoreConfig(8, 8, 1)},
        {"cluster_m": 2},
        {"cluster_n": 2},
        {"num_stages": 7},
        {"store": StoreConfig(64, 8, 2)},
        {"ctas_per_sm": 2},
        {"compiled": (0, 4096, 7168)},
        {"tile": TileConfig(64, 24, 1)},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_part_of_a_configuration_reaches_the_source(change):
    other = replace(SWAPPED, **change)
    assert not violations(other, H200)
    ours, theirs = unit_of(SWAPPED), unit_of(other)
    assert ours.entry != theirs.entry and ours.name != theirs.name
    # The name alone is no difference.
    assert ours.source.replace(ours.entry, theirs.entry) != theirs.source


@pytest.mark.parametrize("config", OWN, ids=lambda c: c.name)
def test_the_kernel_is_told_the_parts_and_the_pieces_of_a_tile(config):
    assert not violations(config, H200)
    source = unit_of(config).source
    for name, value in (
        ("kBlockN", config.tile.block_n),
        ("kExtraN", config.tile.block_n - config.n_head),
        ("kPieceN", config.reduce_mma_n),
    ):
        assert f" {name} = {value};" in source


def constants_of(config: GemmConfig) -> dict[str, str]:
    """Members of the Config in a kernel's source, by name."""
    source = unit_of(config).source
    members = re.search(r"struct Config \{(.*?)\};", source, re.DOTALL)
    assert members
    found = re.findall(r"(?:using|constexpr uint32_t) (\w+) = (\w+);", members[1])
    return dict(found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_kernel_is_told_its_form(form, swapped):
    config = config_of(64, 32, swapped=swapped, form=FORMS[form])
    if violations(config, H200):
        assert swapped and FORMS[form].mainloop is Mainloop.SCALED_1D1D
        return
    told, of = constants_of(config), FORMS[form]
    wanted = {"bf16": "BFloat16", "fp16": "Float16", "fp32": "float", "int32": "int"}
    assert told["Out"] == wanted[of.d.name]
    assert told["kElementBytes"] == str(of.a.bytes)
    assert told["kPromotion"] == str(["none", "unit", "block", "rows"].index(of.promotion))
    assert told["kAddend"] == str(["none", "read", "reduce"].index(of.addend))
    assert told["kScaled"] == str(int(of.scaled))
    rows, columns = (of.b_major, of.a_major) if swapped else (of.a_major, of.b_major)
    assert told["kRowsMnMajor"] == str(int(rows == "mn"))
    assert told["kColumnsMnMajor"] == str(int(columns == "mn"))


# (form, swapped): the instruction, and what follows its predicate.
@pytest.mark.parametrize(
    "form, swapped, instruction, modifiers",
    [
        ("block", False, "m64n32k32.f32.e4m3.e4m3", "1, 1"),
        ("block_fp16_read", False, "m64n32k32.f32.e4m3.e5m2", "1, 1"),
        ("block_fp16_read", True, "m64n32k32.f32.e5m2.e4m3", "1, 1"),
        ("int8", False, "m64n32k32.s32.s8.s8", ""),
        ("bf16", False, "m64n32k16.f32.bf16.bf16", "1, 1, 0, 0"),
        ("fp16_read", True, "m64n32k16.f32.f16.f16", "1, 1, 0, 0"),
        ("bf16_turned_fp32_read", False, "m64n32k16.f32.bf16.bf16", "1, 1, 1, 1"),
        ("bf16_b_turned", False, "m64n32k16.f32.bf16.bf16", "1, 1, 0, 1"),
        ("bf16_b_turned", True, "m64n32k16.f32.bf16.bf16", "1, 1, 1, 0"),
        ("fp16_a_turned_fp32_reduce", False, "m64n32k16.f32.f16.f16", "1, 1, 1, 0"),
        ("fp16_a_turned_fp32_reduce", True, "m64n32k16.f32.f16.f16", "1, 1, 0, 1"),
    ],
)
def test_the_instruction_is_of_the_operands_in_the_order_of_the_tile(
    form, swapped, instruction, modifiers
):
    source = unit_of(config_of(64, 32, swapped=swapped, form=FORMS[form])).source
    issued = re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\S+) .*, p(.*);", source)
    wanted = f", {modifiers}" if modifiers else ""
    assert (instruction, wanted) in [(name, after.rstrip("\\n")) for name, after in issued]


def test_launch_bounds_say_how_many_ctas_an_sm_holds():
    assert "__launch_bounds__(256, 1)" in unit_of(SWAPPED).source
    twice = replace(SWAPPED, ctas_per_sm=2)
    assert "__launch_bounds__(256, 2)" in unit_of(twice).source
