"""GEMM in torch: the CPU backend, and the float64 product that accuracy is judged by.

Both take tensors of any device and any strides.
"""

from __future__ import annotations

import torch

from ..problem import GemmProblem, Mainloop
from ..problem.epilogue import ADD_C
from ..problem.request import Tensors
from ..problem.scale_recipe import BLOCK_128X128, PER_TENSOR, ScaleRecipe
from ..quant.cast import dequantize
from .epilogue import apply, further_operands

BLOCK = 128  # elements of K that are promoted together, and of n that share a block's scale
CHUNK = 1024  # rows of A and of B held as float64 at a time

_HALF_ULP_BITS = (1 << 29) - 1  # float64 mantissa bits that float32 lacks
_MIDPOINT = 1 << 28


def gemm(problem: GemmProblem, t: Tensors, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Write D = alpha * A @ B^T + beta * C as the kernels do, for tensors that fit `problem`.

    Arithmetic: where sums are promoted, the dot product over one block of 128 of K is exact and
    rounded once to float32; acc = fma(partial, sfa * sfb, acc) in float32, rounded once, k-blocks
    in sequence (scales of 1 where there are none along K). Elsewhere the sum over all of K is exact
    and rounded once. Then, in float32, acc times (scale of the row * alpha), times the scale of the
    column, plus beta * C; rounded once into D. (Double rounding is possible only where acc is
    subnormal.) So a result depends on its own row of A and row of B alone, bit for bit. The tensor
    cores differ in two points: a product of two scales of 1x128 is within 2^-21 there, and they
    keep about 13 bits of an FP8 partial; see testing.numerics.

    Costs m * n * k float64 multiply-adds; the workspace is 24 MiB plus 16 KiB for each k.
    """
    one = torch.ones(1, 1, device=t.a.device)
    for n0 in range(0, problem.n, CHUNK):
        columns = slice(n0, min(n0 + CHUNK, problem.n))
        b64 = t.b[columns].to(torch.float64)
        for m0 in range(0, problem.m, CHUNK):
            rows = slice(m0, min(m0 + CHUNK, problem.m))
            a64 = t.a[rows].to(torch.float64)
            if problem.variant.mainloop is Mainloop.DIRECT:
                total = a64 @ b64.T
            elif problem.variant.mainloop is Mainloop.PROMOTED or t.sfa is None or t.sfb is None:
                total = _accumulate(a64, one, b64, one)
            else:
                sfb_rows = _rows_of(t.sfb, problem.scale_b, columns)
                total = _accumulate(a64, t.sfa[rows], b64, sfb_rows)
            t.d[rows, columns] = _epilogue(total, problem, t, (rows, columns), (alpha, beta))


def _rows_of(scale: torch.Tensor, recipe: ScaleRecipe | None, rows: slice) -> torch.Tensor:
    """Return the scales of some rows, one row of scales for each."""
    if recipe != BLOCK_128X128:
        return scale[rows]
    return scale[torch.arange(rows.start, rows.stop, device=scale.device) // BLOCK]


def _epilogue(
    total: torch.Tensor,
    problem: GemmProblem,
    t: Tensors,
    at: tuple[slice, slice],
    factors: tuple[float, float],
) -> torch.Tensor:
    """Return a chunk of D from its sums, by the problem's chain of epilogue ops."""
    (rows, columns), (alpha, beta) = at, factors
    exact = t.d.dtype == torch.int32
    value = total.to(torch.int64 if exact else torch.float32)
    one = value.new_ones(1, dtype=torch.float32)
    operands = further_operands(problem, t.epilogue, rows, columns)
    operands |= {"alpha": one.new_tensor(alpha), "beta": one.new_tensor(beta)}
    if problem.variant.has_epilogue_scales:
        operands["sfa"] = _vector(t.sfa, problem.scale_a, rows, one)
        operands["sfb"] = _vector(t.sfb, problem.scale_b, columns, one)
    if t.c is not None:
        operands["c"] = t.c[rows, columns]
    ops = problem.variant.epilogue
    if problem.variant.reduces_into_d:
        ops = (*ops, ADD_C)
    return apply(ops, value, operands)


def _vector(
    scale: torch.Tensor | None, recipe: ScaleRecipe | None, at: slice, one: torch.Tensor
) -> torch.Tensor:
    """Return the scale of each row of a chunk, or one for all."""
    if scale is None:
        return one
    flat = scale.reshape(-1)
    return flat if recipe == PER_TENSOR else flat[at]


def float64_gemm_nt(
    a: torch.Tensor,
    sfa: torch.Tensor | None,
    b: torch.Tensor,
    sfb: torch.Tensor | None,
    recipes: tuple[ScaleRecipe | None, ScaleRecipe | None],
) -> torch.Tensor:
    """Return the product of the dequantized operands in float64, [m, n].

    recipes: which elements of a and of b share a scale. Holds all of A and B as float64.
    """
    return _dequantized(a, sfa, recipes[0]) @ _dequantized(b, sfb, recipes[1]).T


def _dequantized(
    x: torch.Tensor, scale: torch.Tensor | None, recipe: ScaleRecipe | None
) -> torch.Tensor:
    if scale is None or recipe is None:
        return x.to(torch.float64)
    return dequantize(x, scale.reshape(recipe.shape(*x.shape)), recipe, torch.float64)


def _accumulate(
    a64: torch.Tensor, sfa: torch.Tensor, b64: torch.Tensor, sfb_rows: torch.Tensor
) -> torch.Tensor:
    """Return the float32 accumulators of one chunk; sfa and sfb_rows have a row for each of a64 and
    b64, or are of one element for all."""
    (m, k), n = a64.shape, b64.shape[0]
    sfa, sfb_rows = sfa.expand(m, -1), sfb_rows.expand(n, -1)
    acc = torch.zeros((m, n), dtype=torch.float32, device=a64.device)
    work = torch.empty((m, n), dtype=torch.float64, device=a64.device)
    partial, scale = torch.empty_like(acc), torch.empty_like(acc)
    for kb, k0 in enumerate(range(0, k, BLOCK)):
        torch.mm(a64[:, k0 : k0 + BLOCK], b64[:, k0 : k0 + BLOCK].T, out=work)
        partial.copy_(work)
        column = min(kb, sfa.shape[1] - 1)
        torch.mul(sfa[:, column, None], sfb_rows[None, :, column], out=scale)
        _fma_(acc, partial, scale, work)
    return acc


def _fma_(acc: torch.Tensor, x: torch.Tensor, y: torch.Tensor, work: torch.Tensor) -> torch.Tensor:
    """Set float32 acc to x * y + acc, rounded once; `work` is float64 space of the same shape.

    x * y is exact in float64. Rounding the sum to float64 and then to float32 goes wrong only
    where the float64 sum lies midway between two float32 values without being exact, so there
    the sum is moved off the midpoint, towards what it lost.
    """
    work.copy_(x).mul_(y).add_(acc)
    midway = (work.view(torch.int64) & _HALF_ULP_BITS) == _MIDPOINT
    if midway.any():
        _leave_midpoints_(work, x, y, acc, midway)
    return acc.copy_(work)


def _leave_midpoints_(
    total: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    acc: torch.Tensor,
    midway: torch.Tensor,
) -> None:
    """Replace selected float64 totals by the next value towards the exact x * y + acc."""
    product = x[midway].to(torch.float64) * y[midway].to(torch.float64)
    addend, rounded = acc[midway].to(torch.float64), total[midway]
    shift = rounded - addend
    lost = (addend - (rounded - shift)) + (product - shift)  # exact, by Knuth's two-sum
    towards = torch.sign(lost) * torch.inf
    total[midway] = torch.where(lost == 0, rounded, torch.nextafter(rounded, towards))
