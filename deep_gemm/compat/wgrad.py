"""Weight gradients under the names of DeepGEMM's first version."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..dispatch import gemm
from ..errors import ArgumentError
from ..grouped import k_grouped_matmul
from ..operands import Pair
from ..problem import ScaleChoice, checks
from ..problem.request import Options, Tensors
from ..problem.scale_recipe import ROW_1X128
from .fp8 import unpack_fp8

_OPTIONS = Options(ScaleChoice.SCALED_1D1D)


def wgrad_gemm_fp8_fp8_fp32_nt(lhs: Pair, rhs: Pair, out: torch.Tensor) -> None:
    """Add lhs @ rhs^T to `out`; FP8 with 1x128 scales of both.

    Arguments:
        lhs: (float8_e4m3fn or float8_e5m2 [M, K], float32 [M, ceil(K / 128)] or its transpose).
        rhs: the same with N rows. Scales whose shape reads either way are taken as [N, K / 128].
        out: float32 [M, N], added to in place.

    Requirements, costs and errors as matmul().
    """
    x, sfa = unpack_fp8("lhs", lhs)
    w, sfb = unpack_fp8("rhs", rhs)
    checks.dtype("out", checks.tensor("out", out), torch.float32)
    tensors = Tensors(x, _by_rows(sfa, x), w, _by_rows(sfb, w), out, out)
    gemm(tensors, _OPTIONS)


def _by_rows(scale: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Return scales as [rows, ceil(K / 128)]; what has neither shape is left to gemm()'s checks."""
    if not isinstance(scale, torch.Tensor) or not isinstance(data, torch.Tensor):
        return scale
    if data.dim() != 2 or scale.dim() != 2:
        return scale
    wanted = ROW_1X128.shape(*data.shape)
    return scale.t() if scale.shape != wanted and scale.shape == wanted[::-1] else scale


def k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(
    lhs: Pair, rhs: Pair, out: torch.Tensor, batch_sizes: Sequence[int]
) -> None:
    """Add lhs_i @ rhs_i^T to out[i] for groups along K; FP8 with 1x128 scales of both.

    Arguments:
        lhs: (float8_e4m3fn or float8_e5m2, a contiguous buffer with M * K elements: the [M, k_i] of
            the groups one after another; float32 [M, S] or [S, M], S = sum of ceil(k_i / 128)).
        rhs: the same with N in place of M. Scales whose shape reads either way are taken as [N, S].
        out: float32 [G, M, N], added to in place.
        batch_sizes: k_i, multiples of 16. They are copied to the device, so a call cannot be
            captured in a CUDA graph; k_grouped_fp8_gemm_nt_contiguous() can.

    Requirements, costs and errors as k_grouped_matmul().
    """
    x, sfa = unpack_fp8("lhs", lhs)
    w, sfb = unpack_fp8("rhs", rhs)
    if checks.tensor("out", out).dim() != 3:
        raise ArgumentError("out", "shape", "[groups, M, N]", tuple(out.shape))
    extents = [int(k) for k in batch_sizes]
    if any(k < 0 or k % 16 for k in extents):
        raise ArgumentError("batch_sizes", "values", "multiples of 16, at least 0", extents)
    _, m, n = out.shape
    pairs = (x, _rows_first(sfa, m)), (w, _rows_first(sfb, n))
    on_device = torch.tensor(extents, dtype=torch.int32, device=out.device)
    k_grouped_matmul(*pairs, out, extents=on_device, total_k=sum(extents), c=out, layout="nt")


def _rows_first(scale: torch.Tensor, rows: int) -> torch.Tensor:
    """Return scales as [rows, S]; what has neither shape is left to the checks of the product."""
    if not isinstance(scale, torch.Tensor) or scale.dim() != 2 or scale.shape[0] == rows:
        return scale
    return scale.t() if scale.shape[1] == rows else scale
