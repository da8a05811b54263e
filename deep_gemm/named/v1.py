"""The names of DeepGEMM's first version."""

from __future__ import annotations

import torch

from ..gemm import Pair
from .fp8 import fp8_gemm_nt


def gemm_fp8_fp8_bf16_nt(lhs: Pair, rhs: Pair, out: torch.Tensor) -> None:
    """Write out = lhs @ rhs^T; fp8_gemm_nt() under its first name.

    Arguments:
        lhs: (float8_e4m3fn [M, K], float32 [M, ceil(K / 128)]).
        rhs: (float8_e4m3fn [N, K], float32 [ceil(N / 128), ceil(K / 128)]).
        out: bfloat16 [M, N].
    """
    fp8_gemm_nt(lhs, rhs, out)
