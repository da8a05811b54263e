"""BF16 GEMM under the names and argument orders of the DeepGEMM interface."""

from __future__ import annotations

import torch

from ..dispatch import gemm
from ..errors import ArgumentError
from ..operands import to_nt
from ..problem import checks
from ..problem.request import Options, Tensors
from .fp8 import check_compiled_dims

_OUTPUTS = (torch.bfloat16, torch.float32)
_OPTIONS = Options()


def bf16_gemm_nt(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
) -> None:
    """Write D = A @ B^T + C of bfloat16 operands.

    Arguments:
        a: A bfloat16 [M, K].
        b: B bfloat16 [N, K].
        d: bfloat16 or float32 [M, N], rows contiguous, written in place.
        c: of d's type and shape, added; may be d itself. None adds nothing.
        compiled_dims: accepted and checked; kernels take M, N and K at run time.

    Either dimension of A and of B may be the contiguous one: its strides say which. FP16 and other
    types are matmul()'s. Requirements, costs and errors as matmul().
    """
    _bf16_gemm("nt", a, b, d, c, compiled_dims)


def bf16_gemm_nn(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "nk",
) -> None:
    """Write D = A @ B + C: bf16_gemm_nt() with B as [K, N]."""
    _bf16_gemm("nn", a, b, d, c, compiled_dims)


def bf16_gemm_tn(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "mn",
) -> None:
    """Write D = A^T @ B + C: bf16_gemm_nt() with A as [K, M] and B as [K, N]."""
    _bf16_gemm("tn", a, b, d, c, compiled_dims)


def bf16_gemm_tt(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    compiled_dims: str = "mn",
) -> None:
    """Write D = A^T @ B^T + C: bf16_gemm_nt() with A as [K, M]."""
    _bf16_gemm("tt", a, b, d, c, compiled_dims)


def _bf16_gemm(
    layout: str,
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    c: torch.Tensor | None,
    compiled_dims: str,
) -> None:
    check_compiled_dims(compiled_dims)
    for name, value in (("a", a), ("b", b)):
        checks.dtype(name, checks.tensor(name, value), torch.bfloat16, "matmul() takes other types")
    if checks.tensor("d", d).dtype not in _OUTPUTS:
        raise ArgumentError("d", "dtype", "torch.bfloat16 or torch.float32", d.dtype)
    if layout != "nt":
        a, _, b, _ = to_nt(layout, a, None, b, None)
    gemm(Tensors(a, None, b, None, c, d), _OPTIONS)
