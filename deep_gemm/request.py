"""A request for a product: its tensors and options, checked and turned into a GemmProblem.

Grouped products are checked in request_groups.py; which types, scales and outputs go together is in
request_scales.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from . import checks, request_groups
from .dtypes import DType
from .problem import GemmProblem, Grouping
from .request_scales import Side, exact_factors, operand_dtypes, output_dtype, recipes


class Tensors(NamedTuple):
    """The tensors of D = alpha * A @ B^T + beta * C: A [M, K], B [N, K], C and D [M, N].

    groups: the int32 tensor of a Grouping, which also says how the others' shapes differ.
    """

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None
    c: torch.Tensor | None
    d: torch.Tensor
    groups: torch.Tensor | None = None


class Options(NamedTuple):
    """What is asked for besides the tensors.

    scales: "block" (1x128 with 128x128), "rows" (1x128 with 1x128), or "auto": by their shapes.
    fast_accum: FP8 sums stay in the tensor core over all of K.
    static_b: no kernel still in flight writes B or its scales.
    grouping: None for one product.
    """

    scales: str = "auto"
    fast_accum: bool = False
    static_b: bool = False
    grouping: Grouping | None = None


def problem_of(t: Tensors, options: Options, alpha: float, beta: float) -> GemmProblem:
    """Check everything but addresses and what only TMA asks; return what is to be computed.

    Raises ArgumentError or UnsupportedError.
    """
    if options.grouping is not None:
        return request_groups.problem_of(t, options, options.grouping, alpha, beta)
    for name in ("a", "b", "d"):
        checks.matrix(name, checks.tensor(name, getattr(t, name)))
    a_dtype, b_dtype = operand_dtypes(t.a, t.b)
    (m, k), n = t.a.shape, t.b.shape[0]
    checks.shape("b", t.b, (n, k), "A is [M, K] and B is [N, K]")
    checks.shape("d", t.d, (m, n))
    sides = Side("sfa", t.sfa, m, k), Side("sfb", t.sfb, n, k)
    scale_a, scale_b = recipes(sides, options.scales, options.fast_accum, a_dtype)
    d_dtype = output_dtype(t.d, a_dtype, scaled=scale_a is not None or scale_b is not None)
    if t.c is not None:
        checks.dtype("c", checks.tensor("c", t.c), t.d.dtype, "C has D's type")
        checks.shape("c", t.c, (m, n))
    exact_factors(d_dtype, alpha, beta, t.c is not None)
    checks.served_device(t._asdict(), t.a.device)
    for name in ("c", "d"):
        if getattr(t, name) is not None:
            checks.rows_contiguous(name, getattr(t, name))
    problem = GemmProblem(
        m, n, k, a_dtype, b_dtype, d_dtype, scale_a, scale_b,
        promoted=not options.fast_accum,
        a_major=checks.major("a", t.a), b_major=checks.major("b", t.b),
        addend=_addend(t, d_dtype, beta),
    )  # fmt: skip
    # A kernel in flight writes a B that is transposed first.
    return replace(problem, static_b=options.static_b and "b" not in problem.transposed)


def _addend(t: Tensors, d_dtype: DType, beta: float) -> str:
    if t.c is None:
        return "none"
    in_place = t.c.data_ptr() == t.d.data_ptr()
    return "reduce" if in_place and beta == 1 and d_dtype.bytes == 4 else "read"
