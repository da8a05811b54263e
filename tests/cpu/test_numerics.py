"""The judges themselves: wrong results must be caught, right ones must pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from deep_gemm import dtypes, reference
from deep_gemm.dtypes import E4M3, FP16, INT8, INT32
from deep_gemm.errors import ArgumentError
from deep_gemm.problem import CMode, GemmProblem, Major
from deep_gemm.problem.from_tensors import problem_of
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import numerics, poison, problems
from deep_gemm.testing.numerics import (
    block_scaled_request,
    compare,
    reference_and_bound,
    reference_and_bound_of,
)

BF16, FP32 = torch.bfloat16, torch.float32
FP32_ROW = dtypes.FP32
INF, NAN = torch.inf, torch.nan


def judged(problem, out, *, exact=False):
    return compare(out, *reference_and_bound(*problem, out.dtype, exact_products=exact))


def run(problem, dtype=BF16):
    out = torch.empty(problem[0].shape[0], problem[2].shape[0], dtype=dtype)
    reference.gemm(*block_scaled_request(*problem, out))
    return out


def integer_problem(m, n, k, rng):
    _, sfa, _, sfb = problems.make_block_scaled(m, n, k, generator=rng)
    a, b = (problems.small_integers(rows, k, generator=rng) for rows in (m, n))
    return a, sfa, b, sfb


# --- planted faults -------------------------------------------------------------------------


def drop_last_block(a, sfa, b, sfb):
    keep = (a.shape[1] - 1) // 128 * 128
    return a[:, :keep], sfa[:, :-1], b[:, :keep], sfb[:, :-1]


def one_scale_of_a_one_per_cent_off(a, sfa, b, sfb):
    sfa = sfa.clone()
    sfa[5, 1] *= 1.01
    return a, sfa, b, sfb


def one_scale_of_b_one_per_cent_off(a, sfa, b, sfb):
    sfb = sfb.clone()
    sfb[0, 0] *= 0.99
    return a, sfa, b, sfb


def neighbouring_scale_block(a, sfa, b, sfb):
    return a, sfa.roll(1, dims=1), b, sfb


def neighbouring_scale_row(a, sfa, b, sfb):
    return a, sfa.roll(1, dims=0), b, sfb


def two_rows_exchanged(a, sfa, b, sfb):
    order = list(range(a.shape[0]))
    order[3], order[4] = 4, 3
    return a.view(torch.uint8)[order].view(a.dtype), sfa[order], b, sfb


def one_instruction_dropped(a, sfa, b, sfb):
    a = a.clone()
    a.view(torch.uint8)[:, 32:64] = 0
    return a, sfa, b, sfb


FAULTS = [
    drop_last_block,
    one_scale_of_a_one_per_cent_off,
    one_scale_of_b_one_per_cent_off,
    neighbouring_scale_block,
    neighbouring_scale_row,
    two_rows_exchanged,
    one_instruction_dropped,
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("k", [192, 260, 384])
def test_faults_on_normal_data_are_caught(fault, k, rng):
    problem = problems.make_block_scaled(16, 1024, k, generator=rng)
    assert judged(problem, run(problem)).ok
    report = judged(problem, run(fault(*problem)))
    assert not report.ok and report.over_bound, report
    if fault is one_scale_of_a_one_per_cent_off:
        assert report.rows == (5, 5)
    if fault is two_rows_exchanged:
        assert report.rows == (3, 4)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("k", [576, 7168])
def test_faults_on_small_integers_are_caught_at_any_k(fault, k, rng):
    problem = integer_problem(16, 256, k, rng)
    assert judged(problem, run(problem), exact=True).ok
    report = judged(problem, run(fault(*problem)), exact=True)
    assert not report.ok and report.over_bound, report


@pytest.mark.parametrize("k", [16, 576, 7168])
def test_a_single_wrong_element_is_named(k, rng):
    problem = problems.make_block_scaled(8, 64, k, generator=rng)
    out = run(problem)
    out[6, 17] += 0.2 * out.float().std()
    report = judged(problem, out)
    assert report.over_bound == 1 and report.worst == (6, 17)
    assert report.rows == (6, 6) and report.columns == (17, 17)
    assert "(6, 17)" in str(report) and not report


@pytest.mark.parametrize("k", [128, 1152, 7168])
def test_output_rounded_towards_zero_is_caught_on_small_integers(k, rng):
    problem = integer_problem(16, 256, k, rng)
    exact = run(problem, FP32)
    truncated = (exact.view(torch.int32) & -0x10000).view(FP32).to(BF16)
    assert not judged(problem, truncated, exact=True).ok


# --- the bound ------------------------------------------------------------------------------


def tensor_core_sum(a, b, depth=32, bits=13):
    """Sums [rows, k] . [rows, k] with so many kept bits, truncated towards zero."""

    def unit(x):
        _, exponent = torch.frexp(x)
        return torch.where(x == 0, 2.0**-80, torch.ldexp(torch.ones_like(x), exponent - 1))

    acc = torch.zeros(a.shape[0], dtype=torch.float64)
    for k in range(0, a.shape[1], depth):
        terms = torch.cat((a[:, k : k + depth] * b[:, k : k + depth], acc[:, None]), dim=1)
        kept = unit(terms).amax(dim=1) * 2.0**-bits
        total = torch.trunc(terms / kept[:, None]).sum(dim=1) * kept
        kept = unit(total) * 2.0**-bits
        acc = torch.trunc(total / kept) * kept
    return acc


def draw(kind, count, rng, k=128, dtype=E4M3.torch):
    x = torch.randn(count, k, generator=rng) * 60
    if kind == "one sign":
        x = x.abs()
    if kind == "outliers":
        x = x / 60
        x[:, ::32] *= 100
    if kind == "log normal":
        x = x / 60 * torch.exp(1.5 * torch.randn(count, k, generator=rng))
    return x.clamp(-448, 448).to(dtype)


@pytest.mark.parametrize("kind", ["normal", "one sign", "outliers", "log normal"])
def test_truncating_tensor_cores_stay_within_the_bound_and_use_a_good_part_of_it(kind, rng):
    count = 20000
    a, b = draw(kind, count, rng), draw(kind, count, rng)
    wide_a, wide_b = a.double(), b.double()
    exact = (wide_a * wide_b).sum(dim=1)
    lost = (wide_a * wide_b).square().sum(dim=1).sqrt() * numerics.RANDOM_WALK_FACTOR
    allowed = (lost + exact.abs() * numerics.PULL_FACTOR) * numerics.TENSOR_CORE_ULP
    used = (tensor_core_sum(wide_a, wide_b) - exact).abs() / allowed
    assert used.max() < 1.0
    assert used.max() > 0.15  # a bound many times too wide would judge nothing
    one = torch.ones(1, 1)
    for i in range(3):
        bound = numerics.block_scaled_bound(a[i : i + 1], one, b[i : i + 1], one, FP32)
        assert bound.item() == pytest.approx(allowed[i].item(), rel=1e-3)


CORES = {
    torch.float8_e4m3fn: (32, 13),
    torch.float8_e5m2: (32, 13),
    BF16: (16, 23),
    FP16.torch: (16, 23),
}


@pytest.mark.parametrize("kind", ["normal", "one sign", "outliers", "log normal"])
@pytest.mark.parametrize("dtype", CORES, ids=str)
@pytest.mark.parametrize("k", [16, 100, 2064])
def test_sums_that_stay_in_the_tensor_core_are_within_their_bound(k, dtype, kind, rng):
    count = 40
    a, b = draw(kind, count, rng, k, dtype), draw(kind, count, rng, k, dtype)
    pairs = [
        x.double().repeat_interleave(count, 0) if x is a else x.double().repeat(count, 1)
        for x in (a, b)
    ]
    got = tensor_core_sum(*pairs, *CORES[dtype]).reshape(count, count)
    row = dtypes.from_torch(dtype)
    problem = GemmProblem(count, count, k, row, row, FP32_ROW, None, None, promoted=False)
    wanted, bound = reference_and_bound_of(problem, Tensors(a, None, b, None, None, got))
    used = (got - wanted).abs() / (bound - wanted.abs() * 2.0**-24)
    assert used.max() < 1.0
    # A bound many times too wide would judge nothing.
    assert used.max() > (0.01 if k == 16 else 0.04)


def test_exact_operands_are_exact_in_a_truncating_tensor_core_over_all_of_k(rng):
    for dtype in CORES:
        row = dtypes.from_torch(dtype)
        problem = GemmProblem(40, 40, 4096, row, row, FP32_ROW, None, None, promoted=False)
        t = problems.make(problem, generator=rng, exact=True).tensors
        a, b = t.a.double(), t.b.double()
        assert torch.equal(tensor_core_sum(a, b, *CORES[dtype]), (a * b).sum(dim=1))


def test_small_integers_are_exact_in_a_truncating_tensor_core(rng):
    a, b = (problems.small_integers(2000, 128, generator=rng).double() for _ in range(2))
    assert torch.equal(tensor_core_sum(a, b), (a * b).sum(dim=1))


def test_bound_is_finite_nonnegative_and_grows_with_k(rng):
    a, sfa, b, sfb = problems.make_block_scaled(4, 8, 1024, generator=rng)
    small = numerics.block_scaled_bound(a[:, :128], sfa[:, :1], b[:, :128], sfb[:, :1], FP32)
    large = numerics.block_scaled_bound(a, sfa, b, sfb, FP32)
    assert torch.isfinite(large).all() and (small > 0).all() and (large > small).all()
    with pytest.raises(ArgumentError, match="out_dtype"):
        numerics.block_scaled_bound(a, sfa, b, sfb, torch.int32)


def fp8(d=FP32_ROW, scales=(PER_CHANNEL, PER_CHANNEL), **rest):
    return GemmProblem(33, 136, 300, E4M3, E4M3, d, *scales, **rest)


def scaled_by(name, factor):
    def edit(t, alpha, beta):
        x = getattr(t, name).clone()
        x[3] *= factor
        return t._replace(**{name: x}), alpha, beta

    return edit


def rolled(name):
    return lambda t, alpha, beta: (t._replace(**{name: getattr(t, name).roll(1, 0)}), alpha, beta)


VARIANT_FAULTS = {
    "scale of a row": scaled_by("sfa", 1.5),
    "scale of a column": scaled_by("sfb", 1.5),
    "rows' scales rolled": rolled("sfa"),
    "columns' scales rolled": rolled("sfb"),
    "rows of C rolled": rolled("c"),
    "C left out": lambda t, alpha, beta: (t._replace(c=None), alpha, beta),
    "C twice": lambda t, alpha, beta: (t, alpha, 2 * beta),
    "alpha left out": lambda t, alpha, beta: (t, 1.0, beta),
    "alpha on C": lambda t, alpha, beta: (t, alpha, beta * alpha),
    "32 of K left out": lambda t, alpha, beta: (t._replace(a=without(t.a, 32)), alpha, beta),
    "16 of K left out": lambda t, alpha, beta: (t._replace(a=without(t.a, 16)), alpha, beta),
}


def without(a, count):
    """Zero some columns, in any element type."""
    a = a.clone()
    a.view(torch.uint8)[:, : count * a.element_size()] = 0
    return a


VARIANTS = {
    "1d1d": fp8(scales=(ROW_1X128, ROW_1X128)),
    "promoted": fp8(),
    "promoted into bf16": fp8(dtypes.BF16),
    "fast": fp8(promoted=False),
    "bf16": GemmProblem(33, 136, 300, dtypes.BF16, dtypes.BF16, dtypes.BF16, None, None),
    "fp16": GemmProblem(33, 136, 300, FP16, FP16, FP16, None, None),
    "int8": GemmProblem(33, 136, 300, INT8, INT8, FP32_ROW, PER_CHANNEL, PER_CHANNEL),
}


@pytest.mark.parametrize("fault", VARIANT_FAULTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_faults_of_every_variant_are_caught(variant, fault, rng):
    problem = replace(VARIANTS[variant], c_mode=CMode.READ)
    drawn = problems.make(problem, generator=rng)
    t, factors = drawn.tensors, (-1.5, 0.5)
    if "scale" in fault and t.sfa is None:
        return
    judged = reference_and_bound_of(problem, t, *factors)
    reference.gemm(problem, t, *factors)
    assert compare(t.d, *judged).ok
    wrong, *factors = VARIANT_FAULTS[fault](t, *factors)
    if wrong.c is None:
        problem = replace(problem, c_mode=CMode.NONE)
    reference.gemm(problem, wrong, *factors)
    report = compare(t.d, *judged)
    assert not report.ok and report.over_bound, report


def test_epilogue_roundings_are_within_the_bound_and_use_a_good_part_of_it(rng):
    worst = 0.0
    for scales in ((PER_CHANNEL, PER_CHANNEL), (PER_TENSOR, None), (None, None)):
        problem = GemmProblem(65, 136, 256, INT8, INT8, FP32_ROW, *scales, c_mode=CMode.READ)
        for alpha, beta in ((1.0, 1.0), (0.3, 1.0), (0.3, -0.7), (1.0, 0.7)):
            t = problems.make(problem, generator=rng).tensors
            judged = reference_and_bound_of(problem, t, alpha, beta)
            reference.gemm(problem, t, alpha, beta)
            report = compare(t.d, *judged)
            assert report.ok, report
            worst = max(worst, report.max_ratio)
    assert worst > 0.4


def test_int32_results_are_right_or_wrong_with_nothing_between(rng):
    problem = GemmProblem(9, 40, 300, INT8, INT8, INT32, None, None, c_mode=CMode.READ)
    t = problems.make(problem, generator=rng).tensors
    wanted, bound = reference_and_bound_of(problem, t)
    assert (bound == 0).all()
    assert torch.equal(wanted.long(), t.a.long() @ t.b.long().T + t.c)
    reference.gemm(problem, t)
    assert compare(t.d, wanted, bound).ok
    t.d[4, 5] += 1
    report = compare(t.d, wanted, bound)
    assert report.over_bound == 1 and report.worst == (4, 5)
    problems.poison.nan_fill_(t.d)
    assert compare(t.d, wanted, bound).over_bound == 9 * 40


def test_fp16_results_overflow_and_underflow_where_they_must(rng):
    problem = GemmProblem(4, 8, 16, FP16, FP16, FP16, None, None)
    a, b = torch.zeros(4, 16).half(), torch.zeros(8, 16).half()
    a[:, 0] = torch.tensor([1.0, 300.0, 2.0**-13, 2.0**-20])
    b[:, 0] = torch.tensor([1.0, 218.0, 219.0, -300.0, 2.0**-12, 1.5 * 2.0**-12, 2.0**-14, 0.0])
    t = Tensors(a, None, b, None, None, torch.empty(4, 8, dtype=torch.float16))
    judged = reference_and_bound_of(problem, t)
    reference.gemm(problem, t)
    assert compare(t.d, *judged).ok
    assert t.d[1, 1] == 65408 and t.d[1, 2] == INF and t.d[1, 3] == -INF
    assert t.d[2, 5] == 2.0**-24 and t.d[2, 4] == 0  # 2**-25 goes to even
    clamped = t.d.clamp(-65504, 65504)
    assert compare(clamped, *judged).inf_mismatches == 2
    flushed = torch.where(t.d.abs() < 2.0**-14, torch.zeros_like(t.d), t.d)
    assert not compare(flushed, *judged).ok


def test_zero_rows_must_be_exactly_zero(rng):
    problem = problems.make_block_scaled(3, 8, 256, generator=rng)
    problem[0].view(torch.uint8)[1] = 0
    out = run(problem)
    assert judged(problem, out).ok
    out[1, 3] = 1e-30
    assert judged(problem, out).worst == (1, 3)


# --- NaN and infinity -----------------------------------------------------------------------


def test_nan_in_its_place_is_right_and_displaced_is_caught(rng):
    problem = problems.make_block_scaled(6, 40, 300, generator=rng)
    problem[0][3, 100] = NAN
    out = run(problem)
    assert out[3].isnan().all() and judged(problem, out).ok
    lost = out.clone()
    lost[3, 7] = 0
    report = judged(problem, lost)
    assert report.nan_mismatches == 1 and report.worst == (3, 7) and report.rows == (3, 3)
    moved = out[[0, 1, 3, 2, 4, 5]]
    report = judged(problem, moved)
    assert report.nan_mismatches == 80 and report.rows == (2, 3) and "80 NaN" in str(report)
    gained = out.clone()
    gained[0, 39] = NAN
    assert judged(problem, gained).worst == (0, 39)


def test_infinities_must_agree_in_place_and_sign():
    reference = torch.tensor([[1e39, -1e39, 1.0, INF, 2.0]], dtype=torch.float64)
    bound = reference.abs() * 1e-3
    assert compare(torch.tensor([[INF, -INF, 1.0, INF, 2.0]], dtype=BF16), reference, bound).ok
    for values in ([INF, INF, 1, INF, 2], [INF, -INF, INF, INF, 2], [INF, -INF, 1, 3e38, 2]):
        report = compare(torch.tensor([values], dtype=BF16), reference, bound)
        assert report.inf_mismatches == 1 and not report.nan_mismatches, values


def test_either_side_of_the_largest_value_is_right_within_the_bound():
    limit = torch.finfo(BF16).max * (1 + 2.0**-9)
    reference = torch.tensor([[limit * (1 - 1e-6), limit * (1 + 1e-6)]], dtype=torch.float64)
    bound = reference * 2.0**-9 * 1.1
    for values in ([INF, INF], [torch.finfo(BF16).max] * 2):
        assert compare(torch.tensor([values], dtype=BF16), reference, bound).ok
    assert not compare(torch.tensor([[INF, -INF]], dtype=BF16), reference, bound).ok


def test_a_nan_bound_of_a_finite_element_is_not_a_pass():
    x = torch.ones(1, 2, dtype=torch.float64)
    report = compare(x.float(), x, torch.tensor([[1.0, NAN]], dtype=torch.float64))
    assert report.over_bound == 1 and report.worst == (0, 1)


def test_worst_is_the_largest_error_over_bound_and_all_are_counted():
    reference = torch.zeros(3, 4, dtype=torch.float64)
    actual = torch.zeros(3, 4)
    actual[0, 1], actual[2, 3] = 2.0, 50.0
    report = compare(actual, reference, torch.ones_like(reference))
    assert report.over_bound == 2 and report.worst == (2, 3) and report.max_ratio == 50
    assert report.rows == (0, 2) and report.columns == (1, 3)
    assert (report.actual, report.expected, report.allowed) == (50.0, 0.0, 1.0)


def test_compare_refuses_shapes_that_differ_and_takes_empty_ones():
    with pytest.raises(ArgumentError, match="reference64"):
        compare(torch.zeros(2, 3), torch.zeros(3, 2).double(), torch.zeros(2, 3).double())
    empty = torch.zeros(0, 3)
    assert compare(empty, empty.double(), empty.double()).ok


def test_calc_diff():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert numerics.calc_diff(x, x) == 0 and numerics.calc_diff(x * 0, x * 0) == 0
    assert numerics.calc_diff(x, -x) == pytest.approx(2.0)
    assert numerics.calc_diff(x, 2 * x) == pytest.approx(1 - 4 / 5)


def test_bitwise_equality_sees_signs_of_zero_and_nan_payloads():
    x = torch.tensor([[0.0, NAN, 1.0]], dtype=BF16)
    numerics.assert_bitwise_equal(x, x.clone())
    for column, value in ((0, -0.0), (2, 1.0078125)):
        y = x.clone()
        y[0, column] = value
        with pytest.raises(
            AssertionError, match=rf"outputs: 1 of 3 differ, first at \(0, {column}\)"
        ):
            numerics.assert_bitwise_equal(x, y, "outputs")
    payload = x.clone()
    payload.view(torch.int16)[0, 1] += 1
    with pytest.raises(AssertionError):
        numerics.assert_bitwise_equal(x, payload)
    with pytest.raises(AssertionError, match="shapes"):
        numerics.assert_bitwise_equal(x, x.float())


# --- poison and problems --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, FP32, torch.float16])
@pytest.mark.parametrize("row_pad", [0, 8])
def test_canaries_notice_every_write_outside(dtype, row_pad):
    view, check = poison.canary(5, 16, dtype, row_pad=row_pad)
    assert view.shape == (5, 16) and view.stride() == (16 + row_pad, 1) and view.isnan().all()
    view.zero_()
    check()
    pitch = 16 + row_pad
    offsets = [-1, -poison.GUARD_ROWS * pitch, 5 * pitch, 7 * pitch - 1]
    offsets += [4 * pitch + 16] if row_pad else []
    for offset in offsets:
        view, check = poison.canary(5, 16, dtype, row_pad=row_pad)
        everything = view.as_strided((9 * pitch,), (1,), 0)
        everything[poison.GUARD_ROWS * pitch + offset] = NAN
        with pytest.raises(AssertionError, match="1 elements outside"):
            check()


def test_canaries_around_an_empty_output():
    view, check = poison.canary(0, 8)
    assert view.numel() == 0
    check()


PADDED_SFA = ("mn_major_aligned", "strided_view", "sliced_row_major", "sliced_mn_major")


@pytest.mark.parametrize("layout", problems.SFA_LAYOUTS)
def test_scale_layouts_keep_the_values_and_poison_what_lies_between(layout, rng):
    sf = torch.rand(7, 5, generator=rng)
    laid = problems.lay_out_sfa(sf, layout)
    if layout.startswith("expanded"):
        wanted = sf[:, :1].expand(7, 5) if layout == "expanded" else sf[:1].expand(7, 5)
    else:
        wanted = sf
    assert torch.equal(laid, wanted)
    storage = torch.empty(0).set_(laid.untyped_storage())
    assert bool(storage.isnan().any()) == (layout in PADDED_SFA)


def test_scale_layouts_have_the_strides_their_names_say():
    sf = torch.rand(7, 5)
    strides = {name: problems.lay_out_sfa(sf, name).stride() for name in problems.SFA_LAYOUTS}
    assert strides == {
        "row_major": (5, 1),
        "mn_major_aligned": (1, 8),
        "mn_major_unaligned": (1, 7),
        "strided_view": (10, 2),
        "expanded": (1, 0),
        "expanded_rows": (0, 1),
        "sliced_row_major": (8, 1),
        "sliced_mn_major": (1, 12),
    }
    strides = {name: problems.lay_out_sfb(sf, name).stride() for name in problems.SFB_LAYOUTS}
    assert strides == {"contiguous": (5, 1), "transposed": (1, 7), "sliced": (8, 1)}
    with pytest.raises(ArgumentError, match="sfa_layout"):
        problems.lay_out_sfa(sf, "diagonal")


def test_problems_are_fresh_padded_and_within_the_format(rng):
    a, sfa, b, sfb = problems.make_block_scaled(9, 200, 130, generator=rng, row_pad=16)
    assert a.shape == (9, 130) and b.shape == (200, 130) and a.stride() == (146, 1)
    assert sfa.shape == (9, 2) and sfb.shape == (2, 2)
    whole = a.as_strided((9, 146), (146, 1)).float()
    assert whole[:, 130:].isnan().all() and torch.isfinite(whole[:, :130]).all()
    assert whole[:, :130].abs().max() <= 448 and 40 < whole[:, :130].std() < 80
    assert (sfa >= 0.5).all() and (sfa < 1.5).all()
    again, *_ = problems.make_block_scaled(9, 200, 130, generator=rng)
    assert not torch.equal(again.float(), a.float())
    spread = problems.random_scales((200, 50), generator=rng, spread="log")
    assert spread.max() / spread.min() > 1e5
    with pytest.raises(ArgumentError, match="spread"):
        problems.random_scales((2, 2), spread="cauchy")
    with pytest.raises(ArgumentError, match="sfb_layout"):
        problems.make_block_scaled(2, 2, 2, sfb_layout="diagonal")


def test_poison_of_integers_is_no_likely_result():
    view, check = poison.canary(3, 8, torch.int32)
    assert (view == 0x7F7F7F7F).all()
    view.zero_()
    check()
    assert (poison.nan_fill_(torch.zeros(3, dtype=torch.int8)) == 127).all()


@pytest.mark.parametrize("a_major", list(Major), ids=str)
@pytest.mark.parametrize("b_major", list(Major), ids=str)
@pytest.mark.parametrize("row_pad", [0, 16])
@pytest.mark.parametrize(
    "dtype", [E4M3, dtypes.E5M2, INT8, dtypes.BF16, FP16], ids=lambda d: d.name
)
def test_drawn_tensors_fit_their_problem_and_are_among_poison(
    dtype, row_pad, a_major, b_major, rng
):
    scales = (PER_CHANNEL, PER_TENSOR) if dtype.bytes == 1 else (None, None)
    majors = {"a_major": a_major, "b_major": b_major}
    problem = GemmProblem(5, 24, 200, dtype, dtype, FP16, *scales, c_mode=CMode.READ, **majors)
    drawn = problems.make(problem, generator=rng, row_pad=row_pad)
    t = drawn.tensors
    assert problem_of(t, Options(), 1.0, 0.5) == problem
    for x, major in ((t.a, a_major), (t.b, b_major)):
        lines = x if major is Major.K else x.t()
        pitch = lines.stride(0)
        assert pitch * x.element_size() % 16 == 0 and pitch >= lines.shape[1] + row_pad
        behind = lines.as_strided((len(lines), pitch), (pitch, 1))[:, lines.shape[1] :].float()
        assert (behind == 127).all() if dtype == INT8 else behind.isnan().all()
        assert lines.float().isfinite().all()
    assert t.d.isnan().all() and t.d.stride() == t.c.stride() == (32, 1)
    t.d.zero_()
    drawn.check()
    t.d.as_strided((5, 32), (32, 1))[0, 24] = 0
    with pytest.raises(AssertionError, match=r"outside.*first at \(0, 24\)"):
        drawn.check()


def test_drawn_values_cover_their_formats(rng):
    def drawn(dtype, d, **rest):
        problem = GemmProblem(64, 64, 512, dtype, dtype, d, None, None)
        return problems.make(problem, generator=rng, **rest).tensors.a.float()

    whole = drawn(INT8, INT32)
    assert whole.min() == -128 and whole.max() == 127
    assert drawn(INT8, INT32, exact=True).max() == 127
    assert drawn(INT8, FP16).abs().max() == 8
    assert 50 < drawn(E4M3, FP32_ROW).std() < 70 and drawn(E4M3, FP16).std() < 4.5
    assert 0.9 < drawn(FP16, FP16).std() < 1.1
    assert drawn(E4M3, FP32_ROW, exact=True).abs().max() == 4
    exact = problems.make(fp8(scales=(ROW_1X128, ROW_1X128)), generator=rng, exact=True).tensors
    assert set(exact.sfa.flatten().tolist()) == {0.5, 1.0, 2.0}


def test_c_in_place_is_d(rng):
    problem = replace(fp8(), c_mode=CMode.REDUCE)
    drawn = problems.make(problem, generator=rng)
    assert drawn.tensors.c is drawn.tensors.d and drawn.tensors.d.isfinite().all()
    drawn.check()
    assert problem_of(drawn.tensors, Options(), 1.0, 1.0) == problem


def test_scales_that_are_vectors_may_have_one_dimension(rng):
    for layout, shapes, stride in (("flat", ((33,), ()), 1), ("flat_strided", ((33,), (1,)), 2)):
        problem = fp8(scales=(PER_CHANNEL, PER_TENSOR))
        t = problems.make(problem, generator=rng, scale_layouts=(layout, layout)).tensors
        assert (t.sfa.shape, t.sfb.shape) == shapes and t.sfa.stride() == (stride,)
