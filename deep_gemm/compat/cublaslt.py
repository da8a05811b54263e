"""cuBLASLt's product through torch, under the names of the DeepGEMM interface: to compare with."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ArgumentError, UnsupportedError
from ..operands import to_nt
from ..problem import GemmProblem, Major, checks
from ..problem.from_tensors import problem_of
from ..problem.request import Options, Tensors

_ALIGNMENT = 16  # of K and N of FP8 operands
_OUTPUTS = (torch.bfloat16, torch.float32)


def cublaslt_gemm_nt(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None
) -> None:
    """Write D = A @ B^T + C with cuBLASLt; on the CPU with torch's float32 product.

    Arguments:
        a: A bfloat16 or FP8 [M, K].
        b: B of A's type [N, K]; the FP8 formats may be mixed, but not e5m2 with e5m2.
        d: bfloat16 or float32 [M, N], rows contiguous, written in place.
        c: of d's type and shape, added; may be d itself. None adds nothing.

    FP8 operands are multiplied as they are, without scales. On CUDA their K must be contiguous, and
    K and N multiples of 16. Adding C to an FP8 product takes a second kernel and a float32
    temporary, since torch adds no matrix to it.

    Raises ArgumentError or UnsupportedError; nothing has been written then.
    """
    _cublaslt_gemm("nt", a, b, d, c)


def cublaslt_gemm_nn(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None
) -> None:
    """Write D = A @ B + C: cublaslt_gemm_nt() with B as [K, N]."""
    _cublaslt_gemm("nn", a, b, d, c)


def cublaslt_gemm_tn(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None
) -> None:
    """Write D = A^T @ B + C: cublaslt_gemm_nt() with A as [K, M] and B as [K, N]."""
    _cublaslt_gemm("tn", a, b, d, c)


def cublaslt_gemm_tt(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None = None
) -> None:
    """Write D = A^T @ B^T + C: cublaslt_gemm_nt() with A as [K, M]."""
    _cublaslt_gemm("tt", a, b, d, c)


def _cublaslt_gemm(
    layout: str, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None
) -> None:
    x, _, w, _ = to_nt(layout, a, None, b, None)
    problem = problem_of(Tensors(x, None, w, None, c, d), Options(), 1.0, 1.0)
    _check(problem, d)
    if c is not None:
        checks.same_or_apart("c", c, d)
    if not d.is_cuda or 0 in (problem.m, problem.n, problem.k):
        _plain(x, w, d, c)
    elif problem.a_dtype.is_fp8:
        _check_fp8(problem)
        _scaled_mm(x, w, d, c)
    else:
        _mm(x, w, d, c)


def _check(problem: GemmProblem, d: torch.Tensor) -> None:
    a = problem.a_dtype
    if not a.is_fp8 and a.torch != torch.bfloat16:
        raise ArgumentError("a", "dtype", "torch.bfloat16 or an FP8 format", a.torch)
    if d.dtype not in _OUTPUTS:
        raise ArgumentError("d", "dtype", "torch.bfloat16 or torch.float32", d.dtype)


def _check_fp8(problem: GemmProblem) -> None:
    """Check what cuBLASLt asks of FP8 operands."""
    for name, major in (("a", problem.a_major), ("b", problem.b_major)):
        if major is not Major.K:
            raise UnsupportedError(f"{name} of FP8", ["cuBLASLt wants its K contiguous"])
    for name, extent in (("N", problem.n), ("K", problem.k)):
        if extent % _ALIGNMENT:
            reason = f"cuBLASLt wants {name} in multiples of {_ALIGNMENT}"
            raise UnsupportedError(f"FP8 operands with {name} = {extent}", [reason])
    if problem.a_dtype == problem.b_dtype and problem.a_dtype.torch == torch.float8_e5m2:
        raise UnsupportedError("e5m2 with e5m2", ["cuBLASLt multiplies e5m2 with e4m3 only"])


def _plain(x: torch.Tensor, w: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    product = x.to(torch.float32) @ w.to(torch.float32).t()
    d.copy_(product if c is None else product + c)


def _scaled_mm(x: torch.Tensor, w: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    one = torch.ones((), device=d.device)
    if c is None:
        torch._scaled_mm(x, w.t(), one, one, out_dtype=d.dtype, out=d)
    else:
        product = torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.float32)
        d.copy_(product.add_(c))


def _mm(x: torch.Tensor, w: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    # A type apart from the operands' is asked for by name.
    wider: dict[str, Any] = {} if d.dtype == x.dtype else {"out_dtype": d.dtype}
    try:
        if c is None:
            torch.mm(x, w.t(), out=d, **wider)
        else:
            torch.addmm(c, x, w.t(), out=d, **wider)
    except TypeError:
        reason = f"torch {torch.__version__} cannot ask cuBLASLt for it; 2.8 or newer can"
        raise UnsupportedError(f"{d.dtype} from {x.dtype}", [reason]) from None
