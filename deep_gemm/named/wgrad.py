"""Weight gradients under the names of DeepGEMM's first version."""

from __future__ import annotations

import torch

from .. import checks
from ..gemm import Pair, gemm
from ..quant.recipe import ROW_1X128
from ..request import Options, Tensors
from .fp8 import unpack_fp8

_OPTIONS = Options("rows")


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
