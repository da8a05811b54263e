"""What the tests of the kernel cache share: a small kernel, and ways to start afresh."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deep_gemm
from deep_gemm.jit import TranslationUnit, build, builder, cache

SOURCE = """extern "C" __global__ void gemm_k(float* p) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) p[i * 32 + threadIdx.x] += p[i];
}
"""
UNIT = TranslationUnit("gemm_k_test", "gemm_k", SOURCE, ("--gpu-architecture=sm_90a",))
PACKAGE = Path(deep_gemm.__file__).parent


def forget() -> None:
    """Do what a new process does: start without results and without a chosen folder."""
    builder._flights.reset()
    cache._writable.clear()


def folder_of(unit: TranslationUnit = UNIT) -> Path:
    """Build a unit and return its folder in the cache."""
    folder = build(unit).folder
    assert folder is not None
    return folder


def run(script: str, package_parent: Path = PACKAGE.parent, **environment: str) -> str:
    """Run a script in a new process and return what it printed; a warning is an error there."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        cwd=package_parent,
        env={**os.environ, "PYTHONPATH": str(package_parent), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` on threads that start together; return results and exceptions."""
    barrier = threading.Barrier(count)

    def one(_: int) -> Any:
        barrier.wait()
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
