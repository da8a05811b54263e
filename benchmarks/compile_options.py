"""What compile options give: extents compiled in, and room for two CTAs on an SM.

    python3 benchmarks/compile_options.py

For each shape the chosen configuration is timed with M, N and K at run time, with N and K, and with
all three compiled in; and decode configurations with one and with two CTAs to an SM, which halves
their registers and stages. Timings are interleaved, so that drift shows; microseconds per call,
graph replay over rotating inputs.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import torch

from deep_gemm.bench.dense_suite import Operands, ours_without_static_b, rotating_sets
from deep_gemm.bench.timing import time_calls
from deep_gemm.config import DeviceSpec, GemmConfig, forced, from_index, select, violations
from deep_gemm.config.candidates import finalize
from deep_gemm.problem import GemmProblem

SHAPES = (
    (1, 2112, 7168),
    (16, 7168, 2048),
    (64, 4096, 7168),
    (256, 2112, 7168),
    (512, 4096, 7168),
    (4096, 7168, 2048),
)
ROUNDS = 3


def main() -> None:
    """Print a line for each shape."""
    device = from_index(torch.cuda.current_device())
    for shape in SHAPES:
        chosen = select(GemmProblem.block_scaled(*shape), device)
        report(shape, {"chosen": chosen} | compiled(chosen, shape) | occupancies(chosen, device))


def compiled(config: GemmConfig, shape: tuple[int, int, int]) -> dict[str, GemmConfig]:
    """Return the configuration with extents compiled in."""
    _, n, k = shape
    return {
        "n, k compiled": replace(config, compiled=(0, n, k)),
        "m, n, k compiled": replace(config, compiled=shape),
    }


def occupancies(config: GemmConfig, device: DeviceSpec) -> dict[str, GemmConfig]:
    """Return the configuration with 2 CTAs to an SM for 1, or 1 for 2, if it can be built."""
    other = finalize(replace(config, ctas_per_sm=3 - config.ctas_per_sm, num_stages=0), device)
    return {} if violations(other, device) else {f"{other.ctas_per_sm} CTAs an SM": other}


def report(shape: tuple[int, int, int], configs: dict[str, GemmConfig]) -> None:
    """Time the configurations of a shape, interleaved, and print the medians."""
    sets = rotating_sets(*shape, [])
    times: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(ROUNDS):
        for name, config in configs.items():
            times[name].append(_time(config, sets))
    found = ", ".join(f"{name} {statistics.median(us):.2f}" for name, us in times.items())
    print(f"{' x '.join(map(str, shape))} ({configs['chosen'].name}): {found}", flush=True)


def _time(config: GemmConfig, sets: list[Operands]) -> float:
    with forced(config):
        return time_calls(ours_without_static_b(sets), target_ms=4.0)


if __name__ == "__main__":
    main()
