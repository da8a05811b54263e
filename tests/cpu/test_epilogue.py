"""Epilogue ops: the registry, the chain of a problem, its arithmetic, and ops added at run time."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
import torch

from deep_gemm import ArgumentError, UnsupportedError
from deep_gemm.config import select
from deep_gemm.dispatch import gemm
from deep_gemm.dtypes import BF16, E4M3, FP16, FP32, INT8, INT32
from deep_gemm.jit.headers import headers_for
from deep_gemm.kernels import gemm_sm90
from deep_gemm.kernels.gemm_params import epilogue_fields, gemm_params
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind
from deep_gemm.problem.epilogue import (
    ADD_C,
    ALPHA,
    EPILOGUE_OPS,
    SCALE,
    EpilogueOp,
    Scalar,
    TensorOperand,
)
from deep_gemm.problem.from_tensors import problem_of
from deep_gemm.problem.request import Options, Tensors
from deep_gemm.problem.scale_recipe import PER_CHANNEL, PER_TENSOR, ROW_1X128
from deep_gemm.reference.epilogue import FORMULAS, apply
from deep_gemm.testing import problems
from deep_gemm.testing.numerics import assert_bitwise_equal

from .config_kit import H200, TEMPLATES, VARIANTS
from .exact_kit import rounded

# The module; the package's `gemm` is its function.
backend = import_module("deep_gemm.reference.gemm")
OPS_HEADER = "deep_gemm/epilogue/ops.cuh"
every_op = pytest.mark.parametrize("op", EPILOGUE_OPS.values(), ids=lambda op: op.cuda)

# --- the registry -------------------------------------------------------------------------------


def structs() -> dict[str, str]:
    """Return the text of each op of ops.cuh by its name."""
    text = headers_for(f'#include "{OPS_HEADER}"')[OPS_HEADER]
    parts = re.split(r"^struct (\w+) : Op<\1> \{$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@every_op
def test_every_op_has_a_struct_and_a_formula(op):
    namespace, name = op.cuda.split("::")
    assert namespace == "epilogue" and name in structs()
    assert callable(FORMULAS[op]) and EPILOGUE_OPS[op.cuda] is op


def test_every_struct_and_every_formula_is_of_an_op():
    assert {f"epilogue::{name}" for name in structs()} == set(EPILOGUE_OPS)
    assert set(FORMULAS) == set(EPILOGUE_OPS.values())
    names = [op.name for op in EPILOGUE_OPS.values() if op.name]
    assert len(names) == len(set(names)), "names tell kernels apart"


@every_op
def test_a_struct_reads_the_members_that_its_operands_give_it(op):
    text = structs()[op.cuda.removeprefix("epilogue::")]
    read = set(re.findall(r"\b(?:params\.epilogue|p|params)\.(\w+)", text)) - {"epilogue"}
    assert read == {name for name, _ in op.fields}


def test_what_ops_ask_of_the_kernel():
    for name, text in structs().items():
        op = EPILOGUE_OPS[f"epilogue::{name}"]
        assert ("kNeedsScales = true" in text) == (op is SCALE)
        assert ("kReadsC = true" in text) == (op is ADD_C)


# --- members of EpilogueParams ------------------------------------------------------------------

BIAS = EpilogueOp("bias", "epilogue::Bias", (TensorOperand("bias", ("n",)),), registers=8)
GATE = EpilogueOp(
    "gate", "epilogue::Gate", (TensorOperand("gate", ("m", "n")), Scalar("slope"), Scalar("alpha"))
)
POINTER, PITCH, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


@pytest.mark.parametrize(
    "ops, fields",
    [
        ((), ()),
        ((ALPHA,), (("alpha", FLOAT),)),
        ((SCALE,), (("alpha", FLOAT),)),
        ((ADD_C,), (("c", POINTER), ("c_stride", PITCH), ("beta", FLOAT))),
        (
            (ALPHA, ADD_C),
            (("alpha", FLOAT), ("c", POINTER), ("c_stride", PITCH), ("beta", FLOAT)),
        ),
        ((ALPHA, BIAS), (("alpha", FLOAT), ("bias", POINTER))),
        # An operand that several ops name is one member.
        (
            (SCALE, GATE),
            (("alpha", FLOAT), ("gate", POINTER), ("gate_stride", PITCH), ("slope", FLOAT)),
        ),
    ],
    ids=lambda value: "-".join(op.cuda for op in value if isinstance(op, EpilogueOp)),
)
def test_members_follow_from_operands(ops, fields):
    assert epilogue_fields(ops) == fields
    params = gemm_params(ops)
    assert params is gemm_params(ops)
    assert dict(params._fields_)["epilogue"]._fields_ == fields
    for op in ops:
        assert [o.name for o in op.tensors] == [name for name, kind in op.fields if kind is POINTER]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_kernel_is_rendered_with_the_chain_and_its_members(name):
    variant = VARIANTS[name]
    problem = replace(TEMPLATES[name], m=512, n=576, k=1024)
    source = gemm_sm90.spec(select(problem, H200)).unit.source
    chain = ", ".join(op.cuda for op in variant.epilogue)
    assert f"using EpilogueChain = epilogue::Chain<{chain}>;" in source
    types = {POINTER: "const void*", PITCH: "int64_t", FLOAT: "float"}
    members = "".join(
        f"    {types[kind]} {field};\n" for field, kind in epilogue_fields(variant.epilogue)
    )
    body = f"{{\n{members}}}" if members else "{}"
    assert f"struct EpilogueParams {body};" in source


# --- the chain of a problem ---------------------------------------------------------------------


def template(*fields: Any, **rest: Any) -> GemmProblem:
    return GemmProblem(5, 16, 256, *fields, **rest)


NONE, ROWS = (None, None), (ROW_1X128, ROW_1X128)
CHAINS = {
    "1d2d": (template(), (ALPHA,)),
    "1d2d read": (template(c_mode=CMode.READ), (ALPHA, ADD_C)),
    "1d2d reduce": (template(d_dtype=FP32, c_mode=CMode.REDUCE), (ALPHA,)),
    "1d1d": (template(E4M3, E4M3, BF16, *ROWS), (ALPHA,)),
    "no scales": (template(E4M3, E4M3, BF16, *NONE), (ALPHA,)),
    "scales": (template(E4M3, E4M3, BF16, PER_CHANNEL, PER_TENSOR), (SCALE,)),
    "scales of A": (template(E4M3, E4M3, BF16, PER_TENSOR, None), (SCALE,)),
    "scales of B, read": (
        template(E4M3, E4M3, FP16, None, PER_CHANNEL, False, c_mode=CMode.READ),
        (SCALE, ADD_C),
    ),
    "bf16": (template(BF16, BF16, BF16, *NONE), (ALPHA,)),
    "int32": (template(INT8, INT8, INT32, *NONE), ()),
    "int32 read": (template(INT8, INT8, INT32, *NONE, c_mode=CMode.READ), (ADD_C,)),
    "int32 reduce": (template(INT8, INT8, INT32, *NONE, c_mode=CMode.REDUCE), ()),
    "int8 into fp32": (template(INT8, INT8, FP32, *NONE), (ALPHA,)),
    "int8 with scales": (template(INT8, INT8, BF16, PER_CHANNEL, PER_CHANNEL), (SCALE,)),
}


@pytest.mark.parametrize("problem, chain", CHAINS.values(), ids=CHAINS)
def test_the_chain_of_a_problem(problem, chain):
    variant = problem.variant
    assert variant.epilogue == chain
    assert variant.has_epilogue_scales == (SCALE in chain) and variant.reads_c == (ADD_C in chain)
    assert variant.reduces_into_d == (problem.c_mode is CMode.REDUCE)
    assert variant.adds_c == (problem.c_mode is not CMode.NONE)
    # Further ops come last.
    longer = replace(problem, epilogue=(BIAS, GATE)).variant
    assert longer.epilogue == (*chain, BIAS, GATE) and longer.name != variant.name
    assert longer.name.replace("_bias_gate", "") == variant.name


# --- its arithmetic -----------------------------------------------------------------------------

MANTISSA_BITS = {BF16: 8, FP16: 11, FP32: 24}


def exact(x: torch.Tensor) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in x.double().tolist()]


@pytest.mark.parametrize("alpha, beta", [(1.0, 1.0), (-1.5, 0.5), (0.3, -0.7), (1e-3, 30.0)])
@pytest.mark.parametrize("operands", [BF16, E4M3], ids=lambda t: t.name)
@pytest.mark.parametrize("d_dtype", MANTISSA_BITS, ids=lambda t: t.name)
def test_every_step_of_the_chain_is_rounded_to_float32_once(d_dtype, operands, alpha, beta, rng):
    """value * (sfa * alpha) * sfb + beta * c of FP8, value * alpha + beta * c of BF16."""
    scales = (PER_CHANNEL, PER_CHANNEL) if operands is E4M3 else NONE
    # FP8 sums are promoted with these scales and without scales, so they are equal.
    problem = template(operands, operands, d_dtype, *scales, c_mode=CMode.READ)
    t = problems.make(problem, generator=rng, scale_layouts=("flat", "flat")).tensors
    sums = torch.empty(problem.m, problem.n)
    gemm(Tensors(t.a, None, t.b, None, None, sums), Options())
    gemm(t, Options(), alpha, beta)
    alpha32, beta32 = (Fraction(torch.tensor(x).item()) for x in (alpha, beta))
    d, c = exact(t.d), exact(t.c)
    for m, row in enumerate(exact(sums)):
        for n, value in enumerate(row):
            if operands is E4M3:
                factor = rounded(Fraction(t.sfa[m].item()) * alpha32, 24)
                value = rounded(rounded(value * factor, 24) * Fraction(t.sfb[n].item()), 24)
            else:
                value = rounded(value * alpha32, 24)
            value = rounded(value + beta32 * c[m][n], 24)
            is_subnormal = d_dtype == FP16 and abs(value) < 2**-14
            assert d[m][n] == rounded(value, MANTISSA_BITS[d_dtype]) or is_subnormal, (m, n)


def test_int32_is_exact_beyond_float32(rng):
    problem = template(INT8, INT8, INT32, *NONE, c_mode=CMode.READ)
    t = problems.make(problem, generator=rng).tensors
    t.c.copy_(torch.randint(2**24, 2**30, t.c.shape, generator=rng))
    gemm(t, Options())
    assert torch.equal(t.d.long(), t.a.long() @ t.b.long().T + t.c)


def test_ops_are_applied_in_order():
    value = torch.tensor([[3.0]])
    operands = {
        "alpha": torch.tensor([2.0]),
        "c": torch.tensor([[5.0]]),
        "beta": torch.tensor([4.0]),
    }
    assert apply((ALPHA, ADD_C), value, operands).item() == 26.0
    assert apply((ADD_C, ALPHA), value, operands).item() == 46.0
    assert apply((), value, operands) is value


# --- ops added at run time ----------------------------------------------------------------------

NEGATE = EpilogueOp("negate", "epilogue::Negate")
ROW_BIAS = EpilogueOp("row_bias", "epilogue::RowBias", (TensorOperand("row_bias", ("m",)),))
RESIDUAL = EpilogueOp("residual", "epilogue::Residual", (TensorOperand("residual", ("m", "n")),))


@pytest.fixture
def further_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU backend know the ops of these tests."""
    formulas = {
        NEGATE: lambda value, operands: -value,
        BIAS: lambda value, operands: value + operands["bias"],
        ROW_BIAS: lambda value, operands: value + operands["row_bias"][:, None],
        RESIDUAL: lambda value, operands: value + operands["residual"],
    }
    for op, formula in formulas.items():
        monkeypatch.setitem(FORMULAS, op, formula)


