"""Choosing a configuration: the cheapest candidate for an interval of M, explained and forced."""

from __future__ import annotations

import importlib
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.config import choices, explain, forced, select, violations
from deep_gemm.config.candidates import is_applicable
from deep_gemm.config.cost_model import estimate
from deep_gemm.config.raster import cluster_counts
from deep_gemm.errors import UnsupportedError
from deep_gemm.kernels.gemm_sm90 import spec
from deep_gemm.problem import GemmProblem, Grouping, GroupKind, Major

from .config_cases import GOOD, each_variant
from .config_kit import BY_VARIANT, CANDIDATES, EVERY, H200, VARIANTS, config_of, sized

module = importlib.import_module("deep_gemm.config.select")  # the package's `select` is a function
interval_end = module.interval_end
extents = st.integers(1, 20000)
caps = st.integers(1, 132)
MOST_OVER_BEST = 1.015  # of predicted times, for the choice of an interval


def at_end(problem):
    """The problem that the interval of `problem` is chosen for."""
    return replace(problem, m=interval_end(problem.m))


def applicable(problem, cap, configs=CANDIDATES):
    return [c for c in configs if is_applicable(c, problem, cap)]


# --- intervals of M -------------------------------------------------------------------------------


def test_intervals_follow_each_other():
    ends = [interval_end(m) for m in range(1, 20001)]
    assert all(m <= end < m + 64 for m, end in enumerate(ends, 1))
    assert all(end <= after for end, after in pairwise(ends))
    assert all(interval_end(end) == end for end in set(ends))
    assert ends[:16] == list(range(1, 17))
    assert {end % 8 for end in ends[16:128]} == {0} == {end % 64 for end in ends[512:]}
    assert {end - m for m, end in enumerate(ends, 1) if m > 16} == set(range(64))


@pytest.mark.parametrize("variant", ["1d2d", "1d1d", "promoted_scaled_read", "fast_fp16", "bf16"])
def test_inside_an_interval_no_candidate_changes_its_number_of_tiles(variant):
    steps = {(c.tile, c.cluster_m): c for c in BY_VARIANT[variant]}.values()
    for m in range(1, 4097):
        problem = sized(variant, m, 4096, 4096)
        end = at_end(problem)
        for config in steps:
            assert is_applicable(config, problem, 132) == is_applicable(config, end, 132)
            if is_applicable(config, problem, 132):
                found = cluster_counts(m, 4096, config)
                assert found == cluster_counts(end.m, 4096, config), (m, config.name)


@given(st.integers(1, 20000), st.integers(8, 4096), st.sampled_from(EVERY))
@settings(max_examples=300, deadline=None)
def test_inside_an_interval_no_candidate_of_any_variant_changes_its_number_of_tiles(m, n, config):
    if config.tile.swap_ab and m > config.tile.block_m:
        return  # not applicable
    assert cluster_counts(interval_end(m), n, config) == cluster_counts(m, n, config)


def test_the_choice_for_an_interval_is_predicted_close_to_the_best_of_each_m(seed):
    draw = random.Random(seed)
    for _ in range(300):
        variant, static_b = draw.choice(list(VARIANTS)), draw.random() < 0.5
        m, n = int(2 ** draw.uniform(0, 13)), 8 * int(2 ** draw.uniform(0, 11.5))
        problem = sized(variant, m, n, 16 * int(2 ** draw.uniform(2, 10)), static_b=static_b)
        chosen, best = select(problem, H200), module._select(problem, H200, 132)
        assert chosen == select(at_end(problem), H200)
        least = estimate(problem, best, H200, 132).us
        assert estimate(problem, chosen, H200, 132).us <= MOST_OVER_BEST * least, problem


def test_with_groups_every_m_is_chosen_for_on_its_own(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "_select", lambda problem, *others: seen.append(problem.m))
    dense = GemmProblem.block_scaled(1000, 4096, 7168)
    select(dense, H200)
    select(replace(dense, grouping=Grouping(GroupKind.BATCHED, 4)), H200)
    assert seen == [1024, 1000]


def test_choices_estimate_each_candidate_at_most_twice_for_each_interval(monkeypatch):
    priced = []

    def counted(problem, *others):
        priced.append(problem.m)
        return estimate(problem, *others)

    monkeypatch.setattr(module, "estimate", counted)
    problem = GemmProblem.block_scaled(0, 1536, 1000)  # a shape that no other test asks for
    ms = range(1, 16385)
    found = choices(problem, ms, H200)
    assert sorted({m for served in found.values() for m in served}) == list(ms)
    ends = {interval_end(m) for m in ms}
    assert set(priced) == ends and len(ends) < 320
    assert len(priced) <= 2 * len(ends) * len(CANDIDATES)
    priced.clear()
    assert choices(problem, ms, H200) == found and not priced
    for m in (1, 17, 100, 500, 1000, 16384):
        for static_b in (False, True):
            assert m in found[select(replace(problem, m=m, static_b=static_b), H200)]


# --- the choice -----------------------------------------------------------------------------------


