"""The GEMM kernel on the host: boxes of A, B and D, the parameter, and what the source is told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, violations
from deep_gemm.config.raster import Raster, raster
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.jit.tensor_map import TensorMap
from deep_gemm.kernels.gemm_sm90 import (
    GemmLayout,
    fill_groups,
    fill_params,
    map_names,
    spec,
    tensor_maps,
)
from deep_gemm.problem import CMode, Grouping, GroupKind, Mainloop, Major

from .config_kit import BY_VARIANT, CANDIDATES, H200, TEMPLATES, VARIANTS, config_of, sized


def with_swap_ab(block_m: int) -> TileConfig:
    return TileConfig(block_m, 64, 1, swap_ab=True)


BASE = GemmConfig(TileConfig(128, 96, 2), 1, 1, 5, StoreConfig(32, 96, 1))
SWAP_AB = GemmConfig(with_swap_ab(16), 1, 1, 8, StoreConfig(64, 8, 1), 4)
# Legal, and no candidates: an operand shared by tiles with swap-AB.
SHARED_A = replace(SWAP_AB, tile=with_swap_ab(32), cluster_n=2)
SHARED_B = replace(SWAP_AB, tile=with_swap_ab(32), cluster_m=2, split_k=4)
# No N tail; one shared by two CTAs; split-K parts that overlap.
NO_TAIL = GemmConfig(TileConfig(128, 64, 2), 1, 1, 5, StoreConfig(64, 64, 1))
SHARED_TAIL = replace(BASE, cluster_m=2)
UNEVEN = GemmConfig(TileConfig(64, 144, 1), 1, 1, 6, StoreConfig(56, 72, 1), 2)
UNEVEN_SWAP_AB = replace(SWAP_AB, tile=with_swap_ab(40), store=StoreConfig(64, 16, 1))
OWN = [SHARED_A, SHARED_B, NO_TAIL, SHARED_TAIL, UNEVEN, UNEVEN_SWAP_AB]
# A few of every variant.
OF_VARIANTS = [config for found in BY_VARIANT.values() for config in found[::9]]
MN_MAJOR = VARIANTS["bf16_mn_fp32_read"]
CONFIGS = list(dict.fromkeys([*CANDIDATES, *OWN, *OF_VARIANTS]))
RASTER = Raster(3, 5, 4, True)


def layout_of(m: int, n: int, k: int, config: GemmConfig = BASE) -> GemmLayout:
    """Lines of A, B, C and D lie farther apart than they are long: no stride is an extent."""
    variant = config.variant
    a = m if variant.a_major is Major.MN else k
    b = n if variant.b_major is Major.MN else k
    return GemmLayout(m, n, k, a + 16, b + 32, n + 8, (1, m + 4, 0), (7, 11, 0), n + 12)


def params_of(config: GemmConfig, layout: GemmLayout, early_k_blocks: int = 0) -> Any:
    params = spec(config).params()
    fill_params(params, config, layout, RASTER, early_k_blocks)
    return params


def box_rows(config: GemmConfig, m: int, n: int) -> tuple[int, int, int]:
    maps = tensor_maps(config, layout_of(m, n, 512, config))
    return maps["map_a"].box_outer, maps["map_b"].box_outer, maps["map_d"].box_outer


# --- tensor maps ----------------------------------------------------------------------------------


def test_maps_describe_the_operands():
    assert tensor_maps(NO_TAIL, layout_of(300, 400, 512)) == {
        "map_a": TensorMap(1, 512, 300, 528, 128, 128, 128),
        "map_b": TensorMap(1, 512, 400, 544, 128, 64, 128),
        "map_d": TensorMap(2, 400, 300, 816, 64, 64, 128),
    }


def test_the_n_tail_has_maps_of_its_own():
    tail_32 = replace(BASE, tile=TileConfig(128, 160, 2), store=StoreConfig(64, 160, 1))
    assert tensor_maps(tail_32, layout_of(300, 400, 512)) == {
        "map_a": TensorMap(1, 512, 300, 528, 128, 128, 128),
        "map_b": TensorMap(1, 512, 400, 544, 128, 128, 128),
        "map_b_tail": TensorMap(1, 512, 400, 544, 128, 32, 128),
        "map_d": TensorMap(2, 400, 300, 816, 64, 64, 128),
        "map_d_tail": TensorMap(2, 400, 300, 816, 32, 64, 64),
    }
    # Each of two CTAs loads half of the head and half of the tail.
    halves = tensor_maps(replace(tail_32, cluster_m=2), layout_of(300, 8, 512))
    assert (halves["map_b"].box_outer, halves["map_b_tail"].box_outer) == (64, 16)
    # Boxes of an odd number of 8 columns are not swizzled.
    uneven = tensor_maps(UNEVEN, layout_of(300, 400, 512))
    assert uneven["map_d"] == TensorMap(2, 400, 300, 816, 56, 64, 0)
    assert uneven["map_d_tail"] == TensorMap(2, 400, 300, 816, 16, 64, 32)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_every_map_is_of_one_operand(config):
    maps = tensor_maps(config, layout_of(304, 400, 512, config))
    names, variant = map_names(config), config.variant
    assert sorted(name for operand in names for name in operand) == sorted(maps)
    fields = {name for name, _ in spec(config).params._fields_}
    assert maps.keys() <= fields
    # A, B and D: elements of a line, lines, elements from one to the next.
    a, b, d = (512, 304, 528), (512, 400, 544), (400, 304, 408)
    if variant.a_major is Major.MN:
        a = (304, 512, 320)
    if variant.b_major is Major.MN:
        b = (400, 512, 432)
    sizes = variant.a.bytes, variant.b.bytes, variant.d.bytes
    for members, (inner, outer, pitch), size in zip(names, (a, b, d), sizes, strict=True):
        for name in members:
            found = maps[name]
            assert (found.dtype_bytes, found.inner, found.outer) == (size, inner, outer)
            assert found.outer_stride_bytes == pitch * size
    # Only a store that adds to D needs to know its type.
    adds = dict.fromkeys(names[2], variant.d.name) if variant.reduces_into_d else {}
    assert {name: found.adds for name, found in maps.items() if found.adds} == adds


def test_operands_of_16_bits_and_mn_major_ones():
    k_major = config_of(128, 96, variant=VARIANTS["bf16"])
    maps = tensor_maps(k_major, layout_of(304, 400, 512, k_major))
    assert maps["map_a"] == TensorMap(2, 512, 304, 1056, 64, 128, 128)
    assert maps["map_b"] == TensorMap(2, 512, 400, 1088, 64, 96, 128)
    mn_major = config_of(128, 96, variant=MN_MAJOR)
    maps = tensor_maps(mn_major, layout_of(304, 400, 512, mn_major))
    # Boxes of 64 elements at each of the 64 k of a k-block, however many there are.
    assert maps["map_a"] == TensorMap(2, 304, 512, 640, 64, 64, 128)
    assert maps["map_b"] == TensorMap(2, 400, 512, 864, 64, 64, 128)
    assert tensor_maps(mn_major, layout_of(1, 8, 16, mn_major))["map_a"].box_inner == 64


def test_outputs_of_4_bytes_have_boxes_of_half_the_columns():
    reducing = config_of(128, 128, variant=VARIANTS["1d2d_fp32_reduce"])
    maps = tensor_maps(reducing, layout_of(300, 400, 512, reducing))
    assert maps["map_d"] == TensorMap(4, 400, 300, 1632, 32, 64, 128, "fp32")
    swap_ab = config_of(16, 64, 2, swap_ab=True, variant=VARIANTS["int8_reduce"])
    maps = tensor_maps(swap_ab, layout_of(300, 400, 512, swap_ab))
    assert maps["map_d"] == TensorMap(4, 400, 300, 1632, 32, 8, 128, "int32")


def test_maps_with_swap_ab_have_boxes_of_block_m_and_block_n():
    maps = tensor_maps(SWAP_AB, layout_of(300, 400, 512))
    assert maps["map_a"] == TensorMap(1, 512, 300, 528, 128, 16, 128)
    assert maps["map_b"] == TensorMap(1, 512, 400, 544, 128, 64, 128)
    # A box of D is what one CTA stores: its part of the rows, 64 wide.
    assert maps["map_d"] == TensorMap(2, 400, 300, 816, 64, 8, 128)


@pytest.mark.parametrize(
    "config, m, n, rows",
    [
        (BASE, 1, 8, (1, 8, 64)),
        (BASE, 128, 56, (128, 56, 64)),
        (BASE, 128, 64, (128, 64, 64)),
        (BASE, 128, 96, (128, 64, 64)),
        (BASE, 129, 97, (128, 64, 64)),
        (NO_TAIL, 128, 64, (128, 64, 64)),
        (NO_TAIL, 3, 40, (3, 40, 64)),
        (SWAP_AB, 3, 4096, (3, 64, 8)),
        (SWAP_AB, 3, 40, (3, 40, 8)),
        (SWAP_AB, 17, 4096, (16, 64, 8)),
        (replace(SWAP_AB, split_k=1, store=StoreConfig(64, 16, 1)), 3, 4096, (3, 64, 16)),
        # Shares do not shrink with the operand: a CTA's share has its place in the tile.
        (SHARED_TAIL, 5, 8, (5, 32, 64)),
        (replace(BASE, cluster_n=2), 5, 8, (64, 8, 64)),
        (SHARED_A, 5, 40, (16, 40, 8)),
        (SHARED_B, 5, 40, (5, 32, 8)),
    ],
)
def test_boxes_end_with_the_operand_or_are_the_share_of_a_cta(config, m, n, rows):
    assert not violations(config, H200)
    assert box_rows(config, m, n) == rows


@pytest.mark.parametrize(
    "kind, config, rows",
    [
        (GroupKind.OFFSETS, BASE, 32),
        (GroupKind.MASKED, BASE, 32),
        (GroupKind.MASKED, replace(BASE, cluster_n=2), 32),
        (
            GroupKind.MASKED,
            GemmConfig(TileConfig(192, 128, 3), 1, 2, 4, StoreConfig(64, 128, 1)),
            48,
        ),
        (GroupKind.MASKED, replace(SWAP_AB, tile=with_swap_ab(32)), 8),
        (GroupKind.MASKED, SWAP_AB, 8),
        # One box: no multiple of 8, or more than a share, or two CTAs that wait for copies.
        (GroupKind.MASKED, replace(SWAP_AB, tile=with_swap_ab(40)), 40),
        (GroupKind.MASKED, replace(SWAP_AB, tile=with_swap_ab(8), cluster_n=2), 4),
        (GroupKind.MASKED, replace(SWAP_AB, ctas_per_sm=2), 16),
        (GroupKind.LABELS, BASE, 128),
        (GroupKind.BATCHED, BASE, 128),
    ],
)
def test_rows_of_groups_come_in_boxes_whose_loads_are_predicated(kind, config, rows):
    config = replace(config, variant=replace(config.variant, group_kind=kind))
    layout = layout_of(4096, 512, 512, config)
    assert tensor_maps(config, layout)["map_a"].box_outer == rows
    tile = config.tile
    assert params_of(config, layout).stage_bytes == (tile.block_m + tile.block_n) * 128


@given(st.sampled_from(CONFIGS), st.integers(1, 700), st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_a_stage_counts_the_bytes_its_boxes_bring(config, m, eights):
    n = 8 * eights
    layout = layout_of(m, n, 512, config)
    maps, variant = tensor_maps(config, layout), config.variant
    # CTAs along N share the tile of A, and those along M the tile of B.
    sharers = {"map_a": config.cluster_n, "map_b": config.cluster_m, "map_b_tail": config.cluster_m}
    rooms = {"map_a": config.tile.block_m, "map_b": config.n_head, "map_b_tail": config.n_tail}
    # Or a tile comes as two halves, whichever CTA loads them.
    if config.half_m:
        sharers["map_a"] = 2
    if config.half_n:
        sharers["map_b"] = 2
    brought = {}
    for name, box in maps.items():
        if name in sharers:
            size = box.box_outer * box.box_inner * box.dtype_bytes
            brought[name] = sharers[name] * size
            major = variant.a_major if name == "map_a" else variant.b_major
            if major is Major.MN:
                # As many boxes as hold a CTA's share.
                rooms[name] = -(-rooms[name] // sharers[name] // 64) * 64 * sharers[name]
                brought[name] = rooms[name] // 64 * size
    assert params_of(config, layout).stage_bytes == sum(brought.values())
    # They end with the operand, or fill the room there is.
    for name, extent in (("map_a", m), ("map_b", n), ("map_b_tail", 0)):
        if name in brought:
            assert brought[name] <= rooms[name] * 128
            assert brought[name] in (rooms[name] * 128, extent * 128)
    held = sum(rooms[name] for name in brought) * 128 * config.num_stages
    assert held == shared_storage(config).operands


@given(st.sampled_from(CONFIGS), st.integers(1, 700), st.integers(1, 90))
@settings(max_examples=300, deadline=None)
def test_boxes_are_such_as_tma_takes(config, m, eights):
    layout = layout_of(8 * m, 8 * eights, 512, config)
    for described in tensor_maps(config, layout).values():
        inner_bytes = described.box_inner * described.dtype_bytes
        assert 1 <= described.box_outer <= 256 and 1 <= described.box_inner <= 256
        assert inner_bytes % 16 == described.outer_stride_bytes % 16 == 0
        # The swizzle spans a row of the box; rows of an odd number of 16 bytes have none.
        assert described.swizzle_bytes == (inner_bytes if inner_bytes % 32 == 0 else 0)
        assert described.swizzle_bytes in (0, 32, 64, 128)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_a_store_stage_is_whole_boxes_of_the_output(config):
    maps, store = tensor_maps(config, layout_of(304, 400, 512, config)), config.store
    box, size = maps["map_d"], config.variant.d.bytes
    stages = config.tile.num_math_warpgroups * store.num_stages
    assert shared_storage(config).store == stages * 64 * store.stage_mma_n * size
    if config.tile.swap_ab:
        # Every CTA of a tile stores its part, in as many boxes as 64 columns of D take.
        assert (box.box_inner * size, box.box_outer) == (128, config.reduce_mma_n)
        assert store.stage_mma_n == config.reduce_mma_n and "map_d_tail" not in maps
        return
    assert box.box_outer == 64
    tail = maps["map_d_tail"].box_inner if "map_d_tail" in maps else 0
    assert (config.reduce_mma_n - tail) % box.box_inner == 0
    # All store stages but the last one are of boxes of equal width.
    assert store.stage_mma_n == config.reduce_mma_n or store.stage_mma_n % box.box_inner == 0
    # The boxes before that of the N tail end where it begins.
    stored = store.stage_mma_n, tail
    assert config.n_tail == 0 or stored == (config.reduce_mma_n, config.n_tail)


# --- the parameter --------------------------------------------------------------------------------


def test_parameters_are_the_problem_the_raster_and_what_may_be_loaded_early():
    config = replace(SWAP_AB, variant=VARIANTS["1d2d_fp16_read"])
    params = params_of(config, layout_of(3, 400, 520), early_k_blocks=6)
    assert (params.m, params.n, params.k) == (3, 400, 520)
    assert params.epilogue.c_stride == 412
    assert params.d_stride == 408
    assert (params.sfa_stride_m, params.sfa_stride_k) == (1, 7)
    assert (params.sfb_stride_n, params.sfb_stride_k) == (7, 11)
    assert params.stage_bytes == (3 + 64) * 128
    assert params.early_k_blocks == 6
    found = params.scheduler
    assert (found.m_clusters, found.n_clusters) == (3, 5)
    assert (found.swizzle_width, found.raster_along_n) == (4, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_parameter_has_members_for_c_only_where_it_is_read(variant):
    config = BY_VARIANT[variant][0]
    names = {name for name, _ in dict(spec(config).params._fields_)["epilogue"]._fields_}
    reads_c = TEMPLATES[variant].c_mode is CMode.READ
    assert names >= {"c", "c_stride", "beta"} if reads_c else names <= {"alpha"}


def test_residue_tiles_are_a_parameter():
    config = config_of(128, 128, variant=VARIANTS["1d1d"])
    params, layout = spec(config).params(), layout_of(7168, 2112, 512, config)
    for (m, n), in_m in (((7168, 2112), 0), ((2112, 7168), 1)):
        found = raster(sized("1d1d", m, n, 512), config, 132)
        fill_params(params, config, layout, found, 0)
        residue = params.scheduler.residue
        assert (residue.head, residue.tail, residue.in_m) == (28, 28, in_m)


@pytest.mark.parametrize(
    "kind, zero_padding, adds_c, zero_fill",
    [
        (GroupKind.OFFSETS, False, False, 0),
        (GroupKind.OFFSETS, True, False, 1),
        (GroupKind.ALONG_K, False, False, 1),  # a group without K has a D of zeros
        (GroupKind.ALONG_K, False, True, 0),
    ],
)
def test_groups_are_a_parameter(kind, zero_padding, adds_c, zero_fill):
    params = spec(BASE).params()
    fill_groups(params, Grouping(kind, 5, 128, 0, zero_padding), 640, adds_c)
    groups = params.groups
    assert (groups.num_groups, groups.m, groups.alignment) == (5, 640, 128)
    assert groups.zero_fill == zero_fill


# --- the source -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"split_k": 2, "store": StoreConfig(64, 8, 1)},
        {"tile": TileConfig(64, 16, 1), "split_k": 2, "store": StoreConfig(8, 8, 1)},
        {"cluster_m": 2},
        {"cluster_n": 2},
        {"num_stages": 7},
        {"store": StoreConfig(64, 8, 2)},
        {"ctas_per_sm": 2},
        {"compiled": (0, 4096, 7168)},
        {"tile": with_swap_ab(24)},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_part_of_a_configuration_reaches_the_source(change):
    other = replace(SWAP_AB, **change)
    assert not violations(other, H200)
    ours, theirs = spec(SWAP_AB).unit, spec(other).unit
    assert ours.entry != theirs.entry and ours.name != theirs.name
    # The name alone is no difference.
    assert ours.source.replace(ours.entry, theirs.entry) != theirs.source


def constants_of(config: GemmConfig) -> dict[str, str]:
    """Members of the Config in a kernel's source, by name."""
    members = re.search(r"struct Config \{(.*?)\};", spec(config).unit.source, re.DOTALL)
    assert members
    return dict(re.findall(r"(?:using|constexpr \w+) (\w+) = ([^;]+);", members[1]))


