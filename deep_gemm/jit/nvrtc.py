"""CUDA C++ text to cubin through NVRTC; works without a GPU and without a CUDA toolkit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ..errors import CompileError, UnsupportedError

# Registers and spills reach the program log only with this option; NVRTC adds no time for it.
REPORT_OPTION = "--ptxas-options=-v"


@dataclass(frozen=True)
class Compiled:
    """A cubin and what NVRTC and ptxas said while making it."""

    cubin: bytes
    log: str


@cache
def version() -> tuple[int, int]:
    """Return NVRTC's (major, minor); UnsupportedError where NVRTC is not installed."""
    nvrtc = _bindings()
    try:
        result, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda-pathfinder: the shared library is not installed
        raise _not_installed(error) from error
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise UnsupportedError("NVRTC", [f"nvrtcVersion returned {result.name}"])
    return int(major), int(minor)


def compile_cubin(
    source: str, *, headers: Mapping[str, str], options: Sequence[str], name: str
) -> Compiled:
    """Compile one source to a cubin.

    headers: include name to text; nothing is read from disk.
    options: NVRTC options with the target (a real one, sm_XX, or there is no cubin).
    name: what diagnostics call the source.

    Raises CompileError with the log. Costs tenths of a second; safe from several threads.
    """
    nvrtc = _bindings()
    version()
    texts = [text.encode() for text in headers.values()]
    names = [header.encode() for header in headers]
    result, program = nvrtc.nvrtcCreateProgram(
        source.encode(), f"{name}.cu".encode(), len(texts), texts, names
    )
    _check(nvrtc, result, "nvrtcCreateProgram", name)
    try:
        encoded = [option.encode() for option in options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(nvrtc, program)
        _check(nvrtc, result, "nvrtcCompileProgram", name, log)
        result, size = nvrtc.nvrtcGetCUBINSize(program)
        _check(nvrtc, result, "nvrtcGetCUBINSize", name, log)
        if size == 0:
            raise CompileError(name, "no cubin: the target must be a real one (sm_XX)", None)
        cubin = bytes(size)
        (result,) = nvrtc.nvrtcGetCUBIN(program, cubin)
        _check(nvrtc, result, "nvrtcGetCUBIN", name, log)
        return Compiled(cubin, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bindings() -> ModuleType:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise _not_installed(error) from error
    module: ModuleType = nvrtc
    return module


def _not_installed(error: Exception) -> UnsupportedError:
    reason = f"install the pip packages cuda-bindings and nvidia-cuda-nvrtc ({error})"
    return UnsupportedError("compiling a kernel", [reason])


def _text(nvrtc: ModuleType, program: Any) -> str:
    result, size = nvrtc.nvrtcGetProgramLogSize(program)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS or size <= 1:
        return ""
    buffer = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, buffer)
    return buffer.rstrip(b"\0").decode(errors="replace")


def _check(nvrtc: ModuleType, result: Any, call: str, name: str, log: str = "") -> None:
    if result == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return
    raise CompileError(name, f"{call} returned {result.name}\n{log}", None)
