"""Every benchmark suite, by the kind of its rows.

The dense FP8 suites have the same shapes. Peers, through torch: `cublas_tensor` and `torch_row` are
`torch._scaled_mm` with fast accumulation, `cublas` is `torch.mm` of BF16, `torch._int_mm` of INT8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from .. import wgrad_gemm_fp8_fp8_fp32_nt
from ..dtypes import BF16, E4M3, FP32, INT8, INT32
from ..problem import CMode, GemmProblem
from ..problem.scale_recipe import PER_CHANNEL, PER_TENSOR, ROW_1X128, ScaleRecipe
from .dense_suite import FP8_BLOCK, NK, SHAPES, scaled_mm, takes_fp8
from .suite import Maker, Operands, Suite
from .timing import Call

_INT_MM_MIN_M = 17


# --- FP8, scales after all of K -----------------------------------------------------------------


def cublas_tensor(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's product with the scale of each tensor, per input set."""
    return [scaled_mm(s, *s.scales, use_fast_accum=True) for s in sets]


def torch_row(sets: Sequence[Operands]) -> list[Call]:
    """Return torch's product with the scales of rows and columns, per input set."""
    return [scaled_mm(s, s.scales[0], s.scales[1].t(), use_fast_accum=True) for s in sets]


def _fp8_after_k(kind: str, title: str, recipe: ScaleRecipe, peer: Maker) -> Suite:
    """Return the suite of FP8 products with one kind of scales after all of K, beside one peer."""
    problem = GemmProblem(0, 0, 0, scale_a=recipe, scale_b=recipe, promoted=False)

    def peers(m: int, n: int, k: int) -> dict[str, Maker]:
        return {peer.__name__: peer} if takes_fp8(n, k) else {}

    return Suite(kind, title, SHAPES, problem, (peer.__name__,), peers, clock=False)


FP8_TENSOR = _fp8_after_k("dense_fp8_tensor", "FP8, one scale a tensor", PER_TENSOR, cublas_tensor)
FP8_ROW = _fp8_after_k("dense_fp8_row", "FP8, one scale a row and a column", PER_CHANNEL, torch_row)


# --- BF16, INT8 ---------------------------------------------------------------------------------


def cublas_bf16(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's BF16 product per input set."""
    return [partial(torch.mm, s.a, s.b.t(), out=s.d) for s in sets]


def cublas_int8(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's INT8 product per input set, into a tensor of its own."""
    return [partial(torch._int_mm, s.a, s.b.t()) for s in sets]


def _bf16_peers(m: int, n: int, k: int) -> dict[str, Maker]:
    return {"cublas": cublas_bf16}


def _int8_peers(m: int, n: int, k: int) -> dict[str, Maker]:
    accepted = m >= _INT_MM_MIN_M and n % 8 == 0 and k % 8 == 0
    return {"cublas": cublas_int8} if accepted else {}


DENSE_BF16 = Suite(
    "dense_bf16",
    "BF16",
    tuple((m, n, k) for n, k in (*NK, (4096, 4096)) for m in (1, 16, 64, 128, 512, 1024, 4096)),
    GemmProblem(0, 0, 0, BF16, BF16, BF16, None, None),
    ("cublas",),
    _bf16_peers,
    clock=False,
    corrected_by="cublas",
)
DENSE_INT8 = Suite(
    "dense_int8",
    "INT8 into INT32",
    tuple(
        (m, n, k)
        for n, k in ((4096, 4096), (7168, 2048), (24576, 1536))
        for m in (32, 128, 1024, 4096)
    ),
    GemmProblem(0, 0, 0, INT8, INT8, INT32, None, None),
    ("cublas",),
    _int8_peers,
)


# --- weight gradients ---------------------------------------------------------------------------


def wgrad_call(s: Operands, problem: GemmProblem) -> Call:
    """Return the call that adds a weight gradient to its sum, on one input set."""
    sfa, sfb = s.scales
    return partial(wgrad_gemm_fp8_fp8_fp32_nt, (s.a, sfa), (s.b, sfb), s.d)


WGRAD = Suite(
    "wgrad",
    "FP8 weight gradients, scales of 1x128, added into FP32",
    (
        (7168, 2112, 4096),
        (4096, 7168, 4096),
        (7168, 4096, 8192),
        (7168, 7168, 4096),
        (2112, 7168, 8192),
        (4096, 7168, 8192),
    ),
    GemmProblem(0, 0, 0, E4M3, E4M3, FP32, ROW_1X128, ROW_1X128, c_mode=CMode.REDUCE),
    call=wgrad_call,
    decode_m=0,
)

SUITES = {
    suite.kind: suite for suite in (FP8_BLOCK, FP8_TENSOR, FP8_ROW, DENSE_BF16, DENSE_INT8, WGRAD)
}