@pytest.mark.parametrize("config", OWN, ids=lambda c: c.name)
def test_the_kernel_is_told_the_tail_and_the_split_k_part_of_a_tile(config):
    assert not violations(config, H200)
    told = constants_of(config)
    assert told["kBlockN"] == str(config.tile.block_n)
    assert told["kNTail"] == str(config.tile.block_n - config.n_head)
    assert told["kReduceMmaN"] == str(config.reduce_mma_n)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("swap_ab", [False, True])
def test_the_kernel_is_told_its_variant(name, swap_ab):
    extents = (32, 64) if swap_ab else (64, 32)
    config, variant = config_of(*extents, swap_ab=swap_ab, variant=VARIANTS[name]), VARIANTS[name]
    if violations(config, H200):
        assert swap_ab and variant.mainloop is Mainloop.SCALED_1D1D
        return
    told = constants_of(config)
    out = {"bf16": "BFloat16", "fp16": "Float16", "fp32": "float", "int32": "int"}
    assert told["Out"] == out[variant.d.name]
    assert told["kElementBytes"] == str(variant.a.bytes)
    mainloop = {
        Mainloop.DIRECT: "Mainloop::kDirect",
        Mainloop.PROMOTED: "Mainloop::kPromoted",
        Mainloop.SCALED_1D2D: "Mainloop::kScaled1d2d",
        Mainloop.SCALED_1D1D: "Mainloop::kScaled1d1d",
    }
    assert told["kMainloop"] == mainloop[variant.mainloop]
    c_mode = TEMPLATES[name].c_mode
    reduces = c_mode is CMode.REDUCE
    assert told["kStoreMode"] == f"StoreMode::{'kReduceAdd' if reduces else 'kReplace'}"
    chain = re.findall(r"epilogue::(\w+)", told["EpilogueChain"])
    assert chain[0] == "Chain"
    assert ("AddC" in chain) == (c_mode is CMode.READ)
    assert ("Scale" in chain) == variant.has_epilogue_scales
    assert told["kAIsMnMajor"] == str(int(variant.a_major is Major.MN))
    assert told["kBIsMnMajor"] == str(int(variant.b_major is Major.MN))
    assert told["kSwapAB"] == str(int(swap_ab))


