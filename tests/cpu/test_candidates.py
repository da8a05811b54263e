"""Candidates: all can be built, they reach every kind of tile, and have names of their own."""

from __future__ import annotations

from dataclasses import replace

from deep_gemm.config import StoreConfig, violations
from deep_gemm.config.candidates import finalize
from deep_gemm.kernels.gemm_sm90 import spec
from deep_gemm.problem import Mainloop

from .config_cases import each_variant
from .config_kit import BY_VARIANT, CANDIDATES, EVERY, H200, VARIANTS


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
    configs = [*EVERY, *compiled]
    assert len({config.name for config in configs}) == len(set(configs)) == len(configs)
    assert len({spec(config).name for config in configs}) == len(configs)


@each_variant
def test_candidates_are_finalized(variant):
    for config in BY_VARIANT[variant]:
        bare = replace(config, num_stages=0, store=StoreConfig(0, 0, 0))
        assert config == finalize(bare, H200)


@each_variant
def test_store_boxes_are_such_as_tma_takes(variant):
    d = VARIANTS[variant].d
    for config in BY_VARIANT[variant]:
        rows = [config.store.box_n * d.bytes]
        rows += [config.store_tail_n * d.bytes] if config.store_tail_n else []
        assert all(row in (32, 64, 128) or (row % 32 == 16 and row <= 512) for row in rows)
        boxed = config.reduce_mma_n - config.store_tail_n
        assert config.tile.swap_ab or boxed % config.store.box_n == 0, config.name
        assert config.store.stage_mma_n <= config.reduce_mma_n
        # C is added by the one owner of a column.
        assert not VARIANTS[variant].adds_c or config.tile.mma_n % config.reduce_mma_n == 0
