"""The dense FP8 suite with scales along K, and the host time of a call.

Row names: `ours` and `cublas_block` take 1x128 / 128x128 scales, `cublas_tensor` one scale each,
`torch_row` one scale a row and a column; the last three go through `torch._scaled_mm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from .. import fp8_gemm_nt
from ..layouts import align
from ..problem import GemmProblem
from . import suite
from .suite import Maker, Operands, Suite, Weight, operand_sets
from .timing import Call, host_time_us

NK = (
    (2112, 7168),
    (576, 7168),
    (24576, 1536),
    (32768, 512),
    (7168, 16384),
    (4096, 7168),
    (7168, 2048),
)
M = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHAPES = tuple((m, n, k) for n, k in NK for m in M)
HOST_SHAPE = (64, 4096, 7168)
HOST_ROUNDS = 20


def block_scaled_call(s: Operands, problem: GemmProblem) -> Call:
    """Return the call of fp8_gemm_nt() on one input set."""
    sfa, sfb = s.scales
    return partial(fp8_gemm_nt, (s.a, sfa), (s.b, sfb), s.d, static_b=problem.static_b)


def cublas_block(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's block-scaled product per input set, scales in the layouts it demands."""
    found = []
    for s in sets:
        sfa, sfb = s.scales
        found.append(scaled_mm(s, sfa.t().contiguous().t(), _padded_rows(sfb).t()))
    return found


def _padded_rows(sfb: torch.Tensor) -> torch.Tensor:
    """Return [rows, kb] scales whose rows start at multiples of 16 bytes."""
    kb = sfb.shape[1]
    return torch.nn.functional.pad(sfb, (0, align(kb, 4) - kb))[:, :kb] if kb % 4 else sfb


def cublas_tensor(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's product with one scale a tensor, fast accumulation, per input set."""
    one = torch.ones((), device="cuda")
    return [scaled_mm(s, one, one, use_fast_accum=True) for s in sets]


def torch_row(sets: Sequence[Operands]) -> list[Call]:
    """Return torch's row-wise scaled product, fast accumulation, per input set."""
    m, n = sets[0].d.shape
    x, y = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
    return [scaled_mm(s, x, y, use_fast_accum=True) for s in sets]


def scaled_mm(s: Operands, scale_a: torch.Tensor, scale_b: torch.Tensor, **options: Any) -> Call:
    """Return a call of torch._scaled_mm into bfloat16 on one input set."""
    options |= {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": torch.bfloat16}
    return partial(torch._scaled_mm, s.a, s.b.t(), **options)


def takes_fp8(n: int, k: int) -> bool:
    """Say whether torch._scaled_mm takes such extents."""
    return n % 16 == 0 and k % 16 == 0


def peer_calls(m: int, n: int, k: int) -> dict[str, Maker]:
    """Return the libraries that accept this shape."""
    peers: dict[str, Maker] = {}
    if k % 16 == 0 and m % 4 == 0 and n % 128 == 0:
        peers["cublas_block"] = cublas_block
    if takes_fp8(n, k):
        peers |= {"cublas_tensor": cublas_tensor, "torch_row": torch_row}
    return peers


FP8_BLOCK = Suite(
    "dense_fp8",
    "FP8, scales of 1x128 and 128x128",
    SHAPES,
    GemmProblem.block_scaled(0, 0, 0),
    ("cublas_tensor", "cublas_block", "torch_row"),
    peer_calls,
    block_scaled_call,
    corrected_by="cublas_tensor",
)


def problem(m: int, n: int, k: int) -> GemmProblem:
    """Return what `ours` asks for at this shape: with static_b up to M = DECODE_M."""
    return FP8_BLOCK.variants(m, n, k)["ours"]


def rotating_sets(m: int, n: int, k: int, weights: list[Weight]) -> list[Operands]:
    """Return as many input sets of the suite as are together larger than L2."""
    return suite.rotating_sets(problem(m, n, k), weights)


def ours(sets: Sequence[Operands]) -> list[Call]:
    """Return one call of this package per input set, with static_b=True up to M = DECODE_M."""
    return FP8_BLOCK.calls(problem(*_extents(sets[0])), sets)


def ours_without_static_b(sets: Sequence[Operands]) -> list[Call]:
    """Return one call of this package per input set, with nothing said about B."""
    return FP8_BLOCK.calls(GemmProblem.block_scaled(*_extents(sets[0])), sets)


def _extents(s: Operands) -> tuple[int, int, int]:
    (m, k), n = s.a.shape, s.b.shape[0]
    return m, n, k


def host_times() -> dict[str, float]:
    """Return the host microseconds of one warm call at 64 x 4096 x 7168, by library.

    Runs of the libraries are interleaved, and each library has its best of HOST_ROUNDS runs: a run
    is over in a millisecond, so a few in a row can all fall into one disturbance of the machine.
    """
    m, n, k = HOST_SHAPE
    s = operand_sets(problem(m, n, k), 1, [])[0]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    calls: dict[str, Call] = {
        "ours": ours_without_static_b([s])[0],
        "torch_mm": lambda: torch.mm(x, w.t(), out=s.d),
        "torch_scaled_mm": cublas_tensor([s])[0],
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(HOST_ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], host_time_us(call, repeats=1))
    return {name: round(us, 2) for name, us in best.items()}
