"""The judges themselves: wrong results must be caught, right ones must pass."""

from __future__ import annotations

import pytest
import torch

from deep_gemm.errors import ArgumentError
from deep_gemm.reference import block_scaled_gemm_nt
from deep_gemm.testing import numerics, poison, problems
from deep_gemm.testing.numerics import compare, reference_and_bound

BF16, FP32 = torch.bfloat16, torch.float32
INF, NAN = torch.inf, torch.nan


def judged(problem, out, *, exact=False):
    return compare(out, *reference_and_bound(*problem, out.dtype, exact_products=exact))


def run(problem, dtype=BF16):
    out = torch.empty(problem[0].shape[0], problem[2].shape[0], dtype=dtype)
    block_scaled_gemm_nt(*problem, out)
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


def two_rows_swapped(a, sfa, b, sfb):
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
    two_rows_swapped,
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
    if fault is two_rows_swapped:
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


def tensor_core_block(a, b):
    """One block [rows, 128] . [rows, 128] with 13 kept bits, truncated towards zero."""

    def unit(x):
        _, exponent = torch.frexp(x)
        return torch.where(x == 0, 2.0**-80, torch.ldexp(torch.ones_like(x), exponent - 1))

    acc = torch.zeros(a.shape[0], dtype=torch.float64)
    for k in range(0, a.shape[1], 32):
        terms = torch.cat((a[:, k : k + 32] * b[:, k : k + 32], acc[:, None]), dim=1)
        kept = unit(terms).amax(dim=1) * 2.0**-13
        total = torch.trunc(terms / kept[:, None]).sum(dim=1) * kept
        kept = unit(total) * 2.0**-13
        acc = torch.trunc(total / kept) * kept
    return acc


def draw(kind, count, rng):
    x = torch.randn(count, 128, generator=rng) * 60
    if kind == "one sign":
        x = x.abs()
    if kind == "outliers":
        x = x / 60
        x[:, ::32] *= 100
    if kind == "log normal":
        x = x / 60 * torch.exp(1.5 * torch.randn(count, 128, generator=rng))
    return x.clamp(-448, 448).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("kind", ["normal", "one sign", "outliers", "log normal"])
def test_truncating_tensor_cores_stay_within_the_bound_and_use_a_good_part_of_it(kind, rng):
    count = 20000
    a, b = draw(kind, count, rng), draw(kind, count, rng)
    wide_a, wide_b = a.double(), b.double()
    exact = (wide_a * wide_b).sum(dim=1)
    walk = (wide_a * wide_b).square().sum(dim=1).sqrt() * numerics.WALK_FACTOR
    allowed = (walk + exact.abs() * numerics.PULL_FACTOR) * numerics.TENSOR_CORE_ULP
    used = (tensor_core_block(wide_a, wide_b) - exact).abs() / allowed
    assert used.max() < 1.0
    assert used.max() > 0.15  # a bound many times too wide would judge nothing
    one = torch.ones(1, 1)
    for i in range(3):
        bound = numerics.block_scaled_bound(a[i : i + 1], one, b[i : i + 1], one, FP32)
        assert bound.item() == pytest.approx(allowed[i].item(), rel=1e-3)


def test_small_integers_are_exact_in_a_truncating_tensor_core(rng):
    a, b = (problems.small_integers(2000, 128, generator=rng).double() for _ in range(2))
    assert torch.equal(tensor_core_block(a, b), (a * b).sum(dim=1))


def test_bound_is_finite_nonnegative_and_grows_with_k(rng):
    a, sfa, b, sfb = problems.make_block_scaled(4, 8, 1024, generator=rng)
    small = numerics.block_scaled_bound(a[:, :128], sfa[:, :1], b[:, :128], sfb[:, :1], FP32)
    large = numerics.block_scaled_bound(a, sfa, b, sfb, FP32)
    assert torch.isfinite(large).all() and (small > 0).all() and (large > small).all()
    with pytest.raises(ArgumentError, match="out_dtype"):
        numerics.block_scaled_bound(a, sfa, b, sfb, torch.float16)


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
    edge = torch.finfo(BF16).max * (1 + 2.0**-9)
    reference = torch.tensor([[edge * (1 - 1e-6), edge * (1 + 1e-6)]], dtype=torch.float64)
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


@pytest.mark.parametrize("dtype", [BF16, FP32])
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
def test_scale_layouts_keep_the_values_and_poison_the_rest(layout, rng):
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