# (variant, swap_ab): the instruction, and what follows its predicate.
@pytest.mark.parametrize(
    "variant, swap_ab, instruction, modifiers",
    [
        ("1d2d", False, "m64n32k32.f32.e4m3.e4m3", "1, 1"),
        ("1d2d_fp16_read", False, "m64n32k32.f32.e4m3.e5m2", "1, 1"),
        ("1d2d_fp16_read", True, "m64n32k32.f32.e5m2.e4m3", "1, 1"),
        ("int8", False, "m64n32k32.s32.s8.s8", ""),
        ("bf16", False, "m64n32k16.f32.bf16.bf16", "1, 1, 0, 0"),
        ("fp16_read", True, "m64n32k16.f32.f16.f16", "1, 1, 0, 0"),
        ("bf16_mn_fp32_read", False, "m64n32k16.f32.bf16.bf16", "1, 1, 1, 1"),
        ("bf16_b_mn", False, "m64n32k16.f32.bf16.bf16", "1, 1, 0, 1"),
        ("bf16_b_mn", True, "m64n32k16.f32.bf16.bf16", "1, 1, 1, 0"),
        ("fp16_a_mn_fp32_reduce", False, "m64n32k16.f32.f16.f16", "1, 1, 1, 0"),
        ("fp16_a_mn_fp32_reduce", True, "m64n32k16.f32.f16.f16", "1, 1, 0, 1"),
    ],
)
def test_the_instruction_has_the_operands_along_the_axes_of_the_mma(
    variant, swap_ab, instruction, modifiers
):
    extents = (32, 64) if swap_ab else (64, 32)
    config = config_of(*extents, swap_ab=swap_ab, variant=VARIANTS[variant])
    source = spec(config).unit.source
    issued = re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\S+) .*, p(.*);", source)
    wanted = f", {modifiers}" if modifiers else ""
    assert (instruction, wanted) in [(name, after.rstrip("\\n")) for name, after in issued]


def test_launch_bounds_say_how_many_ctas_an_sm_holds():
    assert "__launch_bounds__(256, 1)" in spec(SWAP_AB).unit.source
    two_ctas = replace(SWAP_AB, ctas_per_sm=2)
    assert "__launch_bounds__(256, 2)" in spec(two_ctas).unit.source
