"""From tensors and options to a GemmProblem: every check that needs no address."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..dtypes import DType
from ..errors import ArgumentError, UnsupportedError
from . import checks
from .choices import CMode, GroupKind, Major
from .epilogue import TensorOperand
from .gemm_problem import GemmProblem
from .request import Options, Tensors
from .scales import OperandScales, exact_factors, operand_dtypes, output_dtype, recipes


def problem_of(t: Tensors, options: Options, alpha: float, beta: float) -> GemmProblem:
    """Check everything but addresses and what only TMA asks; return what is to be computed.

    Raises ArgumentError or UnsupportedError.
    """
    if options.grouping is not None:
        from .grouped import grouped_problem

        problem = grouped_problem(t, options, options.grouping, alpha, beta)
    else:
        problem = _dense_problem(t, options, alpha, beta)
    _check_epilogue(t, options, problem)
    return problem


def _dense_problem(t: Tensors, options: Options, alpha: float, beta: float) -> GemmProblem:
    for name in ("a", "b", "d"):
        checks.matrix(name, checks.tensor(name, getattr(t, name)))
    a_dtype, b_dtype = operand_dtypes(t.a, t.b)
    (m, k), n = t.a.shape, t.b.shape[0]
    checks.shape("b", t.b, (n, k), "A is [M, K] and B is [N, K]")
    checks.shape("d", t.d, (m, n))
    sides = OperandScales("sfa", t.sfa, m, k), OperandScales("sfb", t.sfb, n, k)
    scale_a, scale_b = recipes(sides, options.scales, options.fast_accum, a_dtype)
    d_dtype = output_dtype(t.d, a_dtype, scaled=scale_a is not None or scale_b is not None)
    if t.c is not None:
        checks.dtype("c", checks.tensor("c", t.c), t.d.dtype, "C has D's type")
        checks.shape("c", t.c, (m, n))
    exact_factors(d_dtype, alpha, beta, t.c is not None)
    checks.served_device({name: getattr(t, name) for name in t._fields[:6]}, t.a.device)
    for name in ("c", "d"):
        if getattr(t, name) is not None:
            checks.rows_contiguous(name, getattr(t, name))
    problem = GemmProblem(
        m, n, k, a_dtype, b_dtype, d_dtype, scale_a, scale_b,
        promoted=not options.fast_accum,
        a_major=checks.major("a", t.a), b_major=checks.major("b", t.b),
        c_mode=_c_mode(t, d_dtype, beta, options), epilogue=options.epilogue,
    )  # fmt: skip
    # A B that is transposed first is written by a kernel in flight.
    return replace(problem, static_b=options.static_b and "b" not in problem.transposed)


def _c_mode(t: Tensors, d_dtype: DType, beta: float, options: Options) -> CMode:
    if t.c is None:
        return CMode.NONE
    # No op can follow what the store adds.
    in_place = t.c.data_ptr() == t.d.data_ptr() and not options.epilogue
    return CMode.REDUCE if in_place and beta == 1 and d_dtype.bytes == 4 else CMode.READ


def _check_epilogue(t: Tensors, options: Options, problem: GemmProblem) -> None:
    """Check further epilogue ops and operands: D's type, contiguous along the last axis."""
    if options.epilogue and problem.c_mode is CMode.REDUCE:
        raise UnsupportedError("epilogue ops after C", ["with groups along K the store adds C"])
    operands = [operand for op in options.epilogue for operand in op.tensors]
    if len(operands) != len(t.epilogue):
        raise ArgumentError("epilogue", "number of tensors", len(operands), len(t.epilogue))
    extents = {"m": problem.m, "n": problem.n}
    for operand, value in zip(operands, t.epilogue, strict=True):
        _check_operand(operand, value, tuple(extents[axis] for axis in operand.axes), t.d)


def _check_operand(
    operand: TensorOperand, value: torch.Tensor, shape: tuple[int, ...], d: torch.Tensor
) -> None:
    name = operand.name
    checks.dtype(name, checks.tensor(name, value), d.dtype, "D's type")
    checks.shape(name, value, shape)
    checks.same_device(name, value, d.device)
    checks.rows_contiguous(name, value if value.dim() == 2 else value[None])


def check_tma(problem: GemmProblem, t: Tensors) -> None:
    """Check what only the GPU kernel asks: extents and pitches that TMA can address."""
    checks.tma_extents(problem.n, problem.d_dtype.bytes)
    if problem.grouping is None:
        for name, value, major in (("a", t.a, problem.a_major), ("b", t.b, problem.b_major)):
            if name not in problem.transposed:
                checks.tma_rows(name, value if major is Major.K else value.t())
        for name, output in (("d", t.d), ("c", t.c)):
            if output is not None:
                checks.tma_rows(name, output)
        return
    checks.tma_stack("d", t.d, Major.K)
    # FP8 buffers of groups along K have no rows of one length.
    if problem.grouping.kind is not GroupKind.ALONG_K or problem.a_major is Major.MN:
        checks.tma_stack("a", t.a, problem.a_major)
        if "b" not in problem.transposed:
            checks.tma_stack("b", t.b, problem.b_major)


def check_tensors(t: Tensors, options: Options) -> None:
    """Check that each member that must be a tensor is one."""
    for name, value in zip(Tensors._fields[:6], t[:6], strict=True):
        if value is not None or name in ("a", "b", "d"):
            checks.tensor(name, value)
    if t.grouped_layout is not None:
        from .grouped import layout_name

        checks.tensor(layout_name(options.grouping), t.grouped_layout)
    operands = [operand.name for op in options.epilogue for operand in op.tensors]
    operands += ["epilogue"] * len(t.epilogue)
    for name, value in zip(operands, t.epilogue, strict=False):
        checks.tensor(name, value)
