"""Choosing a configuration: candidates, legality, choice, and the walk over tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config import (
    GemmConfig,
    StoreConfig,
    TileConfig,
    by_name,
    candidates,
    explain,
    forced,
    select,
)
from deep_gemm.config.candidates import finalize
from deep_gemm.config.cost_model import estimate
from deep_gemm.config.device import RESERVED_SMEM
from deep_gemm.config.legality import MAX_STAGES
from deep_gemm.config.raster import Edge, raster
from deep_gemm.errors import ArgumentError, UnsupportedError
from deep_gemm.problem import CMode, GemmProblem, Mainloop, Major

from .config_kit import FORMS, H200, config_of, sized

CANDIDATES = candidates(H200)
OF_FORM = {name: candidates(H200, form) for name, form in FORMS.items()}
EVERY = [config for configs in OF_FORM.values() for config in configs]
GOOD = GemmConfig(TileConfig(128, 128, 2), 2, 1, 5, StoreConfig(64, 128, 1))
SPLIT = GemmConfig(TileConfig(64, 96, 1), 2, 1, 8, StoreConfig(16, 48, 1), split_k=2)
UNEVEN = GemmConfig(TileConfig(64, 144, 1), 2, 1, 5, StoreConfig(56, 72, 1), split_k=2)
SWAPPED = GemmConfig(TileConfig(64, 32, 1), 1, 1, 8, StoreConfig(64, 8, 1), 4, swap_ab=True)
TWICE = GemmConfig(TileConfig(64, 32, 1), 1, 1, 8, StoreConfig(32, 32, 1), ctas_per_sm=2)
SM_REGISTERS = 65536
WIDE = GemmConfig(
    TileConfig(128, 64, 2), 1, 1, 5, StoreConfig(32, 64, 1), form=FORMS["bf16_turned_fp32_read"]
)
BYTES = GemmConfig(TileConfig(128, 128, 2), 1, 1, 5, StoreConfig(32, 128, 1), form=FORMS["int8"])
ROWS = GemmConfig(TileConfig(64, 64, 1), 1, 1, 5, StoreConfig(64, 64, 1), form=FORMS["rows"])
ADDS = GemmConfig(
    TileConfig(64, 96, 1), 1, 1, 6, StoreConfig(32, 96, 1), form=FORMS["rows_fp32_reduce"]
)
each_form = pytest.mark.parametrize("form", FORMS)
extents = st.integers(1, 20000)
caps = st.integers(1, 132)


def launch_registers(config):
    """Registers that each thread of a kernel can be launched with."""
    threads = config.tile.threads * config.ctas_per_sm
    return min(255, SM_REGISTERS // threads // 8 * 8)


# --- candidates ---------------------------------------------------------------------------------


def test_candidates_are_legal_and_reach_every_kind():
    assert all(not violations(config, H200) for config in CANDIDATES)
    tiles = {(c.tile.block_m, c.tile.block_n) for c in CANDIDATES if not c.tile.swap_ab}
    assert {(256, 128), (192, 128), (128, 136), (64, 144), (64, 16)} <= tiles
    # One part of columns, and a second one of every width.
    assert {c.n_tail for c in CANDIDATES} == {0, 8, 16, 32, 64}
    kinds = {(c.split_k > 1, c.multicast > 1, c.tile.swap_ab, c.ctas_per_sm) for c in CANDIDATES}
    # K split, operands shared, tokens as columns, CTAs an SM: alone and together.
    assert {(False, True, False, 1), (True, False, False, 1), (False, False, True, 1)} <= kinds
    assert {(True, True, False, 1), (True, False, True, 2), (False, False, True, 2)} <= kinds


@each_form
def test_every_form_has_legal_candidates_of_every_kind_it_allows(form):
    configs = OF_FORM[form]
    assert all(not violations(config, H200) for config in configs)
    assert {config.variant for config in configs} == {FORMS[form]}
    assert {c.split_k > 1 for c in configs} == {c.multicast > 1 for c in configs} == {False, True}
    assert {c.tile.num_math_warpgroups for c in configs} >= {1, 2}
    assert any(c.tile.swap_ab for c in configs) == (
        FORMS[form].mainloop is not Mainloop.SCALED_1D1D
    )


def test_names_are_unique():
    compiled = [
        replace(config, compiled=extents)
        for config in CANDIDATES
        for extents in ((0, 4096, 7168), (64, 4096, 7168), (64, 0, 7168))
    ]
    every = [*EVERY, *compiled]
    assert len({config.name for config in every}) == len(set(every)) == len(every)
    assert len({unit_of(config).entry for config in every}) == len(every)


@each_form
def test_registers_fit_a_cta(form):
    for config in OF_FORM[form]:
        producer, math = config.registers
        entry, warpgroups = launch_registers(config), config.tile.num_math_warpgroups
        assert producer + math * warpgroups <= entry * (warpgroups + 1), config.name
        # setmaxnreg takes multiples of 8, and the roles start from what the CTA is launched with.
        assert producer % 8 == math % 8 == 0
        assert (producer, math) == (0, 0) or producer < entry < math
        assert config.accumulators < (math or entry)


@each_form
def test_shared_memory_fits_a_cta_and_has_no_room_for_another_stage(form):
    for config in OF_FORM[form]:
        total = plan(config).total
        assert total <= H200.smem_per_cta(config.ctas_per_sm), config.name
        assert config.ctas_per_sm * (total + RESERVED_SMEM) <= H200.smem_bytes + RESERVED_SMEM
        one_more = replace(config, num_stages=config.num_stages + 1)
        if config.num_stages < MAX_STAGES:
            found = violations(one_more, H200)
            assert len(found) == 1 and "shared memory" in found[0], (
                "another stage would have fitted"
            )
        assert config == finalize(replace(config, num_stages=0, store=StoreConfig(0, 0, 0)), H200)


@each_form
def test_regions_of_shared_memory_lie_where_they_may(form):
    # Swizzled operands and slabs repeat every 1024 bytes, scales that are operands every 256; sums
    # are sent in 16, scales of rows and columns read by twos, tiles in 16, barriers are of 8.
    steps = {"operands": 1024, "output": 1024, "exchange": 16, "scales": 16}
    steps |= {"vectors": 8, "tiles": 16, "barriers": 8}
    if FORMS[form].mainloop is Mainloop.SCALED_1D1D:
        steps["scales"] = 256
    for config in OF_FORM[form]:
        regions, at = vars(plan(config)), 0
        assert list(regions) == list(steps)
        for name, size in regions.items():
            assert size == 0 or at % steps[name] == 0, (config.name, name)
            at += size
        check_sizes(config)


def check_sizes(config):
    """Fail unless every region has room for what lies there."""
    regions, stages, tile = plan(config), config.num_stages, config.tile
    extents = tile.block_m, tile.block_n
    # Operands whose rows are contiguous come in boxes of 64 of them.
    rows = [
        -(-extent // 64) * 64 if major == "mn" else extent
        for extent, major in zip(extents, config.majors, strict=True)
    ]
    assert regions.operands == stages * sum(rows) * 128
    assert (regions.exchange > 0) == (config.split_k > 1)
    tokens, weights = reversed(extents) if config.tile.swap_ab else extents
    along_k = {"block": tokens + 4, "rows": tokens + weights}.get(config.variant.promotion, 0)
    assert regions.scales // stages >= 4 * along_k
    assert (regions.scales > 0) == (along_k > 0)
    assert regions.vectors >= (4 * tile.at_once * sum(extents) if config.variant.scaled else 0)
    assert (regions.vectors > 0) == config.variant.scaled
    assert regions.barriers == 8 * 2 * (stages + 1 + tile.at_once)


@each_form
def test_output_boxes_are_such_as_tma_takes(form):
    size = FORMS[form].d.bytes
    for config in OF_FORM[form]:
        rows = [config.store.box_columns * size]
        rows += [config.store_tail_n * size] if config.store_tail_n else []
        assert all(row in (32, 64, 128) or (row % 32 == 16 and row <= 512) for row in rows)
        boxed = config.reduce_mma_n - config.store_tail_n
        assert config.tile.swap_ab or boxed % config.store.box_columns == 0, config.name
        assert config.store.slab_columns <= config.reduce_mma_n
        # C is added by the one owner of a column.
        assert FORMS[form].c_mode is CMode.NONE or config.tile.block_n % config.reduce_mma_n == 0


@pytest.mark.parametrize("name", ["h100", "h800", "h200", "h20"])
def test_shared_memory_of_each_of_several_ctas(name):
    device = by_name(name)
    assert device.smem_per_cta(1) == device.smem_bytes
    for ctas in (2, 3, 4):
        each = device.smem_per_cta(ctas)
        assert each % 1024 == 0
        taken = ctas * (each + RESERVED_SMEM)
        assert taken <= device.smem_bytes + RESERVED_SMEM < taken + ctas * 1024


def test_a_budget_is_capped_by_the_device():
    assert [H200.budget(cap) for cap in (0, 1, 131, 132, 500)] == [132, 1, 131, 132, 132]


# --- what a configuration says of itself ------------------------------------------------------


def test_rows_and_columns_are_oriented():
    assert GOOD.oriented(3, 4096) == (3, 4096)
    assert SWAPPED.oriented(3, 4096) == (4096, 3)


@pytest.mark.parametrize(
    "block_n, main, extra",
    [(8, 8, 0), (24, 16, 8), (64, 64, 0), (80, 64, 16), (96, 64, 32), (112, 64, 48)]
    + [(128, 128, 0), (136, 128, 8), (144, 128, 16), (192, 128, 64), (256, 128, 128)],
)
def test_weights_are_a_power_of_two_of_columns_and_the_rest(block_n, main, extra):
    config = replace(GOOD, tile=TileConfig(128, block_n, 2))
    assert (config.n_head, config.n_tail) == (main, extra)
    # Tokens have a scale each.
    tokens = replace(config, swap_ab=True)
    assert (tokens.n_head, tokens.n_tail) == (block_n, 0)


@pytest.mark.parametrize(
    "block_n, split_k, piece",
    [(96, 1, 96), (96, 2, 48), (96, 4, 24), (32, 8, 8), (24, 5, 8), (40, 4, 16), (24, 2, 16)],
)
def test_a_piece_is_a_share_in_groups_of_8(block_n, split_k, piece):
    config = replace(SWAPPED, tile=TileConfig(64, block_n, 1), split_k=split_k)
    assert config.reduce_mma_n == piece
    # All pieces together hold the tile; those beyond it are of CTAs that own nothing.
    assert split_k * piece >= block_n


@pytest.mark.parametrize(
    "block_n, split_k, piece",
    [(96, 1, 96), (96, 2, 48), (96, 4, 32), (96, 8, 32), (16, 4, 8), (24, 2, 16), (64, 3, 24)]
    + [(128, 7, 24), (136, 2, 72), (144, 2, 72), (144, 4, 40), (160, 3, 56), (192, 5, 64)],
)
def test_a_piece_of_weights_has_room_for_the_extra_columns(block_n, split_k, piece):
    assert replace(SPLIT, tile=TileConfig(64, block_n, 1), split_k=split_k).reduce_mma_n == piece


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("split_k", range(1, 9))
def test_pieces_are_the_least_whose_last_alone_reaches_the_extra_columns(split_k, swapped):
    for block_n in range(8, 257, 8):
        config = replace(SPLIT, tile=TileConfig(64, block_n, 1), split_k=split_k, swapped=swapped)

        def serves(piece, config=config):
            others = -(-config.tile.block_n // piece) - 1
            fits = others < config.split_k and piece >= config.n_tail
            return fits and others * piece <= config.n_head

        assert config.reduce_mma_n == next(piece for piece in range(8, 257, 8) if serves(piece))


def test_a_cluster_counts_sharers_and_parts_of_k():
    assert (GOOD.multicast, GOOD.cluster_size) == (2, 2)
    assert (SPLIT.multicast, SPLIT.cluster_size) == (2, 4)
    assert (SWAPPED.multicast, SWAPPED.cluster_size) == (1, 4)


def test_sums_that_stay_in_the_tensor_core_have_no_partials():
    direct = replace(GOOD, form=FORMS["fast_scaled"])
    assert (direct.partials, direct.accumulators) == (0, 64)
    unit = replace(GOOD, form=FORMS["unit_scaled_read"])
    assert (unit.partials, unit.accumulators) == (2, 3 * 64)
    # A scale of each column, or element, takes registers as well.
    assert ROWS.partials > 0 and ROWS.accumulators > (1 + ROWS.partials) * 32


@pytest.mark.parametrize(
    "form", [form for form in FORMS if FORMS[form].mainloop is not Mainloop.SCALED_1D2D]
)
def test_only_weights_with_a_scale_for_each_128_have_extra_columns(form):
    config = replace(GOOD, tile=TileConfig(128, 144, 2), form=FORMS[form])
    assert (config.n_head, config.n_tail) == (144, 0)


def test_a_k_block_is_128_bytes():
    assert {
        name: form.block_k for name, form in FORMS.items() if form.a.bytes == 2
    } == dict.fromkeys((name for name in FORMS if "bf16" == name[:4] or "fp16" == name[:4]), 64)
    assert {form.block_k for form in FORMS.values() if form.a.bytes == 1} == {128}
    assert "of B x 64" in WIDE.describe() and "of B x 128" in BYTES.describe()


def test_sums_take_registers_for_waves_partials_and_column_scales():
    assert (GOOD.partials, GOOD.accumulators) == (2, 3 * 64)
    waves = replace(GOOD, tile=TileConfig(256, 128, 2))
    assert (waves.partials, waves.accumulators) == (1, 3 * 64)
    wide = replace(GOOD, tile=TileConfig(128, 192, 2))
    assert (wide.partials, wide.accumulators) == (1, 2 * 96)
    # A sum of 64 x 32 is 16 registers of a thread, its column scales 8.
    assert (SWAPPED.partials, SWAPPED.accumulators) == (2, 3 * 16 + 2 * 8)
    # Two CTAs to an SM have half the registers.
    narrow = replace(TWICE, tile=TileConfig(64, 96, 1))
    assert (narrow.partials, replace(narrow, ctas_per_sm=1).partials) == (1, 2)


@pytest.mark.parametrize(
    "config, said",
    [
        (GOOD, ["128 rows of A x 128 of B", "2 math warpgroups", "B multicast to 2", "5 stages"]),
        (replace(GOOD, cluster_m=1, cluster_n=2), ["A multicast to 2"]),
        (replace(GOOD, cluster_m=1), ["no multicast"]),
        (SPLIT, ["K split over 2", "B multicast to 2", "slabs of 64 x 48"]),
        (SWAPPED, ["64 rows of B x 32 of A", "K split over 4", "no multicast"]),
        (replace(SWAPPED, cluster_m=2), ["A multicast to 2"]),
        (replace(SWAPPED, cluster_n=2), ["B multicast to 2"]),
        (TWICE, ["2 CTAs an SM"]),
    ],
)
def test_a_description_says_what_is_special(config, said):
    text = config.describe()
    assert all(words in text for words in said), text
    assert ("K split" in text) == (config.split_k > 1)
    assert ("CTAs an SM" in text) == (config.ctas_per_sm > 1)


# --- legality -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base, change, said",
    [
        (GOOD, {"tile": TileConfig(96, 128, 1)}, "64 rows"),
        (GOOD, {"tile": TileConfig(512, 64, 2)}, "over 256"),
        (GOOD, {"tile": TileConfig(128, 100, 2)}, "multiples of 8"),
        (GOOD, {"tile": TileConfig(128, 264, 2)}, "from 8 to 256"),
        (GOOD, {"tile": TileConfig(256, 256, 2)}, "384 registers of sums in a thread; 216 fit"),
        (GOOD, {"tile": TileConfig(512, 64, 4)}, "4 math warpgroups with 1 CTAs an SM"),
        (GOOD, {"cluster_m": 2, "cluster_n": 2}, "cluster of 2 x 2"),
        (GOOD, {"cluster_m": 4}, "cluster of 4 x 1"),
        (GOOD, {"tile": TileConfig(64, 24, 1), "store": StoreConfig(8, 24, 1)}, "half of BLOCK_N"),
        (GOOD, {"tile": TileConfig(128, 112, 2)}, "BLOCK_N = 112 of weights; it is a power of two"),
        (GOOD, {"tile": TileConfig(64, 88, 1)}, "BLOCK_N = 88 of weights"),
        (GOOD, {"tile": TileConfig(64, 224, 1)}, "BLOCK_N = 224 of weights"),
        (GOOD, {"store": StoreConfig(128, 128, 1)}, "output boxes of 128 columns"),
        (
            GOOD,
            {"store": StoreConfig(48, 96, 1)},
            "output boxes of 48 columns, 96 bytes; 32, 64 or",
        ),
        (GOOD, {"store": StoreConfig(64, 96, 1)}, "whole boxes"),
        (GOOD, {"store": StoreConfig(64, 128, 0)}, "no slab"),
        (GOOD, {"store": StoreConfig(0, 128, 1)}, "no output box"),
        (GOOD, {"num_stages": 1}, "1 stages"),
        (SWAPPED, {"num_stages": 17}, "17 stages"),
        (GOOD, {"num_stages": 8}, "bytes of shared memory; a CTA has 232448"),
        # K split
        (SPLIT, {"split_k": 8}, "K split over 8; a cluster has up to 8 CTAs"),
        (SPLIT, {"split_k": -2}, "K split over -2"),
        (SPLIT, {"tile": TileConfig(128, 96, 1)}, "several waves"),
        # extra columns are one box at the end of a slab, which is the whole piece
        (SPLIT, {"store": StoreConfig(32, 96, 1)}, "not whole boxes and one of the tile's extra"),
        (SPLIT, {"store": StoreConfig(32, 48, 1)}, "not whole boxes and one of the tile's extra"),
        (SPLIT, {"store": StoreConfig(16, 16, 1)}, "not whole boxes and one of the tile's extra"),
        # swapped
        (SWAPPED, {"store": StoreConfig(64, 32, 1)}, "boxes of 128 bytes and all its tokens"),
        (SWAPPED, {"store": StoreConfig(8, 8, 1)}, "boxes of 128 bytes and all its tokens"),
        (SWAPPED, {"tile": TileConfig(64, 40, 1)}, "boxes of 128 bytes and all its tokens"),
        (SWAPPED, {"form": FORMS["unit_fp32"]}, "output boxes of 64 columns, 256 bytes"),
        (SWAPPED, {"tile": TileConfig(64, 176, 1)}, "220 registers of sums in a thread; 216 fit"),
        # several CTAs to an SM
        (TWICE, {"ctas_per_sm": 3}, "1 math warpgroups with 3 CTAs an SM"),
        (TWICE, {"tile": TileConfig(192, 32, 3)}, "3 math warpgroups with 2 CTAs an SM"),
        (TWICE, {"tile": TileConfig(64, 104, 1)}, "104 registers of sums in a thread; 96 fit"),
        (TWICE, {"num_stages": 9}, "bytes of shared memory; a CTA has 115712"),
        # forms
        (GOOD, {"form": FORMS["block_fp32_reduce"]}, "output boxes of 64 columns, 256 bytes"),
        (WIDE, {"store": StoreConfig(64, 64, 1)}, "output boxes of 64 columns, 256 bytes"),
        (BYTES, {"tile": TileConfig(128, 104, 2)}, "BLOCK_N = 104; wgmma of INT8 takes 8, 24 and"),
        (BYTES, {"tile": TileConfig(128, 40, 2)}, "BLOCK_N = 40; wgmma of INT8"),
        (WIDE, {"tile": TileConfig(128, 96, 2), "cluster_m": 2}, "a multicast share of 48"),
        (WIDE, {"tile": TileConfig(64, 64, 1), "cluster_n": 2}, "a multicast share of 32"),
        (WIDE, {"cluster_m": 2}, "a multicast share of 32 of an operand loaded in boxes of 64"),
        (ROWS, {"swapped": True}, "1x128 scales of both operands with tokens as columns"),
        (
            ADDS,
            {"tile": TileConfig(64, 72, 1), "split_k": 5},
            "shares of a split tile that overlap, where C is added",
        ),
    ],
)
def test_what_cannot_be_built_says_why(base, change, said):
    assert not violations(base, H200)
    found = violations(replace(base, **change), H200)
    assert any(said in reason for reason in found), found


@pytest.mark.parametrize(
    "change, said",
    [({"split_k": 0}, "K split over 0"), ({"ctas_per_sm": 0}, "0 CTAs an SM")],
)
def test_counts_of_none_are_refused_like_any_other(change, said):
    found = violations(replace(SPLIT, **change), H200)
    assert any(said in reason for reason in found), found


@pytest.mark.parametrize(
    "config",
    [
        replace(SWAPPED, split_k=8),
        replace(SWAPPED, tile=TileConfig(64, 8, 1), split_k=3),
        replace(SWAPPED, cluster_m=2),
        replace(SWAPPED, cluster_n=2),
        # Pieces that do not come out even, and CTAs without one.
        replace(SPLIT, cluster_m=1, split_k=5, store=StoreConfig(32, 32, 1)),
        replace(SPLIT, tile=TileConfig(64, 16, 1), split_k=4, store=StoreConfig(8, 8, 1)),
        replace(UNEVEN, tile=TileConfig(64, 160, 1), split_k=3, store=StoreConfig(24, 56, 1)),
        replace(SWAPPED, tile=TileConfig(64, 40, 1), store=StoreConfig(64, 16, 1)),
        replace(TWICE, tile=TileConfig(128, 32, 2), num_stages=4),
        replace(GOOD, compiled=(0, 4096, 7168)),
        # What other forms may not be.
        replace(BYTES, tile=TileConfig(128, 24, 2), store=StoreConfig(8, 24, 1)),
        replace(ROWS, tile=TileConfig(64, 72, 1), store=StoreConfig(72, 72, 1)),
        replace(WIDE, tile=TileConfig(128, 128, 2), cluster_m=2, store=StoreConfig(32, 64, 1)),
        replace(WIDE, tile=TileConfig(128, 72, 2), cluster_n=2, store=StoreConfig(8, 72, 1)),
        replace(ADDS, split_k=3),
    ],
    ids=lambda c: c.name,
)
def test_more_than_the_candidates_can_be_built(config):
    assert not violations(config, H200)
    assert config not in EVERY


# --- choice -------------------------------------------------------------------------------------


@given(extents, extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_choice_is_the_cheapest_that_suits_under_any_cap(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    chosen = select(problem, H200, cap)
    assert chosen.cluster_size <= cap
    assert is_applicable(chosen, problem, cap)
    cost = estimate(problem, chosen, H200, cap).us
    suiting = [c for c in CANDIDATES if is_applicable(c, problem, cap)]
    assert cost <= min(estimate(problem, c, H200, cap).us for c in suiting) + 0.01


@each_form
@given(extents, extents, extents, caps)
@settings(max_examples=12, deadline=None)
def test_every_form_gets_the_cheapest_candidate_that_suits(form, m, n, k, cap):
    problem = sized(form, m, n, k)
    chosen = select(problem, H200, cap)
    assert chosen in OF_FORM[form] and is_applicable(chosen, problem, cap)
    cost = estimate(problem, chosen, H200, cap).us
    rows = explain(problem, H200, cap)
    assert rows[0].config == chosen and rows[0].chosen
    assert cost <= min(row.estimate_us for row in rows) + 0.01
    assert {row.config for row in rows} == {
        c for c in OF_FORM[form] if is_applicable(c, problem, cap)
    }


@each_form
def test_forms_share_no_kernel(form):
    problems = [sized(form, m, n, 1024) for m in (1, 64, 300, 4096) for n in (64, 576, 7168)]
    entries = {unit_of(select(problem, H200)).entry for problem in problems}
    others = {
        unit_of(select(sized(other, p.m, p.n, p.k), H200)).entry
        for other in FORMS
        if FORMS[other] != FORMS[form]
        for p in problems
    }
    assert not entries & others


def test_operands_that_are_transposed_first_have_the_kernels_of_those_that_are_not():
    plain, turned = sized("block", 300, 576, 1024), sized("block", 300, 576, 1024, b_major=Major.MN)
    assert turned.transposed == ("b",) and turned.form == plain.form
    config = select(plain, H200)
    assert estimate(turned, config, H200, 132).us > estimate(plain, config, H200, 132).us


def test_no_cap_is_the_whole_device():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200) == select(problem, H200, 132) == select(problem, H200, 1000)


@given(st.integers(1, 64), extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_swapped_tile_holds_all_tokens_and_no_more_than_it_must(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    widths = {
        c.tile.block_n for c in CANDIDATES if c.tile.swap_ab and is_applicable(c, problem, cap)
    }
    assert widths == ({next(width for width in (8, 16, 32) if m <= width)} if m <= 32 else set())
    chosen = select(problem, H200, cap)
    if chosen.tile.swap_ab:
        assert m <= chosen.tile.block_n < max(9, 2 * m)


@pytest.mark.parametrize("m, width", [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)])
def test_few_tokens_become_columns(m, width):
    chosen = select(GemmProblem.block_scaled(m, 4096, 7168), H200)
    assert chosen.tile.swap_ab and chosen.tile.block_n == width


def test_few_rows_never_get_a_tall_tile():
    # A tile taller than the problem wastes the tensor cores on rows that do not exist.
    for m in (1, 7, 33, 64):
        for n, k in ((576, 7168), (4096, 7168), (7168, 2048)):
            chosen = select(GemmProblem.block_scaled(m, n, k), H200)
            assert chosen.tile.block_m == 64 or chosen.tile.swap_ab
            assert chosen.tile.swap_ab == (m <= 32)


def test_narrow_outputs_split_k():
    # 576 columns are 9 tiles of 64: without parts of K most SMs would have none.
    for m in (1, 64, 512):
        chosen = select(GemmProblem.block_scaled(m, 576, 7168), H200)
        assert chosen.split_k > 1
    assert select(GemmProblem.block_scaled(4096, 4096, 7168), H200).split_k == 1


def test_kernels_do_not_depend_on_the_problem():
    chosen = {select(GemmProblem.block_scaled(m, 7168, 2048), H200) for m in range(1, 8193, 61)}
    assert len(chosen) <= 16
    assert all(config.compiled == (0, 0, 0) for config in chosen)
    assert len({unit_of(config).source for config in chosen}) == len(chosen)


def test_one_sm_and_odd_budgets_get_what_fits():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200, 1).cluster_size == 1
    assert select(problem, H200, 131).cluster_size in (1, 2)
    narrow = GemmProblem.block_scaled(64, 576, 7168)
    assert select(narrow, H200, 1).cluster_size == 1 < select(narrow, H200, 131).cluster_size


@pytest.mark.parametrize(
    "m, cap, static_b", [(256, 0, False), (256, 7, False), (5, 0, False), (5, 3, True)]
)
def test_explain_lists_what_suits_best_first_and_marks_the_choice(m, cap, static_b):
    problem = GemmProblem.block_scaled(m, 7168, 2048, static_b)
    rows = explain(problem, H200, cap)
    listed = [row.config for row in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {c for c in CANDIDATES if is_applicable(c, problem, cap or 132)}
    assert 0 < len(listed) < len(CANDIDATES)
    # Equal ones, to a hundredth of a microsecond, go by size.
    times = [round(row.estimate_us, 2) for row in rows]
    assert times == sorted(times)
    assert [row.chosen for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0].config == select(problem, H200, cap)
    assert all("waves" in row.reason and "limit" in row.reason for row in rows)


def test_forced_answers_until_it_ends():
    problem = GemmProblem.block_scaled(1, 576, 7168)
    with forced(GOOD):
        assert select(problem, H200) == GOOD
    assert select(problem, H200) != GOOD


@each_form
def test_forced_keeps_the_problems_form(form):
    problem = sized(form, 1, 576, 7168)
    with forced(GOOD):
        found = select(problem, H200)
        # What cannot be built with the form gets its store path and depth anew.
        built = replace(found, store=GOOD.store, num_stages=GOOD.num_stages)
        assert built == replace(GOOD, form=FORMS[form])
        assert not violations(found, H200)
        assert found == built or violations(built, H200)
        with forced(OF_FORM[form][0]):
            assert select(problem, H200) == OF_FORM[form][0]


def test_unknown_device_names_the_known():
    with pytest.raises(ArgumentError, match="h100.*h200"):
        by_name("b200")


# --- the walk over tiles ------------------------------------------------------------------------


@given(extents, extents, st.integers(1, 132), st.sampled_from(EVERY))
@settings(max_examples=200, deadline=None)
def test_raster_covers_the_problem(m, n, resident, config):
    walk = raster(GemmProblem.block_scaled(m, n, 512), config, resident)
    in_cluster = config.tile.block_m * config.cluster_m, config.tile.block_n * config.cluster_n
    rows, columns = (n, m) if config.tile.swap_ab else (m, n)
    assert (walk.clusters_m - 1) * in_cluster[0] < rows <= walk.clusters_m * in_cluster[0]
    assert (walk.clusters_n - 1) * in_cluster[1] < columns <= walk.clusters_n * in_cluster[1]
    assert walk.band >= 1


ROWS_WIDE = config_of(128, 128, form=FORMS["rows"])  # with code for half its columns


@given(extents, extents, st.integers(1, 132), st.sampled_from(EVERY))
@settings(max_examples=300, deadline=None)
def test_an_edge_is_half_tiles_of_the_last_row_or_column(m, n, slots, config):
    walk = raster(sized("rows", m, n, 512), config, slots)
    if walk.edge == Edge():
        return
    lengths = (walk.clusters_m, walk.clusters_n)
    assert walk.edge.first + walk.edge.last == lengths[walk.edge.on_m]
    assert walk.edge.last == walk.clusters % slots
    extent, block = (m, config.tile.block_m) if walk.edge.on_m else (n, config.tile.block_n)
    assert 0 < extent % block <= config.half_tile[not walk.edge.on_m] <= block // 2


@pytest.mark.parametrize(
    ("m", "n", "slots", "edge"),
    [
        (7168, 2112, 132, Edge(28, 28, False)),  # 56 x 17 tiles, 28 more than 7 waves
        (2112, 7168, 132, Edge(28, 28, True)),
        (7168, 2112, 66, Edge(28, 28, False)),
        (7168, 2112, 119, Edge()),  # whole waves
        (7168, 2120, 132, Edge()),  # more than half a tile
        (7168, 2048, 132, Edge()),  # no half tiles
        (4096, 2112, 132, Edge(16, 16, False)),  # 32 x 17 tiles, 16 more than 4 waves
        (896, 2112, 132, Edge()),  # 119 tiles, no wave before them, and 7 in the edge
    ],
)
def test_the_edges_of_weight_gradients(m, n, slots, edge):
    assert raster(sized("rows", m, n, 4096), ROWS_WIDE, slots).edge == edge


def test_no_cluster_has_half_tiles_beside_whole_ones():
    problem, shared = sized("rows", 7168, 2112, 4096), replace(ROWS_WIDE, cluster_m=2)
    assert raster(problem, shared, 66).edge == Edge(14, 14, False)
    assert raster(problem, replace(ROWS_WIDE, cluster_n=2), 66).edge == Edge()
    assert raster(problem, config_of(128, 128, form=FORMS["unit_fp32"]), 132).edge == Edge()


def test_a_forced_configuration_that_no_form_can_be_built_with_is_refused():
    wide = config_of(256, 128)
    with forced(wide), pytest.raises(UnsupportedError, match="several waves"):
        select(sized("rows", 512, 576, 7168), H200)