@pytest.mark.parametrize("name", CHAINS)
def test_an_op_flows_from_options_to_the_backend(name, further_formulas, rng):
    problem, chain = CHAINS[name]
    t = problems.make(problem, generator=rng).tensors
    before = None if t.c is None else t.c.clone()
    fast = Options(fast_accum=not problem.promoted)
    asked = fast._replace(epilogue=(NEGATE,))
    found = problem_of(t, asked, 1.0, 1.0)
    # The store adds nothing where an op follows C.
    reads = ADD_C in chain or problem.c_mode is CMode.REDUCE
    without_c = tuple(op for op in chain if op is not ADD_C)
    assert found.epilogue == (NEGATE,) and not found.variant.reduces_into_d
    assert found.variant.epilogue == (*without_c, *((ADD_C,) if reads else ()), NEGATE)
    assert "_negate" in found.variant.name and found.variant != problem.variant
    config = select(replace(found, m=512, n=576, k=1024), H200)
    assert "_negate" in config.name and "epilogue::Negate>;" in gemm_sm90.spec(config).unit.source

    wanted = torch.empty_like(t.d)
    c = t.c if before is None else before
    gemm(t._replace(d=wanted, c=c), fast)
    gemm(t, asked)
    assert_bitwise_equal(t.d, -wanted)


