"""Device headers compiled as host C++: what stands in for CUDA, and a way to run a program."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from deep_gemm.config import GemmConfig
from deep_gemm.config.raster import Raster, raster
from deep_gemm.jit.headers import headers_for
from deep_gemm.kernels.gemm_sm90 import Operands, tensor_maps
from deep_gemm.problem import GemmProblem

from .artifacts import artifact as kept

Run = Callable[[str], list[list[int]]]

PROGRAMS = Path(__file__).parent / "host"
# Inline assembly is dropped: `asm volatile(...)` becomes `asm ("")`, and `asm(...)` nothing. What a
# program needs of it, it defines itself. Standard headers come first: they have assembly, too.
CUDA_AS_HOST = """
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
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


def compile_host(
    program: str,
    folder: Path,
    included: Mapping[str, str] | None = None,
    optimized: Sequence[str] = (),
) -> Run:
    """Compile host/<program>.cpp, which includes headers of the package; skip without a compiler.

    included: further files the program includes, name to text, beside those of host/.
    optimized: further options of the compiler.

    The result passes text to the program's standard input, and returns the integers it printed, a
    list for each line.
    """
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no host C++ compiler")
    text = CUDA_AS_HOST + (PROGRAMS / f"{program}.cpp").read_text()
    beside = {path.name: path.read_text() for path in PROGRAMS.glob("*.hpp")}
    headers = headers_for("\n".join([text, *beside.values()]))
    files = {**headers, **beside, **(included or {}), "program.cpp": text}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    # Functions whose assembly was dropped return nothing, which -w says nothing about.
    options = ["-std=c++17", "-w", *optimized]

    def make(path: Path) -> None:
        places = ["-I", str(folder), "-o", str(path), str(folder / "program.cpp")]
        subprocess.run([compiler, *options, *places], check=True)

    binary = kept([sorted(files.items()), options, _version(compiler)], make)

    def run(lines: str) -> list[list[int]]:
        done = subprocess.run(
            [binary], input=lines, capture_output=True, text=True, check=True, timeout=60
        )
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    return run


@functools.cache
def _version(compiler: str) -> str:
    """Return what a compiler says of itself, with where it is and what it compiles for."""
    command = [compiler, "-v"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def cases_of(configs: Iterable[GemmConfig]) -> str:
    """Return show_case(index, params, grid) for a host program to include.

    It calls the program's show<Config>(params, grid) with the constants of the index-th
    configuration, as they stand in its kernel's source, and the type of its MMA's sums.
    """
    structs, cases = [], []
    for i, config in enumerate(configs):
        members = re.search(r"struct Config (\{.*?\};)", unit_of(config).source, re.DOTALL)
        assert members
        sums = "int" if config.variant.integer else "float"
        text = members[1].replace("HalfScaleMma", "ScaleMma")
        text = text.replace("HalfMma", f"SimulatedMma<Config{i}>")
        structs.append(f"struct Config{i} {text}".replace("{", f"{{ using Sum = {sums};", 1))
        cases.append(f"if (index == {i}) show<Config{i}>(params, grid);")
    show = "void show_case(uint32_t index, GemmParams& params, uint32_t grid) {\n"
    # What is rendered beside the constants of some; of any count, where they are simulated.
    named = "struct ScaleMma; template <class> struct SimulatedMma;"
    return "\n".join(["namespace deep_gemm {", named, *structs, show, *cases, "}", "}"])


def walk_of(config: GemmConfig, m: int, n: int, k: int, clusters: int = 1) -> Raster:
    """Return how `clusters` clusters at a time walk over a problem's tiles."""
    return raster(GemmProblem.block_scaled(m, n, k), config, clusters)


def launch_numbers(
    config: GemmConfig, m: int, n: int, k: int, walk: Raster, clusters: int
) -> tuple[int, ...]:
    """Return a launch of `clusters` clusters as host programs read it: extents, walk, CTAs."""
    band = walk.band, int(walk.band_on_m)
    edge = walk.edge.first, walk.edge.last, int(walk.edge.on_m)
    return m, n, k, walk.clusters_m, walk.clusters_n, *band, *edge, clusters * config.cluster_size


def map_numbers(config: GemmConfig, operands: Operands) -> tuple[int, ...]:
    """Return what host/kernel.cpp reads of the maps of A, of B twice, and of D twice."""
    maps, form = tensor_maps(config, operands), config.variant
    loaded = [(0, maps["map_a"]), (1, maps["map_b"]), (1, maps.get("map_extra", maps["map_b"]))]
    numbers: list[int] = []
    for of, box in loaded:
        extents = box.box_inner, box.box_outer, box.inner, box.outer
        major = (form.a_major, form.b_major)[of]
        numbers += [of, box.dtype_bytes, *extents, int(major == "mn"), box.matrices]
    for box in (maps["map_d"], maps.get("map_rest", maps["map_d"])):
        numbers += [box.box_inner, box.box_outer, box.swizzle_bytes, box.matrices]
    return tuple(numbers)
