"""matmul() on the GPU: a sample of all operands, scales, outputs, layouts and ways to add C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

import deep_gemm
from deep_gemm import config, reference
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, Major, ScaleChoice
from deep_gemm.problem.from_tensors import problem_of
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import poison, problems
from deep_gemm.testing.numerics import assert_bitwise_equal, compare, reference_and_bound_of

from .gpu_kit import generator, load_all

DEVICE = "cuda"
MS = (1, 7, 16, 33, 64, 128, 200, 300)
NS = (8, 24, 128, 136, 576, 2112)
KS = (16, 64, 100, 128, 512, 1000, 2064)
MAJORS = tuple(product((Major.K, Major.MN), repeat=2))
VECTORS = tuple(product((None, PER_TENSOR, PER_CHANNEL), repeat=2))
SCALED_1D2D, SCALED_1D1D = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128)
FLOATS = (BF16, FP16, FP32)
FP8_PAIRS = tuple(product((E4M3, E5M2), repeat=2))
CASES = 14  # of each template

# --- the sample -----------------------------------------------------------------------------


class Case(NamedTuple):
    """A call: its problem, and how its tensors are drawn (problems.make)."""

    problem: GemmProblem
    alpha: float
    beta: float
    drawing: dict[str, Any]


def template(*fields: Any, **rest: Any) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


def choices(a, b, scales, promoted, outputs) -> list[GemmProblem]:
    """Return every variant of these operands: by output, way to add C and, at 16 bits, majors."""
    return [
        template(a, b, d, *scales, promoted, *majors, c_mode)
        for d, c_mode, majors in product(
            outputs,
            (CMode.NONE, CMode.READ, CMode.REDUCE),
            MAJORS if a.bytes == 2 else MAJORS[:1],
        )
        if c_mode is not CMode.REDUCE or d.bytes == 4
    ]


def templates() -> Iterator[GemmProblem]:
    """Yield variants: for each pair of operands and kind of scales, some outputs and modes of C."""
    random = Random(1)
    vectors = (PER_CHANNEL, PER_CHANNEL)  # one variant whichever of them there are
    kinds = [((None, None), True), ((None, None), False), (vectors, True), (vectors, False)]
    for pair, (scales, promoted) in product(
        FP8_PAIRS, [*kinds, (SCALED_1D2D, True), (SCALED_1D1D, True)]
    ):
        yield from random.sample(choices(*pair, scales, promoted, FLOATS), 3)
    yield from random.sample(choices(INT8, INT8, (None, None), True, (*FLOATS, INT32)), 8)
    yield from random.sample(choices(INT8, INT8, vectors, True, FLOATS), 6)
    for dtype in (BF16, FP16):
        yield from random.sample(choices(dtype, dtype, (None, None), True, FLOATS), 12)


def cases(variant: GemmProblem, random: Random) -> Iterator[Case]:
    """Yield calls of one variant."""
    for index in range(CASES):
        problem = replace(variant, m=random.choice(MS), n=random.choice(NS), k=random.choice(KS))
        layouts = problems.SFA_LAYOUTS
        if variant.scale_a == PER_CHANNEL:
            scale_a, scale_b = random.choice(VECTORS[1:])
            problem = replace(problem, scale_a=scale_a, scale_b=scale_b)
            layouts = problems.VECTOR_LAYOUTS
        if variant.a_dtype.bytes == 1:
            a_major, b_major = random.choice(MAJORS)
            problem = replace(problem, a_major=a_major, b_major=b_major)
        exact_output = variant.d_dtype == INT32
        in_place = variant.c_mode is CMode.READ and not exact_output and random.random() < 0.5
        # In place and with beta 1, 4-byte elements are reduced.
        halved = variant.c_mode is CMode.READ and in_place and variant.d_dtype.bytes == 4
        free = variant.c_mode is CMode.READ and not exact_output
        yield Case(
            problem,
            alpha=1.0 if exact_output else random.choice((1.0, -1.5)),
            beta=0.5 if halved else random.choice((1.0, 0.5)) if free else 1.0,
            drawing={
                "scale_layouts": (random.choice(layouts), random.choice(layouts)),
                "row_pad": random.choice((0, 16)),
                "out_pad": random.choice((0, 8, 24)),
                "in_place": in_place,
                "exact": index % 2 == 0,
            },
        )


def name(problem: GemmProblem) -> str:
    """Return the variant's name; 8-bit operands of all layouts have one variant."""
    return problem.variant.name


SAMPLE = {name(one): tuple(cases(one, Random(name(one)))) for one in templates()}


def check(case: Case, rng: torch.Generator) -> torch.Tensor:
    """Fail unless a call on fresh data is right and writes nothing but D; return D."""
    drawn = problems.make(case.problem, DEVICE, rng, **case.drawing)
    return check_drawn(case, drawn)


