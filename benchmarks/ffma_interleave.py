"""Time kernels built without and with the pass that interleaves FFMA with yield hints.

    python3 benchmarks/ffma_interleave.py [MxNxK ...]

Needs a Hopper GPU. Each shape's chosen kernel is timed without, with, without and with the pass
(CUDA-graph replay over rotating inputs, median; microseconds per call), so that a drifting clock
shows as a difference between the rounds. Both results must be equal bit for bit: the pass changes
when instructions issue, not what they compute. Columns: `FFMA` in long runs, how many of them the
compiler made yield, how many the pass adds (where it adds none, off and on are one code), the
four times, and the sum of on over the sum of off.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

import torch

from deep_gemm import settings
from deep_gemm.bench.dense_suite import Operands, ours, problem, rotating_sets
from deep_gemm.bench.timing import time_calls
from deep_gemm.config import from_index, select
from deep_gemm.jit.ffma_interleave import Report, report
from deep_gemm.kernels import gemm_sm90

Shape = tuple[int, int, int]

FLAG = "DG_FFMA_INTERLEAVE"
ROUNDS = 2
SHAPES: tuple[Shape, ...] = (
    (512, 4096, 7168),
    (4096, 4096, 7168),
    (4096, 7168, 16384),
    (64, 2112, 7168),
    (4096, 7168, 2048),
    (64, 7168, 2048),  # from here on tiles of 64 rows, whose loops the compiler leaves alone
    (256, 4096, 7168),
)


@dataclass(frozen=True)
class Measured:
    """One shape: its kernel, what the compiler made of that, and microseconds of every round."""

    shape: Shape
    kernel: str
    compiler: Report
    off_us: list[float]
    on_us: list[float]


def use_pass(on: bool) -> None:
    """Build kernels with or without the pass from now on."""
    os.environ[FLAG] = str(int(on))
    settings.outdate_plans()


def measure(shape: Shape) -> Measured:
    """Compare both kernels of a shape, and time them, interleaved."""
    sets = rotating_sets(*shape, [])
    torch.cuda.synchronize()  # B counts as static and may be read early: it must be there
    compare(sets[0])
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for on, found in times.items():
            use_pass(on)
            found.append(time_calls(ours(sets)))
    use_pass(False)
    config = select(problem(*shape), from_index(torch.cuda.current_device()))
    compiler = report(gemm_sm90.spec(config).build().cubin)
    return Measured(shape, config.name, compiler, times[False], times[True])


def compare(s: Operands) -> None:
    """Raise ValueError where the two kernels' results differ in any bit."""
    results = []
    for on in (False, True):
        use_pass(on)
        s.d.fill_(torch.nan)
        ours([s])[0]()
        results.append(s.d.view(torch.int16).clone())
    if not torch.equal(*results):
        raise ValueError("the pass changed the result")


def line(found: Measured) -> str:
    """Return one shape as a line of the table."""
    name = " x ".join(map(str, found.shape))
    c = found.compiler
    pairs = zip(found.off_us, found.on_us, strict=True)
    times = "".join(f"{off:9.2f}{on:9.2f}" for off, on in pairs)
    counts = f"{c.ffmas:6d}{c.yielding:8d}{c.missing:6d}"
    return f"{name:20}{found.kernel:34}{counts}{times}{sum(found.on_us) / sum(found.off_us):9.4f}"


def header() -> str:
    """Return the head of the table."""
    times = f"{'off':>9}{'on':>9}" * ROUNDS
    return f"{'M x N x K':20}{'kernel':34}{'FFMA':>6}{'yield':>8}{'pass':>6}{times}{'on/off':>9}"


def _shape(text: str) -> Shape:
    m, n, k = map(int, text.lower().split("x"))
    return m, n, k


def main() -> None:
    """Measure the shapes of the command line, or those above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("shapes", type=_shape, nargs="*", default=SHAPES, metavar="MxNxK")
    shapes = parser.parse_args().shapes
    print(header())
    for shape in shapes:
        print(line(measure(shape)), flush=True)


if __name__ == "__main__":
    main()
