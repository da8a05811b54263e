"""Fixtures of the tests that compile kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.jit import nvrtc

from .cache_kit import forget


@pytest.fixture
def cold_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test its own empty kernel cache and a process that remembers nothing."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(folder))
    forget()
    yield folder
    forget()


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each source that reaches NVRTC."""
    seen: list[str] = []
    real = nvrtc.compile_cubin

    def count(source: str, **rest: Any) -> nvrtc.Compiled:
        seen.append(rest["name"])
        return real(source, **rest)

    monkeypatch.setattr(nvrtc, "compile_cubin", count)
    return seen
