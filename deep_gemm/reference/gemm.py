"""Block-scaled GEMM in torch: the CPU backend, and the float64 product that accuracy is judged by.

Both take tensors of any device and any strides.
"""

from __future__ import annotations

import torch

from ..quant.cast import dequantize
from ..quant.recipe import BLOCK_128X128, ROW_1X128

BLOCK = 128  # extent of a scale block along n and k
CHUNK = 1024  # rows of A and of B held as float64 at a time

_HALF_ULP_BITS = (1 << 29) - 1  # float64 mantissa bits that float32 lacks
_MIDPOINT = 1 << 28


def block_scaled_gemm_nt(
    a: torch.Tensor,
    sfa: torch.Tensor,
    b: torch.Tensor,
    sfb: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Compute out[m, n] = sum over k-blocks of sfa * sfb * (A block . B block), as the kernel does.

    Requirements: a FP8 [m, k]; sfa float32 [m, ceil(k / 128)]; b FP8 [n, k]; sfb float32
    [ceil(n / 128), ceil(k / 128)]; out bfloat16 or float32 [m, n]. Any strides. The last block
    of n and of k may be partial; k = 0 gives zeros.

    Arithmetic, k-blocks in sequence: the dot product over one block of 128 is exact and rounded
    once to float32; acc = fma(partial, sfa * sfb, acc) in float32, rounded once; acc is rounded
    once into out. (Double rounding is possible only where acc is subnormal.) So a result depends
    on its own row of A and row of B alone, bit for bit. The tensor cores differ in one point:
    they keep about 13 bits of the partial; see testing.numerics.

    Costs m * n * k float64 multiply-adds; the workspace is 24 MiB plus 16 KiB for each k.
    """
    m, n = out.shape
    for n0 in range(0, n, CHUNK):
        columns = slice(n0, min(n0 + CHUNK, n))
        b64 = b[columns].to(torch.float64)
        sfb_rows = sfb[torch.arange(columns.start, columns.stop, device=sfb.device) // BLOCK]
        for m0 in range(0, m, CHUNK):
            rows = slice(m0, min(m0 + CHUNK, m))
            a64 = a[rows].to(torch.float64)
            out[rows, columns] = _accumulate(a64, sfa[rows], b64, sfb_rows)


def float64_gemm_nt(
    a: torch.Tensor, sfa: torch.Tensor, b: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """Return the product of the dequantized operands in float64, [m, n].

    Requirements as for block_scaled_gemm_nt. Holds all of A and B as float64.
    """
    a64 = dequantize(a, sfa, ROW_1X128, torch.float64)
    b64 = dequantize(b, sfb, BLOCK_128X128, torch.float64)
    return a64 @ b64.T


def _accumulate(
    a64: torch.Tensor, sfa: torch.Tensor, b64: torch.Tensor, sfb_rows: torch.Tensor
) -> torch.Tensor:
    """Return the float32 accumulators of one chunk; sfb_rows has one row for each row of b64."""
    (m, k), n = a64.shape, b64.shape[0]
    acc = torch.zeros((m, n), dtype=torch.float32, device=a64.device)
    work = torch.empty((m, n), dtype=torch.float64, device=a64.device)
    partial, scale = torch.empty_like(acc), torch.empty_like(acc)
    for kb, k0 in enumerate(range(0, k, BLOCK)):
        torch.mm(a64[:, k0 : k0 + BLOCK], b64[:, k0 : k0 + BLOCK].T, out=work)
        partial.copy_(work)
        torch.mul(sfa[:, kb, None], sfb_rows[None, :, kb], out=scale)
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
