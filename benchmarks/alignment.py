"""Time products of ragged extents beside aligned ones of about their size.

    python3 benchmarks/alignment.py

Needs a Hopper GPU. Prints microseconds per call (CUDA-graph replay over rotating inputs, median),
TFLOPS of the real work, their share of an H200's nominal peak and of the peak at the clock that was
read, the time of cuBLASLt (one scale a tensor) over ours, and for a ragged product its time over
the aligned one's, per unit of real work: wanted are 1.05 or less.

Rows of 1000 e4m3 values do not start at multiples of 16 bytes, as TMA wants them: at K = 1000 A and
B are laid out in rows of 1024 by quant.align_rows(), K stays 1000.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from deep_gemm.bench import dense_suite
from deep_gemm.bench.nvml import NvmlDevice
from deep_gemm.bench.suite import Operands, capture_checked
from deep_gemm.bench.timing import capture, clock_under, time_interleaved
from deep_gemm.config import from_index
from deep_gemm.layouts import line_aligned_size
from deep_gemm.problem import GemmProblem
from deep_gemm.quant import align_rows, get_tma_aligned_size

Shape = tuple[int, int, int]

FLOPS_PER_CYCLE = 8192  # of one SM, dense FP8
NOMINAL_TFLOPS = 1979.0  # 132 SMs at 1830 MHz
# Aligned products, each with the ragged ones compared with it.
PAIRS: dict[Shape, tuple[Shape, ...]] = {
    (1024, 1024, 1024): ((1000, 1000, 1008), (1000, 1000, 1000)),
    (4096, 4096, 4096): ((4000, 4000, 4000),),
    (1024, 1024, 4096): (),
}


@dataclass(frozen=True)
class Measured:
    """One product: microseconds of ours and, where it takes the shape, of cuBLASLt; MHz."""

    shape: Shape
    us: float
    cublas_us: float | None
    mhz: int | None

    @property
    def tflops(self) -> float:
        """TFLOPS of the real work, without padding."""
        return GemmProblem.block_scaled(*self.shape).flops / self.us / 1e6


def share(ragged: Measured, aligned: Measured) -> float:
    """Return the ragged product's time over the aligned one's, per unit of real work."""
    return aligned.tflops / ragged.tflops


def align_operands(s: Operands) -> Operands:
    """Return the input set with rows of A and B that TMA takes."""
    return replace(s, a=align_rows(s.a), b=align_rows(s.b))


def measure(shape: Shape, device: NvmlDevice) -> Measured:
    """Check and time one product on the GPU."""
    sets = [align_operands(s) for s in dense_suite.rotating_sets(*shape, [])]
    ours = capture_checked(dense_suite.FP8_BLOCK, dense_suite.problem(*shape), sets)
    captured = {"ours": ours}
    cublas = dense_suite.peer_calls(*shape).get("cublas_tensor")
    if cublas:
        captured["cublas"] = capture(cublas(sets))
    us = time_interleaved(captured)
    return Measured(shape, us["ours"], us.get("cublas"), clock_under(ours, device))


def line(found: Measured, sms: int, aligned: Measured | None = None) -> str:
    """Return one product as text."""
    m, n, k = found.shape
    padded = f" (rows of {line_aligned_size(k, 1)})" if k != get_tma_aligned_size(k, 1) else ""
    text = f"{f'{m} x {n} x {k}{padded}':37} {found.us:8.2f} us {found.tflops:5.0f} TFLOPS"
    text += f"  {found.tflops / NOMINAL_TFLOPS:4.0%} of peak"
    if found.mhz:
        peak = sms * FLOPS_PER_CYCLE * found.mhz / 1e6
        text += f", {found.tflops / peak:4.0%} at {found.mhz} MHz"
    if found.cublas_us:
        text += f"  cuBLASLt over ours {found.cublas_us / found.us:.2f}"
    if aligned:
        text += f"  over {' x '.join(map(str, aligned.shape))}: {share(found, aligned):.3f}"
    return text


def main() -> None:
    """Measure and print every pair."""
    device = NvmlDevice()
    sms = from_index(torch.cuda.current_device()).sm_count
    for shape, ragged in PAIRS.items():
        aligned = measure(shape, device)
        print(line(aligned, sms), flush=True)
        for other in ragged:
            print(line(measure(other, device), sms, aligned), flush=True)


if __name__ == "__main__":
    main()
