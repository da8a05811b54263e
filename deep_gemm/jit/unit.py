"""What goes into the compiler and what comes out, as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# What the kernels of this package are compiled with. --minimal leaves out the declarations of the
# CUDA runtime, textures and surfaces: 13 ms of 463 for a GEMM kernel (NVRTC 13.0).
OPTIONS = (
    "--gpu-architecture=sm_90a",
    "--std=c++20",
    "--device-as-default-execution-space",
    "--minimal",
)


@dataclass(frozen=True)
class TranslationUnit:
    """One kernel to compile.

    name: readable kernel name; it starts the name of the cache folder and heads compile errors.
    entry: the `extern "C"` symbol of the kernel.
    source: complete CUDA C++ text; it may include "deep_gemm/..." headers and nothing else.
    options: NVRTC options with the target among them, e.g. "--gpu-architecture=sm_90a".
    """

    name: str
    entry: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Resources:
    """What ptxas gave one kernel; -1 where its log did not say.

    registers: per thread at launch, before any setmaxnreg.
    stack_bytes, spill_store_bytes, spill_load_bytes: local memory per thread.
    shared_bytes: static shared memory per block (dynamic memory is chosen at launch).
    barriers: named barriers per block.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    barriers: int

    @property
    def spills(self) -> bool:
        """Say whether any register was spilled to local memory."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


@dataclass(frozen=True)
class Built:
    """A compiled kernel.

    folder: its entry in the disk cache, or None where nothing could be written.
    key: sha256 (hex) over everything that decides the cubin's content; no path is part of it.
    """

    cubin: bytes
    entry: str
    folder: Path | None
    key: str
    resources: Resources
