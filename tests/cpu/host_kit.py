"""Device headers compiled as host C++: what stands in for CUDA, and a way to run a program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_gemm.jit.headers import headers_for

Run = Callable[[str], list[list[int]]]

# Inline assembly is dropped: `asm volatile(...)` becomes `asm ("")`, and `asm(...)` nothing. What a
# program needs of it, it defines itself. Standard headers come first: they have assembly, too.
CUDA_AS_HOST = """
#include <cstdio>
#include <cstring>
#include <vector>
#define __host__
#define __device__
#define __forceinline__ inline
#define volatile(...) ("")
#define asm(...)
static struct { unsigned x; } blockIdx, gridDim;
static inline void __syncwarp() {}
static inline unsigned long long __cvta_generic_to_shared(const void*) { return 0; }
"""


def compile_host(program: str, folder: Path) -> Run:
    """Compile C++ that includes headers of the package; skips where there is no host compiler.

    The result passes text to the program's standard input, and returns the integers it printed, a
    list for each line.
    """
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no host C++ compiler")
    text = CUDA_AS_HOST + program
    for name, header in headers_for(text).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(header)
    source, binary = folder / "program.cpp", folder / "program"
    source.write_text(text)
    # Functions whose assembly was dropped return nothing, which -w says nothing about.
    command = [compiler, "-std=c++17", "-w", "-I", str(folder), str(source), "-o", str(binary)]
    subprocess.run(command, check=True)

    def run(lines: str) -> list[list[int]]:
        done = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True)
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    return run
