"""NVRTC without a GPU: cubins, logs, headers from memory, errors."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deep_gemm.errors import CompileError, UnsupportedError
from deep_gemm.jit import nvrtc

OPTIONS = ("--gpu-architecture=sm_90a", "--std=c++17")
SOURCE = """#include "deep_gemm/value.cuh"
extern "C" __global__ void gemm_k(float* p) { p[threadIdx.x] = VALUE; }
"""


def compile_with(value: str, options: tuple[str, ...] = OPTIONS) -> nvrtc.Compiled:
    headers = {"deep_gemm/value.cuh": f"#define VALUE {value}\n"}
    return nvrtc.compile_cubin(SOURCE, headers=headers, options=options, name="gemm_k")


def test_a_cubin_is_an_elf_file_that_depends_on_the_headers_text() -> None:
    one, again, two = compile_with("1.0f"), compile_with("1.0f"), compile_with("2.0f")
    assert one.cubin.startswith(b"\x7fELF")
    assert one.cubin == again.cubin
    assert one.cubin != two.cubin


def test_the_report_option_puts_registers_into_the_log() -> None:
    assert "registers" not in compile_with("1.0f").log
    log = compile_with("1.0f", (*OPTIONS, nvrtc.REPORT_OPTION)).log
    assert "Compiling entry function 'gemm_k' for 'sm_90a'" in log
    assert "registers" in log
    assert "\0" not in log


def test_an_error_carries_name_line_and_message() -> None:
    with pytest.raises(CompileError) as caught:
        compile_with("nonsense")
    assert "gemm_k.cu(2): error" in caught.value.log
    assert '"nonsense" is undefined' in str(caught.value)
    assert caught.value.source_path is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--gpu-architecture=sm_90a", "--no-such-option"), "no-such-option"),
        (("--gpu-architecture=compute_90a",), "real one"),
    ],
)
def test_wrong_options_are_compile_errors(options: tuple[str, ...], reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        compile_with("1.0f", options)


def test_includes_outside_the_given_headers_are_refused() -> None:
    with pytest.raises(CompileError, match="cuda_runtime.h"):
        nvrtc.compile_cubin("#include <cuda_runtime.h>", headers={}, options=OPTIONS, name="gemm_k")


def test_version_is_of_a_compiler_that_knows_hopper() -> None:
    assert nvrtc.version() >= (12, 0)


def test_threads_compile_side_by_side() -> None:
    values = [f"{i}.0f" for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = [compiled.cubin for compiled in pool.map(compile_with, values)]
    assert together == [compile_with(value).cubin for value in values]


def test_absent_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError(f"No module named {name!r}")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UnsupportedError, match="cuda-bindings and nvidia-cuda-nvrtc"):
        compile_with("1.0f")
