"""Device headers compiled as host C++: programs of host/, and what they read."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deep_gemm.config import GemmConfig
from deep_gemm.config.raster import Raster, raster
from deep_gemm.jit.headers import ROOT
from deep_gemm.jit.source import MmaShape
from deep_gemm.kernels.gemm_sm90 import GemmLayout, spec, tensor_maps
from deep_gemm.problem import GemmProblem, Major

from .artifacts import artifact

Run = Callable[[str], list[list[int]]]

PROGRAMS = Path(__file__).parent / "host"
# Functions whose assembly is dropped return nothing: no warnings. The last two let g++ use memory
# instead of collecting its garbage.
OPTIONS = ("-std=c++20", "-w", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables")
GCC_OPTIONS = ("--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=4000000")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A C++ source of host/ that includes headers of the package.

    name: its file, without the suffix.
    stands_in: headers of cuda/ptx whose functions the source defines itself; they are empty to it.
    options: further options of the compiler.
    included: further files that it includes, name to text.
    """

    name: str
    stands_in: Sequence[str] = ()
    options: Sequence[str] = ()
    included: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """The source and all that it includes, directly or through others: name to text."""
        found: dict[str, str] = {}
        pending = [f"{self.name}.cpp"]
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = self._read(name)
                pending += _INCLUDE.findall(found[name])
        return found

    def _read(self, name: str) -> str:
        if name in self.included:
            return self.included[name]
        if not name.startswith("deep_gemm/"):
            return (PROGRAMS / name).read_text()
        path = Path(name).relative_to("deep_gemm")
        if path.parent.name == "ptx" and path.stem in self.stands_in:
            return "#pragma once\n"
        return (ROOT / path).read_text()


def compile_host(*sources: Source) -> Run:
    """Compile and link sources, all at a time; skip the test without a compiler.

    The result passes text to the program's standard input, and returns the integers it printed, a
    list for each line.
    """
    compiler = _compiler()
    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(_object, sources))

    def link(path: Path) -> None:
        subprocess.run([compiler, "-o", path, *objects, "-pthread"], check=True)

    program = artifact([path.name for path in objects], link)

    def run(lines: str) -> list[list[int]]:
        done = subprocess.run(
            [program], input=lines, capture_output=True, text=True, check=True, timeout=60
        )
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    return run


def _object(source: Source) -> Path:
    compiler, files = _compiler(), source.files
    options = [*OPTIONS, *source.options]
    if "gcc version" in _version(compiler):
        options += GCC_OPTIONS

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                place = Path(folder) / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            command = [compiler, *options, "-I", ".", "-c", f"{source.name}.cpp", "-o", path]
            subprocess.run(command, check=True, cwd=folder)

    return artifact([sorted(files.items()), source.name, options, _version(compiler)], make)


def _compiler() -> str:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no host C++ compiler")
    return compiler


@functools.cache
def _version(compiler: str) -> str:
    """Return what a compiler says of itself, with its path and its target."""
    command = [compiler, "-v"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


# --- configurations -------------------------------------------------------------------------------


def configs_text(configs: Iterable[GemmConfig], first: int = 0, step: int = 1) -> str:
    """Return a file that defines Config<i> for the i-th configuration, i from `first` by `step`.

    Their members are those of the kernel's source, but that MMAs are simulated. The macro
    DG_FOR_EACH_CONFIG(DO) is DO(i, Config<i>) for each of them.
    """
    structs: list[str] = []
    epilogues: dict[str, str] = {}
    calls: list[str] = []
    for i, config in enumerate(configs):
        index, kernel = first + i * step, spec(config)
        (operands,), (members,) = (
            re.findall(rf"struct {name} (\{{.*?\}};)", kernel.unit.source, re.DOTALL)
            for name in ("EpilogueParams", "Config")
        )
        epilogue = epilogues.setdefault(operands, f"EpilogueParams{first}_{len(epilogues)}")
        members = members.replace("deep_gemm::EpilogueParams", epilogue)
        for name, value in kernel.constants:
            if isinstance(value, MmaShape):
                simulated = _simulated_mma(name, value)
                members = members.replace(
                    f"using {name} = {value.name};", f"using {name} = {simulated};"
                )
        structs.append(f"struct Config{index} {members}")
        calls.append(f"DO({index}, Config{index})")
    params = [f"struct {name} {members}" for members, name in epilogues.items()]
    lines = ['#include "mma.hpp"', "namespace deep_gemm {", *params, *structs, "}"]
    return "\n".join([*lines, f"#define DG_FOR_EACH_CONFIG(DO) {' '.join(calls)}\n"])


def _simulated_mma(name: str, mma: MmaShape) -> str:
    if name in ("ScaleMma", "HalfScaleMma"):
        return f"SimulatedScaleMma<{mma.n}>"
    majors = ", ".join(str(t).lower() for t in (mma.a_transposed, mma.b_transposed))
    accum, size = "int" if mma.is_integer else "float", 32 // mma.k
    return f"SimulatedMma<{mma.n}, {accum}, {size}, {majors}>"


# --- launches -------------------------------------------------------------------------------------


def raster_of(config: GemmConfig, m: int, n: int, k: int, resident: int = 1) -> Raster:
    """Return the raster of a problem with 1D2D scaling, for `resident` clusters at a time."""
    return raster(GemmProblem.block_scaled(m, n, k), config, resident)


def launch_words(
    config: GemmConfig, m: int, n: int, k: int, order: Raster, clusters: int
) -> tuple[int, ...]:
    """Return a launch of `clusters` clusters as host/launch.hpp reads it, but for the index."""
    residue = order.residue
    return (
        *(m, n, k, order.m_clusters, order.n_clusters, order.swizzle_width, int(order.along_n)),
        *(residue.head, residue.tail, int(residue.in_m), clusters * config.cluster_size),
    )


# --- whole kernels --------------------------------------------------------------------------------

KERNEL_PARTS = 2  # compiled at a time
PTX = ("cluster", "convert", "matrix", "mbarrier", "memory", "tma", "warp", "wgmma")


def simulator(configs: Sequence[GemmConfig]) -> Run:
    """Compile the kernels of configurations and the simulator, which names them by index."""
    optimized = Source("simulator", PTX, ("-O2", "-ffp-contract=off"))
    parts = [
        Source(
            "kernels",
            PTX,
            ("-O0", "-ffp-contract=off"),
            {"configs.inc": configs_text(configs[part::KERNEL_PARTS], part, KERNEL_PARTS)},
        )
        for part in range(KERNEL_PARTS)
    ]
    return compile_host(optimized, *parts)


def map_words(config: GemmConfig, layout: GemmLayout) -> tuple[int, ...]:
    """Return what host/simulator.cpp reads of the maps of A, of B twice, and of D twice."""
    maps, variant = tensor_maps(config, layout), config.variant
    loaded = [(0, maps["map_a"]), (1, maps["map_b"]), (1, maps.get("map_b_tail", maps["map_b"]))]
    words: list[int] = []
    for operand, box in loaded:
        extents = box.box_inner, box.box_outer, box.inner, box.outer
        major = (variant.a_major, variant.b_major)[operand]
        words += [operand, box.dtype_bytes, *extents, int(major is Major.MN), box.matrices]
    for box in (maps["map_d"], maps.get("map_d_tail", maps["map_d"])):
        words += [box.box_inner, box.box_outer, box.swizzle_bytes, box.matrices]
    return tuple(words)
