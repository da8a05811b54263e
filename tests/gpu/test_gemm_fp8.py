"""fp8_gemm_nt on the GPU: the shape grid, layouts, and memory that must not be touched."""

from __future__ import annotations

import zlib
from functools import lru_cache

import pytest
import torch

import deep_gemm
from deep_gemm import config
from deep_gemm.problem import GemmProblem
from deep_gemm.testing import poison, problems
from deep_gemm.testing.numerics import assert_bitwise_equal, compare, reference_and_bound

from .gpu_kit import (
    BASIC,
    BF16,
    FORCED,
    SPLIT_K,
    SWAP_AB,
    SWAP_AB_SPLIT_K,
    WAYS,
    Problem,
    Way,
    call,
    check_chain,
    forcing,
    generator,
    integers,
    judge,
    label,
    load_all,
    normal,
    run,
)

MS = (0, 1, 2, 7, 9, 31, 33, 63, 64, 65, 127, 129, 1000, 1638, 4096)
NS = (8, 16, 72, 192, 576, 2112, 4096, 7168)
KS = (16, 64, 128, 192, 576, 1152, 2112, 7168)
RAGGED = ((1, 8, 16), (7, 72, 208), (33, 192, 16), (129, 200, 592), (300, 2112, 1168))
ragged = pytest.mark.parametrize("m, n, k", RAGGED)
# With swap-AB and with split-K scales and results take other ways.
CONFIGS = (None, SWAP_AB, SWAP_AB_SPLIT_K, SPLIT_K)
every_config = pytest.mark.parametrize("forced", CONFIGS, ids=label)


# --- the grid -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid_kernels():
    device = config.from_index(torch.cuda.current_device())
    shapes = [(m, n, k) for m in MS if m for n in NS for k in KS]
    asked = [GemmProblem.block_scaled(*s, static) for static in (False, True) for s in shapes]
    load_all([*FORCED, *(config.select(problem, device) for problem in asked)])


@lru_cache(maxsize=1)
def grid_data(n, k, run_seed):
    """Problems with the most rows, their references and bounds: the grid slices rows of them."""
    seed = zlib.crc32(f"{run_seed} {n} {k}".encode())
    sets = []
    for problem in (normal(max(MS), n, k, seed), integers(max(MS), n, k, seed + 1)):
        if problem.exact:
            sfa = problems.lay_out_sfa(problem.sfa, "mn_major_aligned")
            problem = Problem(problem.a, sfa, problem.b, problem.sfb, True)
        judged = reference_and_bound(*problem.tensors, BF16, exact_products=problem.exact)
        sets.append((problem, *judged))
    return sets


# From the bottom up: N and K vary slowest, so that grid_data() is drawn once for all that use it.
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("m", MS)
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("n", NS)
def test_grid(n, k, m, way, run_seed, seed, grid_kernels):
    first = seed % (max(MS) - m + 1)
    rows = slice(first, first + m)
    for problem, reference, bound in grid_data(n, k, run_seed):
        a, sfa = problem.a[rows], problem.sfa[rows]
        out = way.run(Problem(a, sfa, problem.b, problem.sfb))
        report = compare(out, reference[rows], bound[rows])
        assert report.ok, f"rows from {first}, exact {problem.exact}: {report}"


# --- layouts and strides --------------------------------------------------------------------


@pytest.mark.parametrize("sfb_layout", problems.SFB_LAYOUTS)
@pytest.mark.parametrize("sfa_layout", problems.SFA_LAYOUTS)
@ragged
@every_config
def test_every_scale_layout_with_nan_in_every_padding(
    forced, m, n, k, sfa_layout, sfb_layout, seed
):
    problem = normal(m, n, k, seed, sfa_layout=sfa_layout, sfb_layout=sfb_layout, row_pad=16)
    contiguous = (x.clone(memory_format=torch.contiguous_format) for x in problem.tensors)
    copies = Problem(*contiguous)
    with forcing(forced):
        out = run(problem)
        judge(problem, out)
        assert_bitwise_equal(run(copies), out, f"{sfa_layout}, {sfb_layout} and contiguous")


@pytest.mark.parametrize("row_pad", [0, 8, 24, 128])
@ragged
def test_output_row_pitch(m, n, k, row_pad, seed):
    problem = integers(m, n, k, seed)
    judge(problem, run(problem, row_pad))


@ragged
def test_small_integers_give_the_bits_of_the_reference(m, n, k, seed):
    problem = integers(m, n, k, seed)
    judge(problem, run(problem))


@pytest.mark.parametrize("k", [16384, 147456])
@every_config
def test_long_k_of_small_integers(forced, k, seed):
    problem = integers(65, 72, k, seed)
    with forcing(forced):
        judge(problem, run(problem))