def test_an_op_follows_c_in_place(further_formulas, rng):
    problem = template(BF16, BF16, FP32, *NONE, c_mode=CMode.READ)
    t = problems.make(problem, generator=rng, in_place=True).tensors
    apart = t._replace(c=t.c.clone(), d=torch.empty_like(t.d))
    for factors in ((1.0, 1.0), (2.0, -0.5)):
        t.d.copy_(apart.c)
        gemm(apart, Options(epilogue=(NEGATE,)), *factors)
        gemm(t, Options(epilogue=(NEGATE,)), *factors)
        assert_bitwise_equal(t.d, apart.d)


OPERANDS = {
    "vector along N": ((BIAS,), ("n",)),
    "vector along M": ((ROW_BIAS,), ("m",)),
    "matrix": ((RESIDUAL,), ("mn",)),
    "several": ((BIAS, NEGATE, RESIDUAL, ROW_BIAS), ("n", "mn", "m")),
}


def operand_tensors(axes, extents, dtype, rng):
    return tuple(
        torch.randn([extents[axis] for axis in one], generator=rng).to(dtype) for one in axes
    )


@pytest.mark.parametrize("ops, axes", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("chunk", [1024, 3])
@pytest.mark.usefixtures("further_formulas")
def test_operands_reach_the_elements_they_belong_to(ops, axes, chunk, rng, monkeypatch):
    monkeypatch.setattr(backend, "CHUNK", chunk)
    problem = template(BF16, BF16, FP32, *NONE)
    t = problems.make(problem, generator=rng).tensors
    tensors = operand_tensors(axes, {"m": problem.m, "n": problem.n}, torch.float32, rng)
    gemm(t, Options())
    wanted, given = t.d.clone(), iter(tensors)
    for op in ops:
        operands = {operand.name: next(given) for operand in op.tensors}
        wanted = FORMULAS[op](wanted, operands)
    gemm(t._replace(epilogue=tensors), Options(epilogue=ops))
    assert_bitwise_equal(t.d, wanted)


GROUPED = {
    GroupKind.LABELS: (Grouping(GroupKind.LABELS, 2, 64), [0] * 64 + [1] * 64),
    GroupKind.OFFSETS: (Grouping(GroupKind.OFFSETS, 2), [40, 128]),
    GroupKind.MASKED: (Grouping(GroupKind.MASKED, 2), [128, 128]),
    GroupKind.BATCHED: (Grouping(GroupKind.BATCHED, 2), None),
}


@pytest.mark.parametrize("kind", GROUPED, ids=str)
@pytest.mark.parametrize("ops, axes", OPERANDS.values(), ids=OPERANDS)
def test_ops_follow_groups_of_rows(kind, ops, axes, further_formulas, rng):
    grouping, listed = GROUPED[kind]
    lead = (2,) if kind.is_stacked else ()
    a = torch.randn(*lead, 128, 64, generator=rng).bfloat16()
    b = torch.randn(2, 24, 64, generator=rng).bfloat16()
    layout = None if listed is None else torch.tensor(listed, dtype=torch.int32)
    d = torch.empty(*lead, 128, 24)
    tensors = operand_tensors(axes, {"m": 128, "n": 24}, torch.float32, rng)
    t = Tensors(a, None, b, None, None, d, layout, tensors)
    gemm(t._replace(epilogue=()), Options(grouping=grouping))
    wanted, given = d.clone(), iter(tensors)
    for op in ops:
        operands = {operand.name: next(given) for operand in op.tensors}
        parts = wanted.unbind() if lead else (wanted,)
        results = [FORMULAS[op](part, operands) for part in parts]
        wanted = torch.stack(results) if lead else results[0]
    gemm(t, Options(grouping=grouping, epilogue=ops))
    assert_bitwise_equal(d, wanted)


def test_ops_follow_groups_along_k_without_c(further_formulas, rng):
    a, b = (torch.randn(48, rows, generator=rng).bfloat16().t() for rows in (8, 16))
    extents, d = torch.tensor([32, 0, 16], dtype=torch.int32), torch.empty(3, 8, 16)
    options = Options(grouping=Grouping(GroupKind.ALONG_K, 3))
    gemm(Tensors(a, None, b, None, None, d, extents), options)
    wanted = -d
    gemm(Tensors(a, None, b, None, None, d, extents), options._replace(epilogue=(NEGATE,)))
    assert_bitwise_equal(d, wanted)
    with pytest.raises(UnsupportedError, match="with groups along K the store adds C"):
        gemm(Tensors(a, None, b, None, d, d, extents), options._replace(epilogue=(NEGATE,)))


# --- K = 0 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("d_dtype", [BF16, FP32, INT32], ids=lambda t: t.name)
@pytest.mark.parametrize("beta", [1.0, -0.5, 0.0])
def test_without_k_ops_follow_beta_c(d_dtype, beta, further_formulas, rng):
    exact_sums = d_dtype == INT32
    if exact_sums and beta == -0.5:
        return
    operands = INT8 if exact_sums else BF16
    problem = replace(
        template(operands, operands, d_dtype, *NONE, c_mode=CMode.READ), k=0, epilogue=(NEGATE,)
    )
    for in_place in (False, True):
        t = problems.make(problem, generator=rng, in_place=in_place).tensors
        if exact_sums:
            t.c.copy_(torch.randint(2**24, 2**30, t.c.shape, generator=rng))  # beyond float32
        wanted = -(t.c.double() * beta).to(d_dtype.torch)
        gemm(t, Options(epilogue=(NEGATE,)), 1.0 if exact_sums else 3.0, beta)
        assert torch.equal(t.d, wanted)
        gemm(t._replace(c=None), Options(epilogue=(NEGATE,)))
        assert (t.d == 0).all()


@pytest.mark.parametrize("ops, axes", OPERANDS.values(), ids=OPERANDS)
def test_without_k_operands_alone_are_left(ops, axes, further_formulas, rng):
    t = problems.make(replace(template(BF16, BF16, BF16, *NONE), k=0), generator=rng).tensors
    tensors = operand_tensors(axes, {"m": 5, "n": 16}, torch.bfloat16, rng)
    gemm(t._replace(epilogue=tensors), Options(epilogue=ops))
    wanted, given = torch.zeros(5, 16), iter(tensors)
    for op in ops:
        wanted = FORMULAS[op](wanted, {operand.name: next(given) for operand in op.tensors})
    assert_bitwise_equal(t.d, wanted.bfloat16())


def test_without_k_c_is_rounded_once(further_formulas, monkeypatch):
    """beta * C is not rounded to D's type before an op: 1 + 2^-9 - 1 is left, not 0."""
    minus_one = EpilogueOp("minus_one", "epilogue::MinusOne")
    monkeypatch.setitem(FORMULAS, minus_one, lambda value, operands: value - 1)
    a, b = torch.zeros(8, 0).bfloat16(), torch.zeros(8, 0).bfloat16()
    c, d = torch.ones(8, 8).bfloat16(), torch.empty(8, 8).bfloat16()
    gemm(Tensors(a, None, b, None, c, d), Options(epilogue=(minus_one,)), 1.0, 1 + 2.0**-9)
    assert (d == 2.0**-9).all()


# --- refusals -----------------------------------------------------------------------------------

GOOD = {"bias": torch.zeros(16).bfloat16(), "residual": torch.zeros(5, 16).bfloat16()}
REFUSED = {
    "none": ((), "epilogue: number of tensors must be 2, got 0"),
    "one": ((GOOD["bias"],), "epilogue: number of tensors must be 2, got 1"),
    "three": ((*GOOD.values(), GOOD["bias"]), "epilogue: number of tensors must be 2, got 3"),
    "none at all": ((GOOD["bias"], None), "residual: type must be torch.Tensor, got NoneType"),
    "no tensor": ((3.0, GOOD["residual"]), "bias: type must be torch.Tensor, got float"),
    "too many": ((*GOOD.values(), None), "epilogue: type must be torch.Tensor, got NoneType"),
    "shape": (
        (torch.zeros(5).bfloat16(), GOOD["residual"]),
        r"bias: shape must be \(16,\), got \(5,\)",
    ),
    "transposed": (
        (GOOD["bias"], torch.zeros(16, 5).bfloat16()),
        r"residual: shape must be \(5, 16\), got \(16, 5\)",
    ),
    "dimensions": (
        (torch.zeros(1, 16).bfloat16(), GOOD["residual"]),
        r"bias: shape must be \(16,\), got \(1, 16\)",
    ),
    "dtype": (
        (GOOD["bias"].float(), GOOD["residual"]),
        "bias: dtype must be torch.bfloat16, got torch.float32; D's type",
    ),
    "dtype of the matrix": (
        (GOOD["bias"], GOOD["residual"].half()),
        "residual: dtype must be torch.bfloat16, got torch.float16",
    ),
    "device": (
        (GOOD["bias"].to("meta"), GOOD["residual"]),
        r"bias: device must be cpu, got meta; move it with .to\('cpu'\)",
    ),
    "device of the matrix": (
        (GOOD["bias"], GOOD["residual"].to("meta")),
        "residual: device must be cpu, got meta",
    ),
    "strided": (
        (torch.zeros(32).bfloat16()[::2], GOOD["residual"]),
        "bias: stride of the last dimension must be 1, got 2",
    ),
    "column-major": (
        (GOOD["bias"], torch.zeros(16, 5).bfloat16().t()),
        "residual: stride of the last dimension must be 1, got 5",
    ),
    "overlapping rows": (
        (GOOD["bias"], torch.zeros(64).bfloat16().as_strided((5, 16), (8, 1))),
        "residual: row stride must be at least 16, got 8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_are_refused_are_named(name, further_formulas, rng):
    tensors, message = REFUSED[name]
    t = problems.make(template(BF16, BF16, BF16, *NONE), generator=rng).tensors
    t.d.fill_(7.0)
    with pytest.raises(ArgumentError, match=message):
        gemm(t._replace(epilogue=tensors), Options(epilogue=(BIAS, RESIDUAL)))
    assert (t.d == 7).all()
    with pytest.raises(ArgumentError, match="epilogue: number of tensors must be 0, got 1"):
        gemm(t._replace(epilogue=(GOOD["bias"],)), Options(epilogue=(NEGATE,)))
    gemm(t._replace(epilogue=tuple(GOOD.values())), Options(epilogue=(BIAS, RESIDUAL)))
    assert t.d.isfinite().all()
