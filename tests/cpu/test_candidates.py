"""Candidates: all can be built, they reach every kind of tile, and they fill what a CTA has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import StoreConfig, by_name, violations
from deep_gemm.config.candidates import finalize
from deep_gemm.config.device import RESERVED_SMEM
from deep_gemm.config.legality import MAX_STAGES
from deep_gemm.config.registers import accumulators, budgets
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.kernels import gemm_sm90
from deep_gemm.problem import Mainloop, Major

from .config_kit import BY_VARIANT, CANDIDATES, EVERY, H200, VARIANTS

SM_REGISTERS = 65536
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def launch_registers(config):
    """Registers that each thread of a kernel can be launched with."""
    threads = config.tile.threads * config.ctas_per_sm
    return min(255, SM_REGISTERS // threads // 8 * 8)


def test_candidates_are_legal_and_reach_every_kind():
    assert all(not violations(config, H200) for config in CANDIDATES)
    tiles = {(c.tile.block_m, c.tile.block_n) for c in CANDIDATES if not c.tile.swap_ab}
    assert {(256, 128), (192, 128), (128, 136), (64, 144), (64, 16)} <= tiles
    # Without an N tail, and with one of every width.
    assert {c.n_tail for c in CANDIDATES} == {0, 8, 16, 32, 64}
    kinds = {(c.split_k > 1, c.multicast > 1, c.tile.swap_ab, c.ctas_per_sm) for c in CANDIDATES}
    # Split-K, multicast, swap-AB, CTAs per SM: alone and together.
    assert {(False, True, False, 1), (True, False, False, 1), (False, False, True, 1)} <= kinds
    assert {(True, True, False, 1), (True, False, True, 2), (False, False, True, 2)} <= kinds


@each_variant
def test_every_variant_has_legal_candidates_of_every_kind_it_allows(variant):
    configs = BY_VARIANT[variant]
    assert all(not violations(config, H200) for config in configs)
    assert {config.variant for config in configs} == {VARIANTS[variant]}
    assert {c.split_k > 1 for c in configs} == {c.multicast > 1 for c in configs} == {False, True}
    assert {c.tile.num_math_warpgroups for c in configs} >= {1, 2}
    is_1d1d = VARIANTS[variant].mainloop is Mainloop.SCALED_1D1D
    assert any(c.tile.swap_ab for c in configs) == (not is_1d1d)


def test_names_are_unique():
    compiled = [
        replace(config, compiled=extents)
        for config in CANDIDATES
        for extents in ((0, 4096, 7168), (64, 4096, 7168), (64, 0, 7168))
    ]
    every = [*EVERY, *compiled]
    assert len({config.name for config in every}) == len(set(every)) == len(every)
    assert len({gemm_sm90.spec(config).name for config in every}) == len(every)


@each_variant
def test_registers_fit_a_cta(variant):
    for config in BY_VARIANT[variant]:
        producer, math = budgets(config)
        entry, warpgroups = launch_registers(config), config.tile.num_math_warpgroups
        assert producer + math * warpgroups <= entry * (warpgroups + 1), config.name
        # setmaxnreg takes multiples of 8, and both roles start from what the CTA is launched with.
        assert producer % 8 == math % 8 == 0
        assert (producer, math) == (0, 0) or producer < entry < math
        assert accumulators(config) < (math or entry)


@each_variant
def test_shared_memory_fits_a_cta_and_has_no_room_for_another_stage(variant):
    for config in BY_VARIANT[variant]:
        total = shared_storage(config).total
        assert total <= H200.smem_per_cta(config.ctas_per_sm), config.name
        assert config.ctas_per_sm * (total + RESERVED_SMEM) <= H200.smem_bytes + RESERVED_SMEM
        one_more = replace(config, num_stages=config.num_stages + 1)
        if config.num_stages < MAX_STAGES:
            found = violations(one_more, H200)
            assert len(found) == 1 and "shared memory" in found[0], "another stage fits"
        assert config == finalize(replace(config, num_stages=0, store=StoreConfig(0, 0, 0)), H200)


@each_variant
def test_parts_of_shared_memory_are_aligned_and_large_enough(variant):
    # Swizzled operands and store stages repeat every 1024 bytes, 1D1D scales, which are operands of
    # an MMA, every 256; partial sums are sent in 16, epilogue scales read by twos, work tiles in
    # 16; barriers are of 8.
    steps = {"operands": 1024, "store": 1024, "reduce": 16, "scales": 16}
    steps |= {"epilogue_scales": 8, "work_tiles": 16, "barriers": 8}
    if VARIANTS[variant].mainloop is Mainloop.SCALED_1D1D:
        steps["scales"] = 256
    for config in BY_VARIANT[variant]:
        parts, offset = vars(shared_storage(config)), 0
        assert list(parts) == list(steps)
        for name, size in parts.items():
            assert size == 0 or offset % steps[name] == 0, (config.name, name)
            offset += size
        check_sizes(config)


def check_sizes(config):
    """Fail unless every part has room for what lies there."""
    parts, stages, tile = shared_storage(config), config.num_stages, config.tile
    variant, extents = config.variant, (tile.block_m, tile.block_n)
    # MN-major operands come in boxes of 64 elements.
    rows = [
        -(-extent // 64) * 64 if major is Major.MN else extent
        for extent, major in zip(extents, (variant.a_major, variant.b_major), strict=True)
    ]
    assert parts.operands == stages * sum(rows) * 128
    assert (parts.reduce > 0) == (config.split_k > 1)
    along_k = {Mainloop.SCALED_1D2D: tile.block_m + 4, Mainloop.SCALED_1D1D: sum(extents)}
    scales = along_k.get(variant.mainloop, 0)
    assert parts.scales // stages >= 4 * scales
    assert (parts.scales > 0) == (scales > 0)
    needed = 4 * tile.tiles_in_flight * sum(extents) if variant.has_epilogue_scales else 0
    assert parts.epilogue_scales >= needed
    assert (parts.epilogue_scales > 0) == variant.has_epilogue_scales
    assert parts.barriers == 8 * 2 * (stages + 1 + tile.tiles_in_flight)


@each_variant
def test_store_boxes_are_such_as_tma_takes(variant):
    size = VARIANTS[variant].d.bytes
    for config in BY_VARIANT[variant]:
        rows = [config.store.box_n * size]
        rows += [config.store_tail_n * size] if config.store_tail_n else []
        assert all(row in (32, 64, 128) or (row % 32 == 16 and row <= 512) for row in rows)
        boxed = config.reduce_mma_n - config.store_tail_n
        assert config.tile.swap_ab or boxed % config.store.box_n == 0, config.name
        assert config.store.stage_mma_n <= config.reduce_mma_n
        # C is added by the one owner of a column.
        assert not VARIANTS[variant].adds_c or config.tile.mma_n % config.reduce_mma_n == 0


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