def check_drawn(case: Case, drawn: problems.Drawn) -> torch.Tensor:
    """Fail unless a call on these tensors is right and writes nothing but D; return D."""
    t, factors = drawn.tensors, (case.alpha, case.beta)
    problem = meant(case, t)
    exact = case.drawing.get("exact", False)
    judged = reference_and_bound_of(problem, t, *factors, exact_products=exact)
    wanted = on_backend(problem, t, *factors) if exact or problem.variant.is_integer else None
    out = call(case, t)
    drawn.check()
    report = compare(out, *judged)
    assert report.ok, f"{describe(case)}: {report}"
    if wanted is not None:
        assert_bitwise_equal(out, wanted, f"{describe(case)}: GPU and backend")
    return out


def meant(case: Case, t: Tensors) -> GemmProblem:
    """Return the problem of the tensors: scales of one k-block may be taken for 128x128 ones."""
    options = Options(ScaleChoice.AUTO, not case.problem.promoted, case.problem.static_b)
    return problem_of(t, options, case.alpha, case.beta)


def on_backend(problem: GemmProblem, t: Tensors, alpha: float, beta: float) -> torch.Tensor:
    """Return D by the arithmetic of the CPU backend; t.d stays as it is."""
    d = torch.empty_like(t.d)
    reference.gemm(problem, t._replace(d=d), alpha, beta)
    return d


def call(case: Case, t: Tensors) -> torch.Tensor:
    """Call matmul() with operands in the layout they lie in."""
    if case.problem.static_b:
        torch.cuda.synchronize()  # nobody writes B from here on
    arguments = problems.arguments(case.problem, t)
    return deep_gemm.matmul(**arguments, alpha=case.alpha, beta=case.beta)


def describe(case: Case) -> str:
    """Return what a failure is about."""
    drawing = ", ".join(f"{key} {value}" for key, value in case.drawing.items())
    return f"{case.problem.describe()}; alpha {case.alpha}, beta {case.beta}; {drawing}"


@pytest.fixture(scope="module")
def kernels():
    device = config.from_index(torch.cuda.current_device())
    asked = [case.problem for sample in SAMPLE.values() for case in sample]
    load_all(config.select(problem, device) for problem in asked)


@pytest.mark.parametrize("variant", SAMPLE)
def test_sample(variant, seed, kernels):
    rng = generator(seed)
    for case in SAMPLE[variant]:
        check(case, rng)


# --- one of each operand --------------------------------------------------------------------

VECTOR_PAIR = (PER_CHANNEL, PER_CHANNEL)
VARIANTS = {
    "e4m3 1d2d": template(E4M3, E4M3, BF16, *SCALED_1D2D),
    "e5m2 e4m3 1d1d": template(E5M2, E4M3, FP32, *SCALED_1D1D),
    "e4m3 e5m2 vectors": template(E4M3, E5M2, BF16, *VECTOR_PAIR),
    "e4m3 fast": template(E4M3, E4M3, FP16, PER_TENSOR, PER_CHANNEL, promoted=False),
    "int8": template(INT8, INT8, INT32, None, None),
    "int8 vectors": template(INT8, INT8, BF16, *VECTOR_PAIR),
    "bf16": template(BF16, BF16, BF16, None, None),
    "fp16": template(FP16, FP16, FP32, None, None),
    "bf16 mn": template(BF16, BF16, FP32, None, None, a_major=Major.MN, b_major=Major.MN),
    "e4m3 mn": template(E4M3, E4M3, BF16, *SCALED_1D2D, a_major=Major.MN, b_major=Major.MN),
}
each = pytest.mark.parametrize("variant", VARIANTS)
# K is long and tiles are few, so that split-K is chosen.
SPLIT_K_SHAPES = ((1, 576, 2064), (16, 24, 7168), (64, 136, 4096))


def sized(variant: str, m: int, n: int, k: int, **rest: Any) -> Case:
    """Return a call of one of VARIANTS with alpha and beta 1."""
    return Case(replace(VARIANTS[variant], m=m, n=n, k=k, **rest), 1.0, 1.0, {})


@each
@pytest.mark.parametrize("m, n, k", SPLIT_K_SHAPES)
def test_twenty_repeats_give_the_same_bits(variant, m, n, k, seed):
    case = sized(variant, m, n, k)
    drawn = problems.make(case.problem, DEVICE, generator(seed))
    first = check_drawn(case, drawn).clone()
    for repeat in range(20):
        poison.nan_fill_(drawn.tensors.d)
        assert_bitwise_equal(call(case, drawn.tensors), first, f"repeat {repeat}")
    drawn.check()


