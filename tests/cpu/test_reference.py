"""The CPU backend against exact rational arithmetic, and its behaviour at the limits."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module

import pytest
import torch

from deep_gemm import reference
from deep_gemm.problem.scale_recipe import BLOCK_128X128, ROW_1X128
from deep_gemm.reference import float64_gemm_nt
from deep_gemm.testing import problems
from deep_gemm.testing.numerics import (
    assert_bitwise_equal,
    block_scaled_request,
    compare,
    reference_and_bound,
)
from deep_gemm.testing.poison import canary

from .exact_kit import rounded

# The module; the package's `gemm` is its function.
backend = import_module("deep_gemm.reference.gemm")
RECIPES = (ROW_1X128, BLOCK_128X128)


def exact_element(a, sfa, b, sfb):
    """One accumulator by the documented arithmetic, in rational numbers."""
    acc = Fraction(0)
    for kb in range(len(sfa)):
        block = slice(128 * kb, 128 * kb + 128)
        pairs = zip(a[block].tolist(), b[block].tolist(), strict=True)
        partial = rounded(sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0)), 24)
        scale = rounded(Fraction(sfa[kb].item()) * Fraction(sfb[kb].item()), 24)
        acc = rounded(partial * scale + acc, 24)
    return acc


def run(problem, dtype=torch.bfloat16):
    a, _, b, _ = problem
    out = torch.full((a.shape[0], b.shape[0]), torch.nan, dtype=dtype)
    reference.gemm(*block_scaled_request(*problem, out))
    return out


@pytest.mark.parametrize("k", [1, 128, 130, 520])
def test_bits_equal_exact_arithmetic(k, rng):
    a, sfa, b, sfb = problem = problems.make_block_scaled(4, 131, k, generator=rng)
    fp32, bf16 = run(problem, torch.float32), run(problem)
    for row in range(4):
        for column in (0, 1, 64, 127, 128, 130):
            wanted = exact_element(a[row].float(), sfa[row], b[column].float(), sfb[column // 128])
            assert Fraction(fp32[row, column].item()) == wanted
            assert Fraction(bf16[row, column].item()) == rounded(wanted, 8)


def test_fma_is_rounded_once_where_float64_alone_would_round_twice():
    # x * y = 2**-40 (1 + 2**-23); added to an odd midpoint of float32 it decides the rounding.
    ulp = 2.0**-23
    cases = []
    for base in (1.0, 1.0 + ulp):
        for sign in (1.0, -1.0):
            # half a unit of base, and a crumb float64 cannot keep beside it
            cases.append((0.5 * ulp * (1 + 2.0**-23), sign, base * sign))
            cases.append((0.5 * ulp * (1 - 2.0**-23), sign, base * sign))
            cases.append((0.5 * ulp, sign, base * sign))
    generator = torch.Generator().manual_seed(7)
    for _ in range(300):
        x = float(torch.rand((), generator=generator).add(1).float())
        y = float(torch.rand((), generator=generator).add(1).float()) * 2.0**-24
        cases.append((x, y, float(torch.rand((), generator=generator).add(1).float())))
    x, y, acc = (torch.tensor(column, dtype=torch.float32) for column in zip(*cases, strict=True))
    wanted = [
        rounded(Fraction(p.item()) * Fraction(q.item()) + Fraction(r.item()), 24)
        for p, q, r in zip(x, y, acc, strict=True)
    ]
    backend._fma_(acc, x, y, torch.empty(len(cases), dtype=torch.float64))
    assert [Fraction(value) for value in acc.tolist()] == wanted


def test_midpoints_that_float64_rounds_onto():
    # product = 2**-24 + 2**-70 exactly: the float64 sum with 1.0 is 1 + 2**-24, a midpoint.
    x = torch.tensor([1.0 + 2.0**-23, 1.0 - 2.0**-24])
    y = torch.tensor([2.0**-24 * (1.0 - 2.0**-23), 2.0**-24 * (1.0 + 2.0**-23)])
    acc = torch.tensor([1.0 + 2.0**-23, 1.0])
    wanted = [
        rounded(Fraction(p) * Fraction(q) + Fraction(r), 24)
        for p, q, r in zip(x.tolist(), y.tolist(), acc.tolist(), strict=True)
    ]
    twice = (x.double() * y.double() + acc.double()).float().tolist()
    backend._fma_(acc, x, y, torch.empty(2, dtype=torch.float64))
    assert [Fraction(value) for value in acc.tolist()] == wanted
    assert [Fraction(value) for value in twice] != wanted


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 129, 200), (33, 72, 16), (65, 300, 640)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_results_are_within_the_bound_of_float64(m, n, k, dtype, rng):
    problem = problems.make_block_scaled(m, n, k, generator=rng)
    wanted, bound = reference_and_bound(*problem, dtype, exact_products=True)
    report = compare(run(problem, dtype), wanted, bound)
    assert report.ok, report
    product = float64_gemm_nt(*problem, RECIPES)
    torch.testing.assert_close(product, wanted, rtol=1e-12, atol=1e-6)


def test_float64_product_against_loops(rng):
    a, sfa, b, sfb = problem = problems.make_block_scaled(3, 130, 140, generator=rng)
    product = float64_gemm_nt(*problem, RECIPES)
    for row in range(3):
        for column in (0, 127, 128, 129):
            total = sum(
                float(a[row, i])
                * float(sfa[row, i // 128])
                * float(b[column, i])
                * float(sfb[column // 128, i // 128])
                for i in range(140)
            )
            assert product[row, column].item() == pytest.approx(total, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("sfa_layout", problems.SFA_LAYOUTS)
@pytest.mark.parametrize("sfb_layout", problems.SFB_LAYOUTS)
def test_layouts_do_not_change_a_bit(sfa_layout, sfb_layout, rng):
    a, sfa, b, sfb = problems.make_block_scaled(
        9, 260, 300, "cpu", rng, sfa_layout, sfb_layout, row_pad=16
    )
    contiguous = (a.contiguous(), sfa.contiguous(), b.contiguous(), sfb.contiguous())
    assert_bitwise_equal(run((a, sfa, b, sfb)), run(contiguous))


def test_chunks_and_row_counts_do_not_change_a_bit(rng, monkeypatch):
    problem = a, sfa, b, sfb = problems.make_block_scaled(40, 300, 260, generator=rng)
    whole = run(problem)
    assert_bitwise_equal(run((a[11:12], sfa[11:12], b, sfb)), whole[11:12])
    monkeypatch.setattr(backend, "CHUNK", 16)
    assert_bitwise_equal(run(problem), whole)


def test_more_rows_and_columns_than_a_chunk(rng):
    m = n = backend.CHUNK + 3
    problem = problems.make_block_scaled(m, n, 16, generator=rng)
    report = compare(run(problem), *reference_and_bound(*problem, torch.bfloat16))
    assert report.ok, report


def test_no_k_gives_zeros_and_no_rows_or_columns_give_nothing(rng):
    assert (run(problems.make_block_scaled(3, 5, 0, generator=rng)) == 0).all()
    for m, n in ((0, 8), (8, 0)):
        assert run(problems.make_block_scaled(m, n, 128, generator=rng)).shape == (m, n)


def test_output_views_keep_their_neighbours(rng):
    problem = problems.make_block_scaled(9, 40, 130, generator=rng)
    view, check = canary(9, 40, row_pad=24)
    reference.gemm(*block_scaled_request(*problem, view))
    check()
    assert_bitwise_equal(view, run(problem))
    transposed = torch.empty(40, 9, dtype=torch.bfloat16)
    reference.gemm(*block_scaled_request(*problem, transposed.T))
    assert_bitwise_equal(transposed.T, run(problem))


def test_zero_rows_and_blocks_give_exact_zeros(rng):
    a, sfa, b, sfb = problems.make_block_scaled(5, 64, 256, generator=rng)
    a[2] = 0
    out = run((a, sfa, b, sfb))
    assert (out[2] == 0).all() and (out[[0, 1, 3, 4]] != 0).any(dim=1).all()


@pytest.mark.parametrize("place", ["a", "sfa"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_in_a_row_of_a_stays_in_it(place, value, rng):
    a, sfa, b, sfb = problem = problems.make_block_scaled(6, 200, 300, generator=rng)
    clean = run(problem)
    if place == "a":
        a[3, 7] = torch.nan
    else:
        sfa[3, 1] = value
    out = run(problem)
    assert (~torch.isfinite(out[3])).all()
    others = [0, 1, 2, 4, 5]
    assert_bitwise_equal(out[others], clean[others])


def test_what_is_not_finite_in_b_stays_in_its_columns(rng):
    a, sfa, b, sfb = problem = problems.make_block_scaled(6, 260, 300, generator=rng)
    clean = run(problem)
    b[9, 299] = torch.nan
    sfb[1, 0] = torch.nan
    out = run(problem)
    hit = torch.zeros(260, dtype=torch.bool)
    hit[9], hit[128:256] = True, True
    assert out[:, hit].isnan().all()
    assert_bitwise_equal(out[:, ~hit], clean[:, ~hit])
