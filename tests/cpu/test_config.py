"""Choosing a configuration: candidates, legality, cost, and the walk over tiles."""

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
    reasons,
    select,
)
from deep_gemm.config.cost_model import estimate
from deep_gemm.config.raster import raster
from deep_gemm.config.smem_plan import plan
from deep_gemm.errors import ArgumentError
from deep_gemm.kernels.gemm_sm90 import translation_unit
from deep_gemm.problem import GemmProblem

H200 = by_name("h200")
GOOD = GemmConfig(TileConfig(128, 128, 2), 2, 1, 5, StoreConfig(64, 128, 1))
extents = st.integers(1, 20000)


def test_candidates_are_legal_distinct_and_reach_the_large_tiles():
    found = candidates(H200)
    assert all(not reasons(config, H200) for config in found)
    assert len({config.name for config in found}) == len(found)
    tiles = {(c.tile.block_m, c.tile.block_n) for c in found}
    assert {(256, 128), (192, 128), (128, 112), (64, 16)} <= tiles


@pytest.mark.parametrize("config", candidates(H200), ids=lambda c: c.name)
def test_registers_and_shared_memory_fit_a_cta(config):
    producer, math = config.tile.registers
    entry = min(255, 65536 // config.tile.threads // 8 * 8)
    warpgroups = config.tile.num_math_warpgroups
    assert producer + math * warpgroups <= entry * (warpgroups + 1)
    assert config.tile.accumulators < (math or entry)
    assert plan(config).total <= H200.smem_bytes
    one_more = replace(config, num_stages=config.num_stages + 1)
    assert reasons(one_more, H200), "another stage would have fitted"


@pytest.mark.parametrize(
    "change, said",
    [
        ({"tile": TileConfig(96, 128, 1)}, "64 rows"),
        ({"tile": TileConfig(128, 100, 2)}, "multiples of 8"),
        ({"tile": TileConfig(256, 256, 2)}, "registers"),
        ({"tile": TileConfig(512, 64, 4)}, "math warpgroups"),
        ({"cluster_m": 2, "cluster_n": 2}, "cluster of 2 x 2"),
        ({"tile": TileConfig(64, 24, 1), "store": StoreConfig(8, 24, 1)}, "half of BLOCK_N"),
        ({"store": StoreConfig(128, 128, 1)}, "swizzle"),
        ({"store": StoreConfig(64, 96, 1)}, "whole boxes"),
        ({"num_stages": 1}, "1 stages"),
        ({"num_stages": 8}, "shared memory"),
    ],
)
def test_what_cannot_be_built_says_why(change, said):
    assert not reasons(GOOD, H200)
    found = reasons(replace(GOOD, **change), H200)
    assert any(said in reason for reason in found), found


@given(extents, extents, extents)
@settings(max_examples=60, deadline=None)
def test_the_choice_is_the_cheapest_candidate(m, n, k):
    problem = GemmProblem.block_scaled(m, n, k)
    chosen = select(problem, H200)
    cost = estimate(problem, chosen, H200, H200.sm_count).us
    assert (
        cost <= min(estimate(problem, c, H200, H200.sm_count).us for c in candidates(H200)) + 0.01
    )


def test_few_rows_never_get_a_tall_tile():
    # A tile taller than the problem wastes the tensor cores on rows that do not exist.
    for m in (1, 7, 33, 64):
        for n, k in ((576, 7168), (4096, 7168), (7168, 2048)):
            assert select(GemmProblem.block_scaled(m, n, k), H200).tile.block_m == 64


def test_kernels_do_not_depend_on_the_problem():
    chosen = {select(GemmProblem.block_scaled(m, 7168, 2048), H200) for m in range(1, 8193, 61)}
    assert len(chosen) <= 16
    assert len({translation_unit(config).source for config in chosen}) == len(chosen)


def test_one_sm_and_odd_budgets_get_what_fits():
    problem = GemmProblem.block_scaled(4096, 4096, 7168)
    assert select(problem, H200, 1).cluster == 1
    assert select(problem, H200, 131).cluster in (1, 2)


def test_explain_lists_all_best_first_and_marks_the_choice():
    problem = GemmProblem.block_scaled(256, 7168, 2048)
    rows = explain(problem, H200)
    assert len(rows) == len(candidates(H200))
    assert [row.estimate_us for row in rows] == sorted(row.estimate_us for row in rows)
    assert [row.chosen for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0].config == select(problem, H200)
    assert all("waves" in row.reason and "limit" in row.reason for row in rows)


def test_forced_answers_until_it_ends():
    problem = GemmProblem.block_scaled(1, 576, 7168)
    with forced(GOOD):
        assert select(problem, H200) == GOOD
    assert select(problem, H200) != GOOD


def test_unknown_device_names_the_known():
    with pytest.raises(ArgumentError, match="h100.*h200"):
        by_name("b200")


@given(extents, extents, st.integers(1, 132), st.sampled_from(candidates(H200)))
@settings(max_examples=200, deadline=None)
def test_raster_covers_the_problem(m, n, resident, config):
    walk = raster(GemmProblem.block_scaled(m, n, 512), config, resident)
    rows = config.tile.block_m * config.cluster_m
    columns = config.tile.block_n * config.cluster_n
    assert (walk.clusters_m - 1) * rows < m <= walk.clusters_m * rows
    assert (walk.clusters_n - 1) * columns < n <= walk.clusters_n * columns
    assert walk.band >= 1
