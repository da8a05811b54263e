"""What decides which compiled kernel is found, and what a failed compile leaves."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.errors import CompileError
from deep_gemm.jit import build, builder, cache, cache_key, headers, nvrtc

from .cache_kit import PACKAGE, SOURCE, UNIT, folder_of, run

pytestmark = pytest.mark.usefixtures("cold_cache")


@pytest.mark.parametrize(
    "change",
    [
        {"source": SOURCE + "// one more line\n"},
        {"options": ("--gpu-architecture=sm_90",)},
        {"options": ("--gpu-architecture=sm_90a", "--use_fast_math")},
        {"entry": "gemm_other"},
    ],
    ids=str,
)
def test_the_key_covers_the_unit(change: dict[str, Any]) -> None:
    assert cache_key(UNIT, {}) != cache_key(replace(UNIT, **change), {})


def test_the_key_covers_headers_of_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "ROOT", tmp_path)
    (tmp_path / "outer.cuh").write_text('#include "deep_gemm/inner.cuh"\n')
    (tmp_path / "inner.cuh").write_text("#define X 1\n")
    unit = replace(UNIT, source='#include "deep_gemm/outer.cuh"\n' + SOURCE)
    before = cache_key(unit, headers.headers_for(unit.source))
    (tmp_path / "inner.cuh").write_text("#define X 2\n")
    assert cache_key(unit, headers.headers_for(unit.source)) != before


def test_the_key_covers_compiler_schema_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache_key(UNIT, {})}
    with monkeypatch.context() as patched:
        patched.setattr(nvrtc, "version", lambda: (99, 0))
        keys.add(cache_key(UNIT, {}))
    with monkeypatch.context() as patched:
        patched.setattr(cache, "SCHEMA", cache.SCHEMA + 1)
        keys.add(cache_key(UNIT, {}))
    keys |= {cache_key(UNIT, {}, [("interleave", version, bytes)]) for version in (1, 2)}
    assert len(keys) == 5


def test_cubin_passes_are_applied_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build(UNIT).cubin
    passes = (("a", 1, lambda cubin: cubin + b"a"), ("b", 1, lambda cubin: cubin + b"b"))
    monkeypatch.setattr(builder, "cubin_passes", lambda: passes)
    built = build(UNIT)
    assert built.cubin == plain + b"ab"
    assert (folder_of() / "kernel.cubin").read_bytes() == built.cubin


KEY_SCRIPT = f"""
from deep_gemm.jit import TranslationUnit, build
print(build({UNIT!r}).key)
"""


def test_the_key_depends_neither_on_the_packages_place_nor_on_the_caches(tmp_path: Path) -> None:
    elsewhere = tmp_path / "another place"
    shutil.copytree(PACKAGE, elsewhere / "deep_gemm", ignore=shutil.ignore_patterns("__pycache__"))
    there = run(KEY_SCRIPT, elsewhere, DG_JIT_CACHE_DIR=str(tmp_path / "another cache"))
    assert there == run(KEY_SCRIPT) == build(UNIT).key


def test_a_compile_error_shows_the_log_and_keeps_the_source(cold_cache: Path) -> None:
    source = SOURCE.replace("p[i];", "nonsense;")
    with pytest.raises(CompileError) as caught:
        build(replace(UNIT, source=source))
    message, path = str(caught.value), caught.value.source_path
    assert 'gemm_k_test.cu(3): error: identifier "nonsense" is undefined' in message
    assert path is not None
    assert str(path) in message
    assert path.read_text() == source
    assert "nonsense" in (path.parent / "log.txt").read_text()
    assert cache.entries() == []
    assert cache.verify() == {}
