"""Rows that end between multiples of 16 bytes: what lies behind them is never part of a sum."""

from __future__ import annotations

import pytest
import torch

import deep_gemm
from deep_gemm.quant import align, align_rows
from deep_gemm.testing import poison
from deep_gemm.testing.numerics import assert_bitwise_equal

from .gpu_kit import Problem, integers, judge, normal, run

KS = (1, 7, 17, 100, 127, 129, 1000, 1001, 2047)


def in_wider_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the matrix as a view into aligned rows, with 16 NaN or more behind each."""
    return poison.pitched(x, align(x.shape[1], 16) + 16)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("m, n", [(1, 8), (7, 64), (33, 200), (333, 424)])
def test_any_k_in_aligned_rows_with_nan_behind_them(m, n, k, seed):
    for problem in (normal(m, n, k, seed), integers(m, n, k, seed)):
        a, b = in_wider_rows(problem.a), in_wider_rows(problem.b)
        padded = Problem(a, problem.sfa, b, problem.sfb, problem.exact)
        judge(padded, run(padded))


def test_aligned_rows_give_the_bits_of_wider_ones(seed):
    problem = normal(64, 136, 1001, seed)
    wide = run(
        Problem(in_wider_rows(problem.a), problem.sfa, in_wider_rows(problem.b), problem.sfb)
    )
    a, b = align_rows(problem.a), align_rows(problem.b)
    assert_bitwise_equal(deep_gemm.matmul((a, problem.sfa), (b, problem.sfb)), wide)
