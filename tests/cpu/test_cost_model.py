"""Properties of the predicted times: what more work, fewer SMs and early reads do to them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deep_gemm.config import candidates
from deep_gemm.config.cost_model import early_blocks, estimate
from deep_gemm.problem import GemmProblem

from .config_kit import FORMS, H200, config_of, sized

CANDIDATES = candidates(H200)
OF_FORM = {name: candidates(H200, form) for name, form in FORMS.items()}
configs = st.sampled_from(CANDIDATES)
# A form and one of its candidates.
formed = st.sampled_from([(name, config) for name, of in OF_FORM.items() for config in of])
extents = st.integers(1, 20000)
sms = st.integers(1, 132)


# --- what is read ahead -------------------------------------------------------------------------


@given(formed, extents, sms, sms)
@settings(max_examples=300, deadline=None)
def test_what_is_read_ahead_has_a_stage_and_exists(form_and_config, k, ctas, num_sms):
    _, config = form_and_config
    blocks = early_blocks(config, k, ctas, num_sms)
    longest_part = -(-k // (config.variant.block_k * config.split_k))
    share = config.num_stages * 3 // 4 if config.tile.swap_ab else config.num_stages // 2
    assert 0 <= blocks <= min(share, longest_part)
    # A grid of half the SMs has its successor beside it.
    assert (blocks > 0) == (2 * ctas > num_sms)
    # Of a short K only half, so that tokens need not queue behind the weights.
    assert blocks <= max(8, longest_part // 2)


@given(configs, extents, extents, sms)
@settings(max_examples=100, deadline=None)
def test_a_longer_k_never_has_less_read_ahead(config, k, more, num_sms):
    ctas = num_sms // 2 + 1
    assert early_blocks(config, k + more, ctas, num_sms) >= early_blocks(config, k, ctas, num_sms)


@pytest.mark.parametrize("swapped, stages", [(True, 12), (False, 8)])
def test_a_long_k_fills_a_share_of_the_stages_ahead_and_a_short_one_half(swapped, stages):
    config = next(
        c for c in CANDIDATES if (c.tile.swap_ab, c.num_stages, c.split_k) == (swapped, 16, 1)
    )
    found = {k: early_blocks(config, k, 132, 132) for k in (128, 1024, 2560, 7168)}
    assert found == {128: 1, 1024: 8, 2560: min(10, stages), 7168: stages}
    assert [early_blocks(config, 7168, ctas, 132) for ctas in (66, 67)] == [0, stages]


@given(formed, st.integers(1, 300), extents, extents, sms)
@settings(max_examples=200, deadline=None)
def test_reading_ahead_is_never_predicted_to_cost(form_and_config, m, n, k, num_sms):
    form, config = form_and_config
    plain, static = (
        estimate(sized(form, m, n, k, static_b=static_b), config, H200, num_sms)
        for static_b in (False, True)
    )
    assert 0 < static.us <= plain.us
    assert (static.waves, static.limit) == (plain.waves, plain.limit)


def test_reading_ahead_is_predicted_to_gain_only_where_all_sms_work():
    def gain(n):
        config = next(c for c in CANDIDATES if c.name.startswith("128x8_") and c.cluster_size == 1)
        plain, static = (
            estimate(GemmProblem.block_scaled(1, n, 7168, static_b), config, H200, 132).us
            for static_b in (False, True)
        )
        return plain - static

    assert gain(128 * 66) == 0 < gain(128 * 132)


# --- estimates ----------------------------------------------------------------------------------


@given(formed, extents, extents, extents, st.booleans(), sms)
@settings(max_examples=300, deadline=None)
def test_waves_are_what_the_grid_needs(form_and_config, m, n, k, static_b, num_sms):
    form, config = form_and_config
    problem = sized(form, m, n, k, static_b=static_b)
    assume(is_applicable(config, problem, num_sms))
    found = estimate(problem, config, H200, num_sms)
    rows, columns = config.oriented(m, n)
    tiles = -(-rows // config.tile.block_m) * -(-columns // config.tile.block_n)
    # As many CTAs for a tile as K has parts; where clusters leave none over, no fewer waves.
    assert found.waves >= -(-tiles * config.split_k // num_sms)
    assert found.us > 0 and found.k_block_cycles > 0
    assert found.limit in ("mma", "copies", "device memory", "power")


@given(formed, extents, extents, extents, sms)
@settings(max_examples=300, deadline=None)
def test_no_time_is_below_that_of_device_memory(form_and_config, m, n, k, num_sms):
    form, config = form_and_config
    problem = sized(form, m, n, k)
    assume(is_applicable(config, problem, num_sms))
    found = estimate(problem, config, H200, num_sms)
    assert found.us > problem.bytes / H200.hbm_bytes_per_us * 0.7


@given(formed, extents, extents, st.integers(1, 10000), sms)
@settings(max_examples=300, deadline=None)
def test_twice_the_k_never_takes_less_time(form_and_config, m, n, k, num_sms):
    form, config = form_and_config
    # Where rows of B lie so far apart that reads of them camp on a channel is left out.
    once, twice = (
        estimate(sized(form, m, n, length), config, H200, num_sms)
        for length in (16 * k + 8, 2 * (16 * k + 8))
    )
    assert once.us <= twice.us and once.waves == twice.waves


@pytest.mark.parametrize("form", FORMS)
def test_no_k_block_is_predicted_to_beat_the_tensor_core(form):
    for config in OF_FORM[form]:
        tile = config.tile
        cycles = estimate(sized(form, 4096, 4096, 65536), config, H200, 132).k_block_cycles
        # Two cycles for each column of 64 rows and 128 bytes of K.
        assert cycles > 0.9 * tile.block_m * tile.block_n / 32, config.name


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_transposed_operand_costs_what_it_moves(name):
    plain, turned = (
        estimate(sized("block", 512, 1024, 4096, **{f"{name}_major": major}), config, H200, 132)
        for major in ("k", "mn")
        for config in CANDIDATES[:1]
    )
    rows = {"a": 512, "b": 1024}[name]
    assert turned.us - plain.us > 2 * rows * 4096 / H200.hbm_bytes_per_us


@pytest.mark.parametrize("on_m", [False, True])
def test_two_halves_in_the_last_wave_are_cheaper_than_two_tiles(on_m):
    config = config_of(128, 128, form=FORMS["rows"])

    def found(extent):
        m, n = (extent, 7168) if on_m else (7168, extent)
        return estimate(sized("rows", m, n, 4096), config, H200, 132)

    # 17 x 56 tiles are 7 waves and 28; of more than half a tile there are no halves.
    half, more = found(2112), found(2120)
    assert (half.waves, more.waves) == (8, 8)
    assert 0.93 < half.us / more.us < 0.96  # 7.52 tiles of 8


@pytest.mark.parametrize("swapped", [False, True])
def test_orientation_counts_tiles_of_the_tensor_cores_product(swapped):
    config = next(
        c
        for c in CANDIDATES
        if c.tile.swap_ab == swapped
        and (c.tile.block_m, c.tile.block_n) == (64, 32)
        and (c.cluster_size, c.ctas_per_sm) == (1, 1)
    )
    # 64 x 32 of D, or 32 x 64: 264 tiles one way, twice as many, and half empty, the other.
    m, n = (32, 64 * 264) if swapped else (64 * 264, 32)
    found = estimate(GemmProblem.block_scaled(m, n, 1024), config, H200, 132)
    other = estimate(GemmProblem.block_scaled(n, m, 1024), config, H200, 132)
    assert (found.waves, other.waves) == (2, 4)
