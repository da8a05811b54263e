"""The names of DeepGEMM's first version."""

from __future__ import annotations

import torch

from ..operands import Pair
from .fp8 import fp8_gemm_nt
from .grouped import m_grouped_fp8_gemm_nt_contiguous, m_grouped_fp8_gemm_nt_masked


def gemm_fp8_fp8_bf16_nt(lhs: Pair, rhs: Pair, out: torch.Tensor) -> None:
    """Write out = lhs @ rhs^T; fp8_gemm_nt() under its first name.

    Arguments:
        lhs: (float8_e4m3fn [M, K], float32 [M, ceil(K / 128)]).
        rhs: (float8_e4m3fn [N, K], float32 [ceil(N / 128), ceil(K / 128)]).
        out: bfloat16 [M, N].
    """
    fp8_gemm_nt(lhs, rhs, out)


def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(
    lhs: Pair, rhs: Pair, out: torch.Tensor, m_indices: torch.Tensor
) -> None:
    """Write the product of rows with their group's B; m_grouped_fp8_gemm_nt_contiguous().

    Arguments:
        lhs: (float8_e4m3fn [M, K], float32 [M, ceil(K / 128)]).
        rhs: (float8_e4m3fn [G, N, K], float32 [G, ceil(N / 128), ceil(K / 128)]).
        out: bfloat16 [M, N].
        m_indices: int32 [M], the group of each row, -1 for none.
    """
    m_grouped_fp8_gemm_nt_contiguous(lhs, rhs, out, m_indices)


def m_grouped_gemm_fp8_fp8_bf16_nt_masked(
    lhs: Pair, rhs: Pair, out: torch.Tensor, masked_m: torch.Tensor, expected_m: int
) -> None:
    """Write the product of each group's valid rows; m_grouped_fp8_gemm_nt_masked().

    Arguments:
        lhs: (float8_e4m3fn [G, M, K], float32 [G, M, ceil(K / 128)]).
        rhs: (float8_e4m3fn [G, N, K], float32 [G, ceil(N / 128), ceil(K / 128)]).
        out: bfloat16 [G, M, N].
        masked_m: int32 [G], valid rows of each group.
        expected_m: rows to expect of a group; only speed depends on it.
    """
    m_grouped_fp8_gemm_nt_masked(lhs, rhs, out, masked_m, expected_m)