def test_scales_over_twenty_powers_of_two(seed):
    m, n, k = 129, 200, 592
    problem = normal(m, n, k, seed)
    rng = generator(seed + 1)
    sfa = problems.random_scales((m, 5), "cuda", rng, "log")
    sfb = problems.random_scales((2, 5), "cuda", rng, "log")
    problem = Problem(problem.a, sfa, problem.b, sfb)
    judge(problem, run(problem))


def test_operands_inside_larger_tensors(seed):
    big = normal(200, 400, 1024, seed)
    a, b = big.a[3:136, 128:720], big.b[5:205, 256:848]
    rng = generator(seed + 1)
    sfa = problems.random_scales((133, 5), "cuda", rng)
    sfb = problems.random_scales((2, 5), "cuda", rng)
    problem = Problem(a, sfa, b, sfb)
    judge(problem, run(problem))


@pytest.mark.parametrize("pair", [tuple, list])
def test_matmul_and_first_version_name_give_the_same_bits(pair, seed):
    problem = normal(33, 72, 208, seed)
    out = run(problem)
    a, b = pair((problem.a, problem.sfa)), pair((problem.b, problem.sfb))
    assert_bitwise_equal(deep_gemm.matmul(a, b), out)
    old = torch.empty_like(out)
    deep_gemm.gemm_fp8_fp8_bf16_nt(a, b, old)
    assert_bitwise_equal(old, out)


# --- empty, zero, not finite ----------------------------------------------------------------


@pytest.mark.parametrize("m, n", [(1, 8), (129, 200)])
def test_no_k_gives_zeros(m, n, seed):
    assert (run(normal(m, n, 0, seed)) == 0).all()


@pytest.mark.parametrize("m, n", [(0, 8), (8, 0), (0, 0)])
def test_no_rows_or_no_columns_do_nothing(m, n, seed):
    assert run(normal(m, n, 128, seed)).shape == (m, n)


def test_zero_rows_give_exact_zeros(seed):
    problem = normal(129, 200, 592, seed)
    problem.a.view(torch.uint8)[[0, 64, 128]] = 0
    out = run(problem)
    assert (out[[0, 64, 128]] == 0).all()
    judge(problem, out)