@each
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("m, n, k", [(1, 2112, 1000), (128, 576, 2064)])
def test_static_b(variant, m, n, k, exact, seed):
    check(
        sized(variant, m, n, k, static_b=True)._replace(drawing={"exact": exact}), generator(seed)
    )


@each
@pytest.mark.parametrize("budget", [1, 4, 7])
def test_any_number_of_sms(variant, budget, seed):
    case = sized(variant, 200, 576, 1000)._replace(drawing={"exact": True})
    with deep_gemm.override(num_sms=budget):
        check(case, generator(seed))


@each
@pytest.mark.parametrize("m, n, k", [(7, 136, 1000), (200, 576, 512)])
def test_capture_and_replay_with_changed_data(variant, m, n, k, seed):
    rng = generator(seed)
    factors = (1.0, 1.0) if VARIANTS[variant].d_dtype == INT32 else (-1.5, 0.5)
    case = Case(sized(variant, m, n, k, c_mode=CMode.READ).problem, *factors, {})
    drawn = problems.make(case.problem, DEVICE, rng)
    t = drawn.tensors
    check_drawn(case, drawn)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(case, t)
        call(case, t)
    for step in range(3):
        changed = problems.make(case.problem, DEVICE, rng).tensors
        for old, new in zip(t[:5], changed[:5], strict=True):
            if old is not None:
                old.copy_(new)
        poison.nan_fill_(t.d)
        judged = reference_and_bound_of(case.problem, t, *factors)
        graph.replay()
        drawn.check()
        assert (report := compare(t.d, *judged)).ok, f"replay {step}: {report}"


# --- what is not finite ---------------------------------------------------------------------

floating = pytest.mark.parametrize(
    "variant", [name for name, one in VARIANTS.items() if not one.variant.is_integer]
)


@floating
@pytest.mark.parametrize("m, n, k", [(7, 136, 1000), (33, 24, 2064), (200, 576, 512)])
def test_nan_in_a_row_of_a_stays_in_it(variant, m, n, k, seed):
    case = sized(variant, m, n, k)
    drawn = problems.make(case.problem, DEVICE, generator(seed))
    t = drawn.tensors
    clean = call(case, t).clone()
    row = m // 2
    poison.nan_fill_(t.a[row, k // 3 : k // 3 + 1])
    out = call(case, t)
    drawn.check()
    assert out[row].isnan().all()
    others = torch.arange(m, device=DEVICE) != row
    assert_bitwise_equal(out[others], clean[others], "rows beside the one with NaN")


@floating
def test_nan_in_a_row_of_b_stays_in_its_column(variant, seed):
    case = sized(variant, 33, 136, 1000)
    drawn = problems.make(case.problem, DEVICE, generator(seed))
    t = drawn.tensors
    clean = call(case, t).clone()
    poison.nan_fill_(t.b[77, 999:])
    out = call(case, t)
    drawn.check()
    assert out[:, 77].isnan().all()
    others = torch.arange(136, device=DEVICE) != 77
    assert_bitwise_equal(out[:, others], clean[:, others], "columns beside the one with NaN")


@floating
@pytest.mark.parametrize("in_place", [False, True])
def test_nan_in_c_stays_in_its_element(variant, in_place, seed):
    case = sized(variant, 33, 136, 1000, c_mode=CMode.READ)
    drawn = problems.make(case.problem, DEVICE, generator(seed), in_place=in_place)
    t = drawn.tensors
    t.c[5, 9] = torch.nan
    out = call(case, t)
    drawn.check()
    expected = torch.zeros_like(out, dtype=torch.bool)
    expected[5, 9] = True
    assert torch.equal(out.isnan(), expected)


@each
def test_zero_rows_give_exact_zeros_and_c_alone(variant, seed):
    case = sized(variant, 33, 136, 1000)
    drawn = problems.make(case.problem, DEVICE, generator(seed))
    zeroed = drawn.tensors.a[4:6]
    zeroed.copy_(torch.zeros_like(zeroed))
    assert (check_drawn(case, drawn)[4:6] == 0).all()
    case = sized(variant, 33, 136, 1000, c_mode=CMode.READ)
    drawn = problems.make(case.problem, DEVICE, generator(seed))
    zeroed = drawn.tensors.a[4:6]
    zeroed.copy_(torch.zeros_like(zeroed))
    assert torch.equal(check_drawn(case, drawn)[4:6], drawn.tensors.c[4:6])


# --- empty ----------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("m, n, k", [(0, 8, 128), (8, 0, 128), (0, 0, 0), (33, 136, 0)])
def test_empty_extents(variant, m, n, k, seed):
    for c_mode in (CMode.NONE, CMode.READ):
        check(sized(variant, m, n, k, c_mode=c_mode), generator(seed))
