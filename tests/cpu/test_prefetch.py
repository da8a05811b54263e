"""K-blocks of B that are loaded before the dependency wait: how many, and what is gained."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config.cost_model import estimate
from deep_gemm.config.prefetch import early_k_blocks
from deep_gemm.problem import GemmProblem

from .config_kit import BY_VARIANT, CANDIDATES, H200, sized

configs = st.sampled_from(CANDIDATES)
# A variant and one of its candidates.
variants = st.sampled_from([(name, one) for name, found in BY_VARIANT.items() for one in found])
extents = st.integers(1, 20000)
sms = st.integers(1, 132)


@given(variants, extents, sms, sms)
@settings(max_examples=300, deadline=None)
def test_an_early_k_block_has_a_stage_and_exists(variant_and_config, k, ctas, num_sms):
    _, config = variant_and_config
    k_blocks = early_k_blocks(config, k, ctas, num_sms)
    longest_part = -(-k // (config.variant.block_k * config.split_k))
    share = config.num_stages * 3 // 4 if config.tile.swap_ab else config.num_stages // 2
    assert 0 <= k_blocks <= min(share, longest_part)
    # A grid of half the SMs has its successor beside it.
    assert (k_blocks > 0) == (2 * ctas > num_sms)
    # Of a short K only half, so that loads of A need not queue behind those of B.
    assert k_blocks <= max(8, longest_part // 2)


@given(configs, extents, extents, sms)
@settings(max_examples=100, deadline=None)
def test_a_longer_k_never_has_fewer_early_k_blocks(config, k, more, num_sms):
    ctas = num_sms // 2 + 1
    longer = early_k_blocks(config, k + more, ctas, num_sms)
    assert longer >= early_k_blocks(config, k, ctas, num_sms)


@pytest.mark.parametrize("swap_ab, stages", [(True, 12), (False, 8)])
def test_a_long_k_fills_a_share_of_the_stages_early_and_a_short_one_half(swap_ab, stages):
    wanted = (swap_ab, 16, 1)
    config = next(c for c in CANDIDATES if (c.tile.swap_ab, c.num_stages, c.split_k) == wanted)
    found = {k: early_k_blocks(config, k, 132, 132) for k in (128, 1024, 2560, 7168)}
    assert found == {128: 1, 1024: 8, 2560: min(10, stages), 7168: stages}
    assert [early_k_blocks(config, 7168, ctas, 132) for ctas in (66, 67)] == [0, stages]


@given(variants, st.integers(1, 300), extents, extents, sms)
@settings(max_examples=200, deadline=None)
def test_loading_early_is_never_predicted_to_cost(variant_and_config, m, n, k, num_sms):
    variant, config = variant_and_config
    waiting, early = (
        estimate(sized(variant, m, n, k, static_b=static_b), config, H200, num_sms)
        for static_b in (False, True)
    )
    assert 0 < early.us <= waiting.us
    assert (early.waves, early.limit) == (waiting.waves, waiting.limit)


def test_loading_early_is_predicted_to_gain_only_where_all_sms_work():
    def gain(n):
        wanted = (8, 128, 1)
        config = next(
            c for c in CANDIDATES if (c.tile.block_m, c.tile.block_n, c.cluster_size) == wanted
        )
        waiting, early = (
            estimate(GemmProblem.block_scaled(1, n, 7168, static_b), config, H200, 132).us
            for static_b in (False, True)
        )
        return waiting - early

    assert gain(128 * 66) == 0 < gain(128 * 132)
