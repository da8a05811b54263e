"""Formulas of epilogue ops in torch, one for each op of problem/epilogue.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from ..problem import GemmProblem
from ..problem.epilogue import ADD_C, ALPHA, SCALE, EpilogueOp
from ..problem.request import Tensors

Operands = Mapping[str, torch.Tensor]
Formula = Callable[[torch.Tensor, Operands], torch.Tensor]


def _alpha(value: torch.Tensor, operands: Operands) -> torch.Tensor:
    return value * operands["alpha"]


def _scale(value: torch.Tensor, operands: Operands) -> torch.Tensor:
    value = value * (operands["sfa"] * operands["alpha"])[:, None]
    return value * operands["sfb"]


def _add_c(value: torch.Tensor, operands: Operands) -> torch.Tensor:
    """Add beta * C, rounded once; C alone where sums are exact."""
    if not value.is_floating_point():
        return value + operands["c"]
    addend = operands["c"].to(torch.float64) * operands["beta"]
    return (value.to(torch.float64) + addend).to(torch.float32)


# value [m, n] is float32, or int64 where sums are exact; operands are those of its elements.
FORMULAS: dict[EpilogueOp, Formula] = {ALPHA: _alpha, SCALE: _scale, ADD_C: _add_c}


def apply(ops: Sequence[EpilogueOp], value: torch.Tensor, operands: Operands) -> torch.Tensor:
    """Return the values after a chain of ops, each in the arithmetic of its kernel."""
    for op in ops:
        value = FORMULAS[op](value, operands)
    return value


def further_operands(
    problem: GemmProblem, tensors: Sequence[torch.Tensor], rows: slice, columns: slice
) -> dict[str, torch.Tensor]:
    """Return the operands of a problem's further ops for some rows and columns of D."""
    parts = {("m",): (rows,), ("n",): (columns,), ("m", "n"): (rows, columns)}
    operands = (operand for op in problem.epilogue for operand in op.tensors)
    return {
        operand.name: value[parts[operand.axes]]
        for operand, value in zip(operands, tensors, strict=True)
    }


def of_empty_sum(problem: GemmProblem, t: Tensors, beta: float) -> torch.Tensor:
    """Return D where K = 0, before it is rounded: beta * C, then a problem's further ops."""
    exact = t.d.dtype == torch.int32
    value = t.d.new_zeros(t.d.shape, dtype=torch.int64 if exact else torch.float32)
    operands = further_operands(problem, t.epilogue, slice(None), slice(None))
    ops = problem.epilogue
    if t.c is not None:
        ops = (ADD_C, *ops)
        operands |= {"c": t.c, "beta": t.c.new_tensor(beta, dtype=torch.float32)}
    return apply(ops, value, operands)
