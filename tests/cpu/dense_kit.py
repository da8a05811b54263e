"""Operands of a small product with 1x128 and 128x128 scales, and its judgement."""

from __future__ import annotations

import torch

from deep_gemm.testing.numerics import compare, reference_and_bound
from deep_gemm.testing.problems import make_block_scaled

M, N, K = 33, 72, 208
BF16 = torch.bfloat16


def operands(m: int = M, n: int = N, k: int = K, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Return A, its scales, B and its scales."""
    generator = torch.Generator().manual_seed(seed)
    return make_block_scaled(m, n, k, "cpu", generator)


def judge(out: torch.Tensor, tensors: tuple[torch.Tensor, ...]) -> None:
    """Fail unless every element of `out` is within its bound."""
    reference, bound = reference_and_bound(*tensors, BF16)
    report = compare(out, reference, bound)
    assert report.ok, str(report)


class CudaLike(torch.Tensor):
    """A CPU tensor whose plans are kept, as those of CUDA tensors are."""

    is_cuda = True
