"""Groups along K, the weight gradients of experts, under the names of the DeepGEMM interface."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import ArgumentError, UnsupportedError
from ..grouped import k_grouped_matmul
from ..operands import Pair
from ..problem import checks
from .fp8 import Recipe, check_compiled_dims, unpack_fp8
from .grouped import one_of

_ROWS = (1, 1, 128)


def k_grouped_fp8_gemm_nt_contiguous(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    recipe: Recipe = _ROWS,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
) -> None:
    """Write D[i] = C[i] + A_i @ B_i^T; FP8 with 1x128 scales of both.

    Arguments:
        a: (float8_e4m3fn or float8_e5m2, a contiguous buffer of any shape with M * K elements: the
            [M, k_i] of the groups one after another; sfa float32 [M, sum of ceil(k_i / 128)]).
        b: the same with N in place of M.
        d: float32 [G, M, N], written in place.
        ks_cpu: the extents for the host, which looks at their sum alone: K, at least that of
            grouped_layout. None or empty takes K from A's size. ks is its older name.
        grouped_layout: int32 [G] on the same device: k_i, multiples of 16, 0 allowed. ks_tensor is
            its older name.
        c: float32 [G, M, N], added: D itself, or first copied into it. None adds nothing.
        recipe: (1, 1, 128).
        compiled_dims: accepted and checked; kernels take M, N and K at run time.
        use_psum_layout: True raises UnsupportedError.

    Requirements, costs and errors as k_grouped_matmul().
    """
    if tuple(recipe or _ROWS) != _ROWS:
        reason = "(1, 1, 128) is served with groups along K"
        raise UnsupportedError(f"recipe {recipe}", [reason])
    _check_hints(compiled_dims, use_psum_layout)
    extents = one_of("grouped_layout", grouped_layout, "ks_tensor", ks_tensor)
    pairs = unpack_fp8("a", a), unpack_fp8("b", b)
    total = _total(ks_cpu, ks)
    k_grouped_matmul(*pairs, d, extents=extents, total_k=total, c=c, layout="nt")


def k_grouped_bf16_gemm_tn_contiguous(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    ks_cpu: Sequence[int] | None = None,
    grouped_layout: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
    *,
    ks: Sequence[int] | None = None,
    ks_tensor: torch.Tensor | None = None,
) -> None:
    """Write D[i] = C[i] + A_i^T @ B_i of bfloat16 operands.

    Arguments:
        a: bfloat16 [K, M], of which group i has the next k_i rows.
        b: bfloat16 [K, N], the same.
        d: float32 [G, M, N], written in place.
        others: as of k_grouped_fp8_gemm_nt_contiguous(); k_i may be any.
    """
    _check_hints(compiled_dims, use_psum_layout)
    for name, value in (("a", a), ("b", b)):
        remedy = "k_grouped_matmul() takes other types"
        checks.dtype(name, checks.tensor(name, value), torch.bfloat16, remedy)
    extents = one_of("grouped_layout", grouped_layout, "ks_tensor", ks_tensor)
    total = _total(ks_cpu, ks)
    k_grouped_matmul(a, b, d, extents=extents, total_k=total, c=c, layout="tn")


def _check_hints(compiled_dims: str, use_psum_layout: bool) -> None:
    check_compiled_dims(compiled_dims)
    if use_psum_layout:
        reason = "groups along K are given by their extents"
        raise UnsupportedError("use_psum_layout=True", [reason])


def _total(ks_cpu: Sequence[int] | None, ks: Sequence[int] | None) -> int | None:
    """Return the sum of the host's extents under either spelling; None where there are none."""
    if ks_cpu is not None and ks is not None:
        raise ArgumentError("ks_cpu, ks", "presence", "at most one of the two spellings", "both")
    given = ks if ks_cpu is None else ks_cpu
    if given is None:
        return None
    extents = [int(k) for k in given]
    if min(extents, default=0) < 0:
        raise ArgumentError("ks_cpu", "values", "at least 0", extents)
    return sum(extents) if extents else None
