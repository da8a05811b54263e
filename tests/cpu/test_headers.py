"""Headers that a source includes, and those that they include."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_gemm.errors import CompileError
from deep_gemm.jit import headers
from deep_gemm.jit.headers import headers_for


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(headers, "ROOT", tmp_path)
    files = {
        "kernels/k.cuh": '#pragma once\n#include "deep_gemm/ptx/a.cuh"\n#include <cuda_fp8.h>\n',
        "ptx/a.cuh": '  #  include <deep_gemm/ptx/b.cuh>\n#include "deep_gemm/kernels/k.cuh"\n',
        "ptx/b.cuh": 'struct B {};  // no #include "deep_gemm/none.cuh" in a comment\n',
        "unused.cuh": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_includes_are_found_transitively_sorted_and_despite_cycles(root: Path) -> None:
    found = headers_for('#include "deep_gemm/kernels/k.cuh"\nint x;\n')
    assert list(found) == ["deep_gemm/kernels/k.cuh", "deep_gemm/ptx/a.cuh", "deep_gemm/ptx/b.cuh"]
    assert found["deep_gemm/ptx/b.cuh"] == (root / "ptx/b.cuh").read_text()


def test_a_source_without_includes_needs_no_header() -> None:
    assert headers_for("int x;") == {}


def test_a_missing_header_is_named_with_its_includer(root: Path) -> None:
    (root / "ptx/b.cuh").write_text('#include "deep_gemm/gone.cuh"\n')
    with pytest.raises(CompileError, match=r"deep_gemm/gone.cuh\nincluded by deep_gemm/ptx/b.cuh"):
        headers_for('#include "deep_gemm/ptx/a.cuh"\n')


def test_every_header_of_the_package_includes_only_headers_of_the_package() -> None:
    files = sorted(headers.ROOT.rglob("*.cuh"))
    assert files
    for file in files:
        for line in file.read_text().splitlines():
            if line.lstrip().startswith("#include"):
                assert '"deep_gemm/' in line, f"{file}: {line}"
        headers_for(file.read_text())
