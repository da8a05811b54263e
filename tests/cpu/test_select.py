"""Choosing a configuration: the cheapest that is applicable, for whole intervals of M."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config import by_name, choices, explain, forced, select, violations
from deep_gemm.config.candidates import is_applicable
from deep_gemm.config.cost_model import estimate
from deep_gemm.config.raster import cluster_counts
from deep_gemm.errors import ArgumentError, UnsupportedError
from deep_gemm.kernels import gemm_sm90
from deep_gemm.problem import GemmProblem, Grouping, GroupKind, Major

from .config_kit import BY_VARIANT, CANDIDATES, EVERY, H200, VARIANTS, config_of, sized
from .test_gemm_config import GOOD

module = importlib.import_module("deep_gemm.config.select")
interval_end = module.interval_end
each_variant = pytest.mark.parametrize("variant", VARIANTS)
extents = st.integers(1, 20000)
caps = st.integers(1, 132)
WITHIN = 1.015  # of the best, of what is chosen for an interval of M


def entry(config):
    return gemm_sm90.spec(config).name


# --- the choice ---------------------------------------------------------------------------------


@given(extents, extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_choice_is_the_cheapest_that_is_applicable_under_any_cap(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(interval_end(m), n, k, static_b)
    chosen = select(problem, H200, cap)
    assert chosen.cluster_size <= cap
    assert is_applicable(chosen, problem, cap)
    cost = estimate(problem, chosen, H200, cap).us
    usable = [c for c in CANDIDATES if is_applicable(c, problem, cap)]
    assert cost <= min(estimate(problem, c, H200, cap).us for c in usable) + 0.01


@each_variant
@given(extents, extents, extents, caps)
@settings(max_examples=12, deadline=None)
def test_every_variant_gets_the_cheapest_applicable_candidate(variant, m, n, k, cap):
    problem = sized(variant, interval_end(m), n, k)
    chosen = select(problem, H200, cap)
    assert chosen in BY_VARIANT[variant] and is_applicable(chosen, problem, cap)
    cost = estimate(problem, chosen, H200, cap).us
    rows = explain(problem, H200, cap)
    assert rows[0].config == chosen and rows[0].chosen
    assert cost <= min(row.estimate_us for row in rows) + 0.01
    assert {row.config for row in rows} == {
        c for c in BY_VARIANT[variant] if is_applicable(c, problem, cap)
    }


@each_variant
def test_variants_share_no_kernel(variant):
    problems = [sized(variant, m, n, 1024) for m in (1, 64, 300, 4096) for n in (64, 576, 7168)]
    entries = {entry(select(problem, H200)) for problem in problems}
    others = {
        entry(select(sized(other, p.m, p.n, p.k), H200))
        for other in VARIANTS
        if VARIANTS[other] != VARIANTS[variant]
        for p in problems
    }
    assert not entries & others


def test_operands_that_are_transposed_first_have_the_kernels_of_those_that_are_not():
    k_major = sized("1d2d", 300, 576, 1024)
    mn_major = sized("1d2d", 300, 576, 1024, b_major=Major.MN)
    assert mn_major.transposed == ("b",) and mn_major.variant == k_major.variant
    config = select(k_major, H200)
    assert estimate(mn_major, config, H200, 132).us > estimate(k_major, config, H200, 132).us


def test_no_cap_is_the_whole_device():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200) == select(problem, H200, 132) == select(problem, H200, 1000)


@given(st.integers(1, 64), extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_tile_with_swap_ab_holds_all_rows_of_a_and_no_more_than_it_must(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    widths = {
        c.tile.block_m for c in CANDIDATES if c.tile.swap_ab and is_applicable(c, problem, cap)
    }
    assert widths == ({next(width for width in (8, 16, 32) if m <= width)} if m <= 32 else set())
    chosen = select(problem, H200, cap)
    if chosen.tile.swap_ab:
        assert m <= chosen.tile.block_m < max(9, 2 * m)


@pytest.mark.parametrize("m, width", [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)])
def test_few_rows_of_a_get_swap_ab(m, width):
    chosen = select(GemmProblem.block_scaled(m, 4096, 7168), H200)
    assert chosen.tile.swap_ab and chosen.tile.block_m == width


def test_few_rows_never_get_a_tall_tile():
    # A tile taller than the problem wastes the tensor cores on rows that do not exist.
    for m in (1, 7, 33, 64):
        for n, k in ((576, 7168), (4096, 7168), (7168, 2048)):
            chosen = select(GemmProblem.block_scaled(m, n, k), H200)
            assert chosen.tile.block_m == 64 or chosen.tile.swap_ab
            assert chosen.tile.swap_ab == (m <= 32)


def test_narrow_outputs_get_split_k():
    # 576 columns are 9 tiles of 64: without parts of K most SMs would have none.
    for m in (1, 64, 512):
        chosen = select(GemmProblem.block_scaled(m, 576, 7168), H200)
        assert chosen.split_k > 1
    assert select(GemmProblem.block_scaled(4096, 4096, 7168), H200).split_k == 1


def test_kernels_do_not_depend_on_the_problem():
    chosen = {select(GemmProblem.block_scaled(m, 7168, 2048), H200) for m in range(1, 8193, 61)}
    assert len(chosen) <= 16
    assert all(config.compiled == (0, 0, 0) for config in chosen)
    assert len({gemm_sm90.spec(config).unit.source for config in chosen}) == len(chosen)


def test_one_sm_and_odd_budgets_get_what_fits():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200, 1).cluster_size == 1
    assert select(problem, H200, 131).cluster_size in (1, 2)
    narrow = GemmProblem.block_scaled(64, 576, 7168)
    assert select(narrow, H200, 1).cluster_size == 1 < select(narrow, H200, 131).cluster_size


@pytest.mark.parametrize(
    "m, cap, static_b", [(256, 0, False), (256, 7, False), (5, 0, False), (5, 3, True)]
)
def test_explain_lists_what_is_applicable_best_first_and_marks_the_choice(m, cap, static_b):
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


def test_unknown_device_names_the_known():
    with pytest.raises(ArgumentError, match="h100.*h200"):
        by_name("b200")


# --- intervals of M -----------------------------------------------------------------------------


def test_intervals_end_where_they_say_and_follow_one_another():
    ends = [interval_end(m) for m in range(1, 20001)]
    assert all(m <= end < m + 64 for m, end in enumerate(ends, 1))
    assert ends == sorted(ends) and {interval_end(end) for end in ends} == set(ends)
    assert ends[:16] == list(range(1, 17))
    assert {end % 8 for end in ends[16:128]} == {0} == {end % 64 for end in ends[512:]}


@given(st.integers(1, 20000), st.integers(8, 4096), st.sampled_from(EVERY))
@settings(max_examples=300, deadline=None)
def test_inside_an_interval_no_candidate_changes_its_number_of_tiles(m, n, config):
    if config.tile.swap_ab and m > config.tile.block_m:
        return  # not applicable
    ends = cluster_counts(interval_end(m), n, config), cluster_counts(m, n, config)
    assert ends[0] == ends[1]


@given(st.integers(17, 9000), st.sampled_from([576, 2112, 4096, 7168, 24576]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_choice_for_an_interval_is_near_the_best_for_every_m_of_it(m, n, static_b):
    problem = GemmProblem.block_scaled(m, n, 7168, static_b)
    chosen = select(problem, H200)
    assert chosen == select(replace(problem, m=interval_end(m)), H200)
    best = min(row.estimate_us for row in explain(problem, H200))
    assert estimate(problem, chosen, H200, 132).us <= WITHIN * best


def test_with_groups_every_m_is_chosen_for_on_its_own(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "_select", lambda problem, *rest: seen.append(problem.m))
    dense = GemmProblem.block_scaled(1000, 4096, 7168)
    select(dense, H200)
    select(replace(dense, grouping=Grouping(GroupKind.BATCHED, 4)), H200)
    assert seen == [1024, 1000]


def test_all_m_to_16384_are_priced_once_for_each_interval(monkeypatch):
    priced = []
    real = module.estimate
    monkeypatch.setattr(module, "estimate", lambda p, *rest: priced.append(p.m) or real(p, *rest))
    problem = GemmProblem.block_scaled(0, 1536, 1000)  # a shape that no other test asks for
    found = choices(problem, range(1, 16385), H200)
    assert sorted({m for ms in found.values() for m in ms}) == list(range(1, 16385))
    ends = {interval_end(m) for m in range(1, 16385)}
    assert set(priced) == ends and len(ends) < 320
    # With static_b and without, each candidate that is applicable, once.
    assert len(priced) <= 2 * len(ends) * len(CANDIDATES)
    priced.clear()
    assert choices(problem, range(1, 16385), H200) == found and not priced
    for m in (1, 17, 100, 500, 1000, 16384):
        for static_b in (False, True):
            assert m in found[select(replace(problem, m=m, static_b=static_b), H200)]


# --- forced -------------------------------------------------------------------------------------


def test_forced_answers_until_it_ends():
    problem = GemmProblem.block_scaled(1, 576, 7168)
    with forced(GOOD):
        assert select(problem, H200) == GOOD
    assert select(problem, H200) != GOOD


@each_variant
def test_forced_keeps_the_problems_variant(variant):
    problem = sized(variant, 1, 576, 7168)
    with forced(GOOD):
        found = select(problem, H200)
        # What cannot be built with the variant gets its store path and depth anew.
        built = replace(found, store=GOOD.store, num_stages=GOOD.num_stages)
        assert built == replace(GOOD, variant=VARIANTS[variant])
        assert not violations(found, H200)
        assert found == built or violations(built, H200)
        with forced(BY_VARIANT[variant][0]):
            assert select(problem, H200) == BY_VARIANT[variant][0]


def test_a_forced_configuration_that_no_variant_can_be_built_with_is_refused():
    wide = config_of(256, 128)
    with forced(wide), pytest.raises(UnsupportedError, match="several slices"):
        select(sized("1d1d", 512, 576, 7168), H200)
