"""Seconds of the first call of a new shape, in a process of its own.

Run as a program it makes one call and prints the seconds; `measure` runs it twice, with an empty
kernel cache and with the one the first run filled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

SHAPE = (96, 4096, 7168)


def measure() -> dict[str, float]:
    """Return seconds of a first call: `empty` kernel cache, and `kept` from a process before."""
    with tempfile.TemporaryDirectory(prefix="deep_gemm-first-call-") as cache:
        return {"empty": _in_fresh_process(cache), "kept": _in_fresh_process(cache)}


def _in_fresh_process(cache: str) -> float:
    command = [sys.executable, "-m", __name__]
    # The folder the package was imported from, so that a source tree measures itself.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)
    environment = {**os.environ, "DG_JIT_CACHE_DIR": cache, "PYTHONPATH": path}
    # Whatever the driver or NVRTC keep of earlier compiles must not help.
    environment |= {"CUDA_CACHE_DISABLE": "1", "CUDA_CACHE_PATH": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"the first call failed in a fresh process:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def _one_call() -> float:
    """Time one call after torch, the package and the CUDA context are up, inputs in place."""
    import torch

    import deep_gemm

    m, n, k = SHAPE
    a = torch.zeros(m, k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.zeros(n, k, device="cuda").to(torch.float8_e4m3fn)
    sfa = torch.ones(-(-k // 128), m, device="cuda").t()
    sfb = torch.ones(-(-n // 128), -(-k // 128), device="cuda")
    d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    start = time.perf_counter()
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(f"{_one_call():.3f}")
