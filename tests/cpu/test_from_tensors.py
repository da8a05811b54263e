"""From tensors to problems and values, on the CPU: every variant, layout, scale and refusal."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError
from deep_gemm.dispatch import gemm
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, Mainloop, Major, ScaleChoice
from deep_gemm.problem.epilogue import EpilogueOp
from deep_gemm.problem.from_tensors import problem_of
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.testing import problems
from deep_gemm.testing.numerics import assert_bitwise_equal, compare, reference_and_bound_of

M, N, K = 33, 136, 208
LAYOUTS = list(product((Major.K, Major.MN), repeat=2))
EACH = (None, PER_TENSOR, PER_CHANNEL)
VECTORS = list(product(EACH, EACH))
ALONG_K = [(ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128)]


def variants():
    """Yield operands, their scales, and whether FP8 sums are promoted."""
    for pair in product((E4M3, E5M2), repeat=2):
        for promoted in (True, False):
            yield from ((*pair, *scales, promoted) for scales in VECTORS)
        yield from ((*pair, *scales, True) for scales in ALONG_K)
    yield from ((INT8, INT8, *scales, True) for scales in VECTORS)
    yield from ((dtype, dtype, None, None, True) for dtype in (BF16, FP16))


def outputs(a, scale_a, scale_b):
    return (
        (BF16, FP16, FP32, INT32)
        if (a, scale_a, scale_b) == (INT8, None, None)
        else (BF16, FP16, FP32)
    )


def label(variant):
    a, b, *scales, promoted = variant
    names = [scale.name if scale else "none" for scale in scales]
    return "-".join([a.name, b.name, *names, "promoted" if promoted else "fast"])


def problem_of_variant(variant, d, extents=(M, N, K), **rest):
    a, b, scale_a, scale_b, promoted = variant
    return GemmProblem(*extents, a, b, d, scale_a, scale_b, promoted, **rest)


def check(problem, drawn, alpha=1.0, beta=1.0, exact=False):
    """Run matmul() and compare with float64; return D."""
    judged = reference_and_bound_of(problem, drawn.tensors, alpha, beta, exact_products=exact)
    out = deep_gemm.matmul(**problems.arguments(problem, drawn.tensors), alpha=alpha, beta=beta)
    assert out is drawn.tensors.d
    drawn.check()
    report = compare(out, *judged)
    assert report.ok, f"{problem.describe()}: {report}"
    return out


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", list(variants()), ids=label)
def test_every_variant_in_every_layout_is_within_its_bound(variant, rng):
    for d, (a_major, b_major) in product(outputs(variant[0], *variant[2:4]), LAYOUTS):
        problem = problem_of_variant(variant, d, a_major=a_major, b_major=b_major)
        drawn = problems.make(problem, generator=rng, row_pad=16)
        options = Options(ScaleChoice.AUTO, not problem.promoted)
        assert problem_of(drawn.tensors, options, 1.0, 1.0) == problem
        check(problem, drawn)
        check(problem, problems.make(problem, generator=rng, exact=True), exact=True)


SOME = [
    (E4M3, E5M2, ROW_1X128, BLOCK_128X128, True),
    (E5M2, E4M3, ROW_1X128, ROW_1X128, True),
    (E4M3, E4M3, PER_CHANNEL, PER_TENSOR, True),
    (E4M3, E4M3, None, PER_CHANNEL, False),
    (INT8, INT8, PER_TENSOR, PER_CHANNEL, True),
    (INT8, INT8, None, None, True),
    (BF16, BF16, None, None, True),
    (FP16, FP16, None, None, True),
]
some = pytest.mark.parametrize("variant", SOME, ids=label)


@some
@pytest.mark.parametrize(
    "alpha, beta", [(1.0, 1.0), (-1.5, 0.5), (0.3, -0.7), (0.0, 2.0), (2.0, 0.0)]
)
def test_alpha_and_beta_with_c_apart_and_in_place(variant, alpha, beta, rng):
    for d, in_place in product(outputs(variant[0], *variant[2:4]), (False, True)):
        if d == INT32 and (alpha, beta) != (1.0, 1.0):
            continue
        problem = problem_of_variant(variant, d, c_mode=CMode.READ)
        drawn = problems.make(problem, generator=rng, in_place=in_place)
        kept = None if in_place else drawn.tensors.c.clone()
        check(problem, drawn, alpha, beta)
        assert kept is None or torch.equal(drawn.tensors.c, kept)


def test_how_c_is_added():
    problem = problem_of_variant(SOME[4], FP32, c_mode=CMode.READ)
    tensors = problems.make(problem, in_place=True).tensors
    apart = tensors._replace(c=tensors.c.clone())
    bf16 = problems.make(replace(problem, d_dtype=BF16), in_place=True).tensors
    asked_for = [
        (tensors, 1.0, CMode.REDUCE),
        (tensors, 0.5, CMode.READ),
        (apart, 1.0, CMode.READ),
        (bf16, 1.0, CMode.READ),
        (tensors._replace(c=None), 1.0, CMode.NONE),
    ]
    for t, beta, c_mode in asked_for:
        assert problem_of(t, Options(), 2.0, beta).c_mode is c_mode
    # With an op behind it, C is added by the epilogue, not by the store.
    negate = EpilogueOp("negate", "epilogue::Negate")
    for t, c_mode in ((tensors, CMode.READ), (tensors._replace(c=None), CMode.NONE)):
        problem = problem_of(t, Options(epilogue=(negate,)), 2.0, 1.0)
        assert problem.c_mode is c_mode and problem.variant.epilogue[-1] is negate


@some
def test_c_is_not_read_where_beta_is_zero(variant, rng):
    problem = problem_of_variant(variant, BF16, c_mode=CMode.READ)
    drawn = problems.make(problem, generator=rng)
    drawn.tensors.c.fill_(torch.nan)
    out = deep_gemm.matmul(**problems.arguments(problem, drawn.tensors), beta=0).clone()
    wanted = deep_gemm.matmul(**problems.arguments(problem, drawn.tensors._replace(c=None)))
    assert_bitwise_equal(out, wanted)


@some
@pytest.mark.parametrize("layout", problems.VECTOR_LAYOUTS)
def test_layouts_of_scales_change_no_bit(variant, layout, rng):
    if layout.startswith("flat") and any(s is not None and s.gran_k for s in variant[2:4]):
        return
    problem = problem_of_variant(variant, FP32)
    t = problems.make(problem, generator=rng, scale_layouts=(layout, layout)).tensors
    out = deep_gemm.matmul(**problems.arguments(problem, t)).clone()
    sfa, sfb = (
        sf if sf is None else sf.clone(memory_format=torch.contiguous_format)
        for sf in (t.sfa, t.sfb)
    )
    t = t._replace(sfa=sfa, sfb=sfb)
    assert_bitwise_equal(deep_gemm.matmul(**problems.arguments(problem, t)), out)


@some
def test_scaled_operands_in_every_layout_give_the_same_bits(variant, rng):
    problem = problem_of_variant(variant, FP32)
    t = problems.make(problem, generator=rng).tensors
    wanted = deep_gemm.matmul(**problems.arguments(problem, t)).clone()
    for a_major, b_major in LAYOUTS:
        laid_out = replace(problem, a_major=a_major, b_major=b_major)
        assert_bitwise_equal(deep_gemm.matmul(**problems.arguments(laid_out, t)), wanted)


@pytest.mark.parametrize("value", [-128, 127])
def test_int8_is_exact_over_its_whole_range(value):
    a = torch.full((3, 4096), value, dtype=torch.int8)
    b = torch.tensor([-128, 127, -1, 0] * 2, dtype=torch.int8)[:, None].expand(8, 4096).contiguous()
    wanted = a.long() @ b.long().T
    assert torch.equal(deep_gemm.matmul(a, b).long(), wanted)
    c = torch.randint(-(2**30), 2**30, (3, 8), dtype=torch.int32)
    assert torch.equal(deep_gemm.matmul(a, b, c=c).long(), wanted + c)
    assert torch.equal(deep_gemm.matmul(a, b, out_dtype=torch.float32), wanted.float())


@pytest.mark.parametrize(
    "dtype, scales, wanted",
    [
        (torch.float8_e4m3fn, False, torch.bfloat16),
        (torch.float8_e5m2, True, torch.bfloat16),
        (torch.int8, True, torch.bfloat16),
        (torch.int8, False, torch.int32),
        (torch.bfloat16, False, torch.bfloat16),
        (torch.float16, False, torch.float16),
    ],
)
def test_what_is_allocated_by_default(dtype, scales, wanted):
    a, b = torch.zeros(3, 16).to(dtype), torch.zeros(8, 16).to(dtype)
    pairs = ((a, torch.ones(1)), (b, torch.ones(1))) if scales else (a, b)
    out = deep_gemm.matmul(*pairs)
    assert out.dtype == wanted and out.shape == (3, 8) and (out == 0).all()
    for out_dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert deep_gemm.matmul(*pairs, out_dtype=out_dtype).dtype == out_dtype


# --- which scales are meant -----------------------------------------------------------------


@pytest.mark.parametrize(
    "m, n, k, sfa, sfb, wanted",
    [
        # One scale each fits blocks of a single row, and of 128 x 128.
        (1, 128, 128, (1, 1), (1, 1), ALONG_K[0]),
        (1, 128, 128, (1,), (1, 1), (PER_TENSOR, PER_TENSOR)),
        (1, 128, 128, (), (), (PER_TENSOR, PER_TENSOR)),
        (1, 129, 128, (1, 1), (1, 1), (PER_TENSOR, PER_TENSOR)),
        (1, 128, 129, (1, 1), (1, 1), (PER_TENSOR, PER_TENSOR)),
        (5, 128, 128, (5, 1), (1, 1), ALONG_K[0]),
        (5, 128, 128, (5,), (1, 1), (PER_CHANNEL, PER_TENSOR)),
        # One scale a row fits 1 x 128 as well; both mean the same product.
        (5, 128, 128, (5, 1), (128, 1), (PER_CHANNEL, PER_CHANNEL)),
        (5, 128, 256, (5, 2), (128, 2), ALONG_K[1]),
        (5, 128, 256, (5, 2), (1, 2), ALONG_K[0]),
        (5, 1, 256, (5, 2), (1, 2), ALONG_K[0]),
        (1, 1, 256, (1, 2), (1, 2), ALONG_K[0]),
        (1, 8, 256, (1, 1), None, (PER_TENSOR, None)),
        (1, 8, 256, None, (8,), (None, PER_CHANNEL)),
    ],
)
def test_scales_are_told_by_their_shapes(m, n, k, sfa, sfb, wanted, rng):
    problem = problem_of_variant((E4M3, E4M3, *wanted, True), FP32, (m, n, k))
    drawn = problems.make(problem, generator=rng)
    sfa, sfb = (
        None if shape is None else torch.rand(shape, generator=rng) + 0.5 for shape in (sfa, sfb)
    )
    t = drawn.tensors._replace(sfa=sfa, sfb=sfb)
    found = problem_of(t, Options(), 1.0, 1.0)
    assert (found.scale_a, found.scale_b) == wanted
    check(problem, replace(drawn, tensors=t))


def test_a_recipe_that_is_named_is_taken(rng):
    problem = problem_of_variant((E4M3, E4M3, *ALONG_K[0], True), FP32, (1, 1, 128))
    t = problems.make(problem, generator=rng).tensors
    named = (ScaleChoice.SCALED_1D2D, ScaleChoice.SCALED_1D1D)
    for scales, wanted in zip(named, ALONG_K, strict=True):
        found = problem_of(t, Options(scales), 1.0, 1.0)
        assert (found.scale_a, found.scale_b) == wanted
    for scales in named:
        with pytest.raises(ArgumentError, match="sfa: presence must be .*, got None; 1x128 scales"):
            problem_of(t._replace(sfa=None), Options(scales), 1.0, 1.0)
    found = problem_of(t, Options(fast_accum=True), 1.0, 1.0)
    assert (found.scale_a, found.scale_b) == (PER_TENSOR, PER_TENSOR)
    assert found.variant.mainloop is Mainloop.DIRECT


# --- refusals -------------------------------------------------------------------------------


def operands(dtype, scales=(None, None)):
    problem = problem_of_variant((dtype, dtype, *scales, True), BF16)
    arguments = problems.arguments(problem, problems.make(problem).tensors)
    return {name: arguments[name] for name in ("a", "b")}


FP8 = operands(E4M3)
BLOCKS = operands(E4M3, ALONG_K[0])
A, B = FP8["a"], FP8["b"]
SFA, SFB = BLOCKS["a"][1], BLOCKS["b"][1]
INTEGERS, BFLOATS, HALVES = operands(INT8), operands(BF16), operands(FP16)
ONE = torch.ones(1)
OUT32 = {"out_dtype": torch.int32}

REFUSALS = {
    "FP4 a": ({"a": A.view(torch.uint8), "b": B}, "a of torch.uint8: packed FP4 .*cast to FP8"),
    "FP4 b": ({"a": A, "b": (B.view(torch.uint8), ONE)}, "b of torch.uint8: packed FP4 .*cast to"),
    "FP32 a": (
        {"a": A.float(), "b": B},
        "a: dtype must be float8_e4m3fn, .*int8, bfloat16 or float16, got torch.float32; cast it",
    ),
    "INT32 b": ({"a": A, "b": B.int()}, "b: dtype must be .*, got torch.int32; cast it"),
    "FP8 and INT8": (
        {"a": A, "b": INTEGERS["b"]},
        "b: dtype must be torch.float8_e4m3fn, got torch.int8; only the FP8 formats may be mixed",
    ),
    "BF16 and FP16": (
        {"a": BFLOATS["a"], "b": HALVES["b"]},
        "b: dtype must be torch.bfloat16, got torch.float16; only the FP8",
    ),
    "INT8 with blocks": (
        {"a": (INTEGERS["a"], SFA), "b": (INTEGERS["b"], SFB)},
        r"sfa: shape must be \(1, 1\) or \(33, 1\), got \(33, 2\); per_tensor or per_channel sc",
    ),
    "BF16 with scales": (
        {"a": (BFLOATS["a"], ONE), "b": BFLOATS["b"]},
        "sfa, sfb: presence must be None with torch.bfloat16, got scales",
    ),
    "fast with blocks": (
        BLOCKS | {"fast_accum": True},
        r"sfa: shape must be \(1, 1\) or \(33, 1\), got \(33, 2\); per_tensor or per_channel",
    ),
    "blocks and none": (
        {"a": (A, SFA), "b": B},
        r"sfa, sfb: shapes must be scales that go together, got \(33, 2\), none; 1x128 with",
    ),
    "blocks and vector": (
        {"a": (A, SFA), "b": (B, torch.ones(N))},
        r"sfa, sfb: shapes must be .*, got \(33, 2\), \(136,\); 1x128",
    ),
    "sfa shape": ({"a": (A, torch.ones(34)), "b": (B, ONE)}, r"sfa: shape must be .*, got \(34,\)"),
    "sfb shape": (
        {"a": (A, SFA), "b": (B, SFB.t()[:1])},
        r"sfb: shape must be .*\(2, 2\).*, got \(1, 2\); 128x128 or",
    ),
    "sfa FP64": ({"a": (A, SFA.double()), "b": (B, SFB)}, "sfa: dtype must be torch.float32, got"),
    "sfb UE8M0": ({"a": (A, SFA), "b": (B, SFB.int())}, "sfb: dtype must be .*; packed UE8M0"),
    "sfa no tensor": ({"a": (A, 1.0), "b": B}, "sfa: type must be torch.Tensor, got float"),
    "sfa device": (
        {"a": (A, SFA.to("meta")), "b": (B, SFB)},
        r"sfa: device must be cpu, got meta; move it with .to\('cpu'\)",
    ),
    "a 1-D": ({"a": A[0], "b": B}, "a: number of dimensions must be 2, got 1"),
    "a no tensor": ({"a": (None, ONE), "b": B}, "a: type must be torch.Tensor, got NoneType"),
    "a no pair": ({"a": 3, "b": B}, r"a: form must be a pair .*, got int; pass a tuple"),
    "a strided": (
        {"a": A.repeat(1, 2)[:, ::2], "b": B},
        r"a: stride of the last dimension must be 1, got 2; pass a.contiguous\(\)",
    ),
    "b overlapping": (
        {"a": A, "b": B.flatten().as_strided((N, K), (16, 1))},
        "b: row stride must be at least 208, got 16; rows may not overlap",
    ),
    "K differs": (
        {"a": A, "b": B[:, :200]},
        r"b: shape must be \(136, 208\), got \(136, 200\); A is \[M, K\] and B is \[N, K\]",
    ),
    "layout": (FP8 | {"layout": "n"}, 'layout: value must be "nt", "nn", "tn" or "tt", got \'n\''),
    "layout nn": (FP8 | {"layout": "nn"}, r"b: shape must be \(208, 208\), got \(208, 136\)"),
    "c dtype": (
        FP8 | {"c": torch.zeros(M, N)},
        "c: dtype must be torch.bfloat16, got torch.float32; C has D's type",
    ),
    "c shape": (FP8 | {"c": torch.zeros(N).bfloat16()}, r"c: shape must be .*, got \(136,\)"),
    "c column-major": (
        FP8 | {"c": torch.zeros(N, M).bfloat16().t()},
        r"c: stride of the last dimension must be 1, got 33; pass c.contiguous\(\)",
    ),
    "c no tensor": (FP8 | {"c": 1.0}, "c: type must be torch.Tensor, got float"),
    "c device": (FP8 | {"c": A.bfloat16()[:, :N].to("meta")}, "c: device must be cpu, got meta"),
    "INT32 of FP8": (FP8 | OUT32, "d: dtype must be one of .*, got torch.int32; INT32 holds"),
    "INT32 with scales": (
        {"a": (INTEGERS["a"], ONE), "b": INTEGERS["b"]} | OUT32,
        "d: dtype must be one of .*, got torch.int32; INT32 holds unscaled INT8",
    ),
    "INT32 with alpha": (
        INTEGERS | OUT32 | {"alpha": 2.0},
        "alpha, beta: value must be 1 with an int32 output, .* got 2.0, 1.0; use float32",
    ),
    "INT32 with beta": (
        INTEGERS | OUT32 | {"beta": 0.5, "c": torch.zeros(M, N, dtype=torch.int32)},
        "alpha, beta: value must be 1 .* got 1.0, 0.5; use float32",
    ),
    "FP64 output": (FP8 | {"out_dtype": torch.float64}, "d: dtype must be one of .*, got .*64"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_says_which_tensor_and_property_and_what_to_do(name):
    arguments, message = REFUSALS[name]
    error = UnsupportedError if "FP4" in name else ArgumentError
    out = torch.full((M, N), 7, dtype=arguments.get("out_dtype", torch.bfloat16))
    for _ in range(2):  # a refusal leaves no plan behind
        with pytest.raises(error, match=message) as refused:
            deep_gemm.matmul(**{"out": out, **arguments})
    assert isinstance(refused.value, RuntimeError)
    assert torch.equal(out, torch.full_like(out, 7))


D = torch.full((M + 1, N + 8), 7.0, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"out": D[:M, :N], "c": D[1:, :N]},
            r"c: memory must be D itself.* overlaps D's; pass c.clone",
        ),
        ({"out": D[:M, :N], "c": D[:M, 8:]}, r"c: memory must be D itself.*; pass c.clone\(\)"),
        ({"out": D[:M, :N], "out_dtype": torch.float32}, "out: dtype must be torch.float32, got"),
        ({"out": D[:M, ::2][:, :N]}, r"d: shape must be \(33, 136\)"),
        ({"out": D.t()[:M, :N]}, r"d: shape must be|d: stride of the last dimension must be 1"),
        ({"out": D[0]}, "d: number of dimensions must be 2"),
        ({"out": D.to("meta")[:M, :N]}, "d: device must be cpu, got meta"),
        ({"out": D[:1, :N].expand(M, N)}, "d: row stride must be at least 136, got 0"),
    ],
)
def test_outputs_that_are_refused_stay_as_they_are(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        deep_gemm.matmul(**FP8, **arguments)
    assert torch.equal(D, torch.full_like(D, 7))


# --- empty ----------------------------------------------------------------------------------


@some
@pytest.mark.parametrize("in_place", [False, True])
def test_no_k_gives_beta_c(variant, in_place, rng):
    for d in outputs(variant[0], *variant[2:4]):
        beta = 1.0 if d == INT32 else -0.5
        problem = problem_of_variant(variant, d, (5, 8, 0), c_mode=CMode.READ)
        drawn = problems.make(problem, generator=rng, in_place=in_place)
        drawn.tensors.c.copy_(torch.randint(2**24, 2**30, (5, 8)))  # beyond float32, for INT32
        wanted = (drawn.tensors.c.double() * beta).to(d.torch)
        gemm(
            drawn.tensors,
            Options(ScaleChoice.AUTO, not problem.promoted),
            3.0 if d != INT32 else 1.0,
            beta,
        )
        drawn.check()
        assert_bitwise_equal(drawn.tensors.d, wanted)
        gemm(drawn.tensors._replace(c=None), Options(ScaleChoice.AUTO, not problem.promoted))
        assert (drawn.tensors.d == 0).all()


@some
@pytest.mark.parametrize("m, n", [(0, 8), (8, 0), (0, 0)])
def test_no_rows_or_no_columns_do_nothing(variant, m, n, rng):
    problem = problem_of_variant(variant, BF16, (m, n, 256), c_mode=CMode.READ)
    t = problems.make(problem, generator=rng).tensors
    gemm(t, Options(ScaleChoice.AUTO, not problem.promoted), 2.0, 0.5)
    assert t.d.shape == (m, n)


def test_tensors_are_named_in_the_order_of_the_formula():
    assert Tensors._fields == ("a", "sfa", "b", "sfb", "c", "d", "grouped_layout", "epilogue")


def test_columns_of_one_buffer_are_apart():
    x, w = torch.randn(5, 32).bfloat16(), torch.randn(16, 32).bfloat16()
    both = torch.randn(5, 32).bfloat16()
    d, c = both[:, :16], both[:, 16:]
    wanted = (x.double() @ w.double().T + c.double()).float()
    deep_gemm.matmul(x, w, d, c=c)
    torch.testing.assert_close(d.float(), wanted, rtol=2**-8, atol=2**-8)


def test_weights_that_are_transposed_first_are_not_static():
    a, b = torch.zeros(16, 64, dtype=torch.int8), torch.zeros(64, 32, dtype=torch.int8)
    d = torch.zeros(16, 32, dtype=torch.int32)
    for w, static_b in ((b.t(), False), (b.t().contiguous(), True)):
        tensors = Tensors(a, None, w, None, None, d)
        assert problem_of(tensors, Options(static_b=True), 1.0, 1.0).static_b == static_b