@pytest.mark.parametrize("what", ["a", "sfa_nan", "sfa_inf"])
@ragged
@every_config
def test_what_is_not_finite_in_rows_of_a_stays_in_them(forced, m, n, k, what, seed):
    problem, way = normal(m, n, k, seed), Way(forced)
    clean = way.run(problem)
    hit = torch.zeros(m, dtype=torch.bool, device="cuda")
    hit[:: max(1, m // 3)] = True
    if what == "a":
        problem.a.view(torch.uint8)[hit] = 0x7F
    else:
        problem.sfa[hit, -1] = torch.nan if what == "sfa_nan" else torch.inf
    out = way.run(problem)
    assert not torch.isfinite(out[hit]).any()
    assert_bitwise_equal(out[~hit], clean[~hit], "rows beside those that are not finite")


@ragged
@every_config
def test_nan_in_b_stays_in_its_columns(forced, m, n, k, seed):
    problem, way = normal(m, n, k, seed), Way(forced)
    clean = way.run(problem)
    hit = torch.zeros(n, dtype=torch.bool, device="cuda")
    hit[n // 2] = True
    poison.nan_fill_(problem.b[n // 2])
    if n > 128:
        problem.sfb[1, 0] = torch.nan
        hit[128:256] = True
    out = way.run(problem)
    assert out[:, hit].isnan().all()
    assert_bitwise_equal(out[:, ~hit], clean[:, ~hit], "columns beside those with NaN")


# --- the same bits --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("m, n, k", [*RAGGED, (1638, 4096, 7168)])
def test_twenty_repeats_give_the_same_bits(m, n, k, way, seed):
    problem = normal(m, n, k, seed)
    first = way.run(problem)
    out = torch.empty_like(first)
    with forcing(way.config):
        for repeat in range(20):
            poison.nan_fill_(out)
            call(problem, out, way.static_b)
            assert_bitwise_equal(out, first, f"repeat {repeat}")


# The configuration may change with M and the SMs there are; under one the bits may not.
SAME_BITS = (BASIC, SPLIT_K, SWAP_AB, SWAP_AB_SPLIT_K)
BUDGETS = [(c, sms) for c in SAME_BITS for sms in (131, 7, 4, 2, 1) if sms >= c.cluster_size]


@pytest.mark.parametrize("forced, num_sms", BUDGETS, ids=lambda x: getattr(x, "name", None))
@pytest.mark.parametrize("m, n, k", [(129, 200, 592), (1000, 2112, 576)])
def test_any_number_of_sms_gives_the_same_bits(m, n, k, forced, num_sms, seed):
    problem = normal(m, n, k, seed)
    with config.forced(forced):
        whole = run(problem)
        with deep_gemm.override(num_sms=num_sms):
            assert_bitwise_equal(run(problem), whole, f"{num_sms} SMs")


@pytest.mark.parametrize("num_sms", [131, 7, 4, 2, 1])
@pytest.mark.parametrize("m, n, k", [(7, 72, 208), (129, 200, 592), (1000, 2112, 576)])
def test_what_is_chosen_for_any_number_of_sms_is_right(m, n, k, num_sms, seed):
    problem = integers(m, n, k, seed)
    deep_gemm.set_num_sms(num_sms)
    try:
        assert deep_gemm.get_num_sms() == num_sms
        judge(problem, run(problem))
    finally:
        deep_gemm.set_num_sms(0)


@pytest.mark.parametrize("forced", SAME_BITS, ids=label)
def test_a_row_does_not_depend_on_how_many_there_are(forced, seed):
    problem, way = normal(4096, 576, 7168, seed), Way(forced)
    whole = way.run(problem)
    for m in (1, 7, 64, 129, 1000):
        few = Problem(problem.a[:m], problem.sfa[:m], problem.b, problem.sfb)
        assert_bitwise_equal(way.run(few), whole[:m], f"{m} rows")


# --- streams and graphs ---------------------------------------------------------------------


def changed(problem, seed):
    """Return new contents for the four tensors."""
    (m, k), n = problem.a.shape, problem.b.shape[0]
    return normal(m, n, k, seed).tensors


@pytest.mark.parametrize("m, n, k", [(7, 72, 208), (129, 200, 592), (1000, 2112, 576)])
def test_capture_and_replay_with_changed_data(m, n, k, seed):
    problem = normal(m, n, k, seed)
    run(problem)
    out, check = poison.canary(m, n, BF16, "cuda")
    deep_gemm.fp8_gemm_nt(problem.tensors[:2], problem.tensors[2:], out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.fp8_gemm_nt(problem.tensors[:2], problem.tensors[2:], out)
        deep_gemm.fp8_gemm_nt(problem.tensors[:2], problem.tensors[2:], out)
    for step in range(3):
        for old, new in zip(problem.tensors, changed(problem, seed + 1 + step), strict=True):
            old.copy_(new)
        poison.nan_fill_(out)
        graph.replay()
        check()
        judge(problem, out)
        assert_bitwise_equal(out, run(problem), f"replay {step} and a call")


@pytest.mark.parametrize("m, n, k", [(129, 200, 592), (1000, 2112, 576)])
def test_a_side_stream_is_used(m, n, k, seed):
    problem, later = normal(m, n, k, seed), normal(m, n, k, seed + 1)
    out = torch.empty(m, n, dtype=BF16, device="cuda")
    deep_gemm.fp8_gemm_nt(later.tensors[:2], later.tensors[2:], out)
    wanted = out.clone()
    poison.nan_fill_(out)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # tens of milliseconds: another stream would read too early
        for old, new in zip(problem.tensors, later.tensors, strict=True):
            old.copy_(new)
        deep_gemm.fp8_gemm_nt(problem.tensors[:2], problem.tensors[2:], out)
    assert not side.query()  # nothing in the call waited for the stream
    side.synchronize()
    assert_bitwise_equal(out, wanted, "side stream")


@pytest.mark.parametrize("pdl", [True, False])
@every_config
def test_back_to_back_calls_wait_for_what_they_read(forced, pdl, seed):
    with forcing(forced), deep_gemm.override(pdl=pdl):
        check_chain(1000, 512, seed)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_tensors_of_another_device_than_the_current_one(seed):
    problem = normal(129, 200, 592, seed)
    wanted = run(problem)
    moved = [x.to("cuda:1") for x in problem.tensors]
    out = torch.empty(129, 200, dtype=BF16, device="cuda:1")
    deep_gemm.fp8_gemm_nt(moved[:2], moved[2:], out)
    assert torch.cuda.current_device() == 0
    assert_bitwise_equal(out.cpu(), wanted.cpu(), "second device")


# --- large ----------------------------------------------------------------------------------


@pytest.mark.parametrize("m, n, k", [(73728, 36864, 128), (524352, 16, 4112)])
def test_more_than_two_to_the_31_elements(m, n, k, seed):
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of free device memory")
    problem = normal(m, n, k, seed)
    out = poison.nan_fill_(torch.empty(m, n, dtype=BF16, device="cuda"))
    deep_gemm.fp8_gemm_nt(problem.tensors[:2], problem.tensors[2:], out)
    assert not any(bool(part.isnan().any()) for part in out.split(8192))
    rows = torch.tensor([0, 1, m // 2 + 1, m - 65, m - 2, m - 1], device="cuda")
    a = problem.a.view(torch.uint8)[rows].view(problem.a.dtype)
    judge(Problem(a, problem.sfa[rows], problem.b, problem.sfb), out[rows])