@given(extents, extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_choice_is_the_cheapest_applicable_candidate_under_any_cap(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    chosen, end = select(problem, H200, cap), at_end(problem)
    assert chosen.cluster_size <= cap
    assert is_applicable(chosen, problem, cap)
    cost = estimate(end, chosen, H200, cap).us
    assert cost <= min(estimate(end, c, H200, cap).us for c in applicable(end, cap)) + 0.01


@each_variant
@given(extents, extents, extents, caps)
@settings(max_examples=12, deadline=None)
def test_every_variant_gets_the_cheapest_applicable_candidate(variant, m, n, k, cap):
    problem = sized(variant, m, n, k)
    chosen, end = select(problem, H200, cap), at_end(problem)
    assert chosen in BY_VARIANT[variant] and is_applicable(chosen, problem, cap)
    cost = estimate(end, chosen, H200, cap).us
    rows = explain(end, H200, cap)
    assert rows[0].config == chosen and rows[0].chosen
    assert cost <= min(row.estimate_us for row in rows) + 0.01
    own = explain(problem, H200, cap)
    assert own[0].config == chosen and own[0].chosen
    wanted = set(applicable(problem, cap, BY_VARIANT[variant]))
    assert {row.config for row in rows} == {row.config for row in own} == wanted


@each_variant
def test_variants_share_no_kernel(variant):
    problems = [sized(variant, m, n, 1024) for m in (1, 64, 300, 4096) for n in (64, 576, 7168)]
    entries = {spec(select(problem, H200)).name for problem in problems}
    others = {
        spec(select(sized(other, p.m, p.n, p.k), H200)).name
        for other in VARIANTS
        if VARIANTS[other] != VARIANTS[variant]
        for p in problems
    }
    assert not entries & others


def test_operands_that_are_transposed_first_have_the_kernels_of_k_major_ones():
    k_major = sized("1d2d", 300, 576, 1024)
    mn_major = sized("1d2d", 300, 576, 1024, b_major=Major.MN)
    assert mn_major.transposed == ("b",) and mn_major.variant == k_major.variant
    config = select(k_major, H200)
    cost = estimate(k_major, config, H200, 132).us
    assert estimate(mn_major, config, H200, 132).us > cost


def test_no_cap_is_the_whole_device():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200) == select(problem, H200, 132) == select(problem, H200, 1000)


@given(st.integers(1, 64), extents, extents, caps, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_tile_with_swap_ab_holds_all_rows_of_a_and_no_more_than_it_must(m, n, k, cap, static_b):
    problem = GemmProblem.block_scaled(m, n, k, static_b)
    found = {c.tile.block_m for c in applicable(problem, cap) if c.tile.swap_ab}
    assert found == ({next(block for block in (8, 16, 32) if m <= block)} if m <= 32 else set())
    chosen = select(problem, H200, cap)
    if chosen.tile.swap_ab:
        assert m <= chosen.tile.block_m < max(9, 2 * m)


@pytest.mark.parametrize("m, block_m", [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)])
def test_few_rows_of_a_lie_along_mma_n(m, block_m):
    chosen = select(GemmProblem.block_scaled(m, 4096, 7168), H200)
    assert chosen.tile.swap_ab and chosen.tile.block_m == block_m


def test_few_rows_never_get_a_tall_tile():
    # A tile taller than the problem wastes the tensor cores on rows that do not exist.
    for m in (1, 7, 33, 64):
        for n, k in ((576, 7168), (4096, 7168), (7168, 2048)):
            chosen = select(GemmProblem.block_scaled(m, n, k), H200)
            assert chosen.tile.block_m == 64 or chosen.tile.swap_ab
            assert chosen.tile.swap_ab == (m <= 32)


def test_a_small_n_splits_k():
    # N of 576 is 9 tiles of 64: without split-K most SMs would have none.
    for m in (1, 64, 512):
        chosen = select(GemmProblem.block_scaled(m, 576, 7168), H200)
        assert chosen.split_k > 1
    assert select(GemmProblem.block_scaled(4096, 4096, 7168), H200).split_k == 1


def test_kernels_do_not_depend_on_the_problem():
    chosen = {select(GemmProblem.block_scaled(m, 7168, 2048), H200) for m in range(1, 8193, 61)}
    assert len(chosen) <= 16
    assert all(config.compiled == (0, 0, 0) for config in chosen)
    assert len({spec(config).unit.source for config in chosen}) == len(chosen)


def test_one_sm_and_odd_budgets_get_what_fits():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200, 1).cluster_size == 1
    assert select(problem, H200, 131).cluster_size in (1, 2)
    small = GemmProblem.block_scaled(64, 576, 7168)
    assert select(small, H200, 1).cluster_size == 1 < select(small, H200, 131).cluster_size


@pytest.mark.parametrize(
    "m, cap, static_b", [(256, 0, False), (256, 7, False), (5, 0, False), (5, 3, True)]
)
def test_explain_lists_what_is_applicable_best_first_and_marks_the_choice(m, cap, static_b):
    problem = GemmProblem.block_scaled(m, 7168, 2048, static_b)
    rows = explain(problem, H200, cap)
    listed = [row.config for row in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(applicable(problem, cap or 132))
    assert 0 < len(listed) < len(CANDIDATES)
    # Equal ones, to a hundredth of a microsecond, go by size.
    times = [round(row.estimate_us, 2) for row in rows]
    assert times == sorted(times)
    assert [row.chosen for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0].config == select(problem, H200, cap)
    assert all("waves" in row.reason and "limit" in row.reason for row in rows)


# --- a forced configuration -----------------------------------------------------------------------


def test_forced_answers_until_it_ends():
    problem = GemmProblem.block_scaled(1, 576, 7168)
    with forced(GOOD):
        assert select(problem, H200) == GOOD
    assert select(problem, H200) != GOOD


@each_variant
def test_forced_keeps_the_variant_of_the_problem(variant):
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


def test_a_forced_configuration_that_the_variant_cannot_be_built_with_is_refused():
    two_slices = config_of(256, 128)
    with forced(two_slices), pytest.raises(UnsupportedError, match="several slices"):
        select(sized("1d1d", 512, 576, 7168), H200)
