"""Properties of the predicted times: what more work, fewer SMs and smaller tiles do to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deep_gemm.config import calibration_h200, candidates
from deep_gemm.config.candidates import is_applicable
from deep_gemm.config.cost_model import config_cost, estimate
from deep_gemm.problem import GemmProblem, GroupKind, Mainloop, Major

from .config_kit import BY_VARIANT, CANDIDATES, H200, VARIANTS, config_of, sized

# A variant and one of its candidates.
variants = st.sampled_from([(name, one) for name, found in BY_VARIANT.items() for one in found])
extents = st.integers(1, 20000)
sms = st.integers(1, 132)
DIRECT = [name for name in VARIANTS if VARIANTS[name].mainloop is Mainloop.DIRECT]


@given(variants, extents, extents, extents, st.booleans(), sms)
@settings(max_examples=300, deadline=None)
def test_waves_are_what_the_grid_needs(variant_and_config, m, n, k, static_b, num_sms):
    variant, config = variant_and_config
    problem = sized(variant, m, n, k, static_b=static_b)
    assume(is_applicable(config, problem, num_sms))
    found = estimate(problem, config, H200, num_sms)
    tiles = -(-m // config.tile.block_m) * -(-n // config.tile.block_n)
    # Split-K has several CTAs for a tile; where clusters leave no SM over, no fewer waves.
    assert found.waves >= -(-tiles * config.split_k // num_sms)
    assert found.us > 0 and found.k_block_cycles > 0
    assert found.limit in ("mma", "copies", "device memory", "power")


@given(variants, extents, extents, extents, sms)
@settings(max_examples=300, deadline=None)
def test_no_time_is_below_that_of_device_memory(variant_and_config, m, n, k, num_sms):
    variant, config = variant_and_config
    problem = sized(variant, m, n, k)
    assume(is_applicable(config, problem, num_sms))
    found = estimate(problem, config, H200, num_sms)
    assert found.us > problem.bytes / H200.hbm_bytes_per_us * 0.7


@given(variants, extents, extents, st.integers(1, 10000), sms)
@settings(max_examples=300, deadline=None)
def test_twice_the_k_never_takes_less_time(variant_and_config, m, n, k, num_sms):
    variant, config = variant_and_config
    # Where rows of B lie so far apart that reads of them camp on a channel is left out.
    once, twice = (
        estimate(sized(variant, m, n, length), config, H200, num_sms)
        for length in (16 * k + 8, 2 * (16 * k + 8))
    )
    assert once.us <= twice.us and once.waves == twice.waves


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_k_block_is_predicted_to_beat_the_tensor_core(variant):
    for config in BY_VARIANT[variant]:
        tile = config.tile
        cycles = estimate(sized(variant, 4096, 4096, 65536), config, H200, 132).k_block_cycles
        # Two cycles for each column of 64 rows and 128 bytes of K.
        assert cycles > 0.9 * tile.block_m * tile.block_n / 32, config.name


def cycles_table(variant, swap_ab):
    if swap_ab:
        return calibration_h200.SWAP_AB_CYCLES
    if variant.mainloop is Mainloop.SCALED_1D1D:
        return calibration_h200.CYCLES_1D1D
    is_grouped = variant.is_grouped
    return calibration_h200.GROUPED_CYCLES if is_grouped else calibration_h200.PROMOTED_CYCLES


@pytest.mark.parametrize("group_kind", GroupKind)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in DIRECT])
def test_every_tile_of_a_candidate_has_measured_cycles(variant, group_kind):
    variant = replace(VARIANTS[variant], group_kind=group_kind)
    configs = candidates(H200, variant)
    assert configs
    for config in configs:
        tile = config.tile.block_m, config.tile.block_n
        measured = cycles_table(variant, config.tile.swap_ab)
        assert tile in measured, config.name
        assert config_cost(config).compute_cycles == measured[tile]


@pytest.mark.parametrize("variant", DIRECT)
def test_cycles_of_direct_tiles_are_measured_or_at_least_those_of_the_tensor_core(variant):
    for config in BY_VARIANT[variant]:
        tile = config.tile.mma_m, config.tile.mma_n
        measured = calibration_h200.DIRECT_CYCLES.get(tile)
        found = config_cost(config).compute_cycles
        if measured:
            assert found == measured
        else:
            assert found >= tile[0] * tile[1] / 32 + calibration_h200.DIRECT.block_cycles


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_transposed_operand_costs_what_it_moves(name):
    k_major, mn_major = (
        estimate(
            sized("1d2d", 512, 1024, 4096, **{f"{name}_major": major}), CANDIDATES[0], H200, 132
        )
        for major in (Major.K, Major.MN)
    )
    rows = {"a": 512, "b": 1024}[name]
    assert mn_major.us - k_major.us > 2 * rows * 4096 / H200.hbm_bytes_per_us


@pytest.mark.parametrize("in_m", [False, True])
def test_two_half_tiles_in_the_last_wave_are_cheaper_than_two_tiles(in_m):
    config = config_of(128, 128, variant=VARIANTS["1d1d"])

    def found(extent):
        m, n = (extent, 7168) if in_m else (7168, extent)
        return estimate(sized("1d1d", m, n, 4096), config, H200, 132)

    # 17 x 56 tiles are 7 waves and 28; of more than half a tile there are no half tiles.
    half, more = found(2112), found(2120)
    assert (half.waves, more.waves) == (8, 8)
    assert 0.93 < half.us / more.us < 0.96  # 7.52 tiles of 8


@pytest.mark.parametrize("swap_ab", [False, True])
def test_tiles_are_counted_along_the_axes_of_the_problem(swap_ab):
    wanted = (32, 64) if swap_ab else (64, 32)
    config = next(
        c
        for c in CANDIDATES
        if c.tile.swap_ab == swap_ab
        and (c.tile.block_m, c.tile.block_n) == wanted
        and (c.cluster_size, c.ctas_per_sm) == (1, 1)
    )
    # 264 tiles one way, twice as many, and half empty, the other.
    m, n = (32, 64 * 264) if swap_ab else (64 * 264, 32)
    found = estimate(GemmProblem.block_scaled(m, n, 1024), config, H200, 132)
    other = estimate(GemmProblem.block_scaled(n, m, 1024), config, H200, 132)
    assert (found.waves, other.waves) == (2, 4)
