"""What tests that compile share: their order, and the folder of what compilers made."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.jit import nvrtc

from . import artifacts
from .cache_kit import forget

# Files whose tests need a compiler, in the order of the time they take: workers get them first.
COMPILING = (
    "test_compile.py",
    "test_cast_kernels.py",
    "test_cli.py",
    "test_simulated.py",
    "test_compile_groups.py",
    "test_simulated_groups.py",
    "test_group_tiles.py",
    "test_cluster.py",
    "test_ffma_interleave.py",
    "test_scheduler.py",
    "test_cache_sharing.py",
    "test_cast_grid.py",
    "test_columns.py",
    "test_cache.py",
    "test_group_tensor_maps.py",
    "test_sass.py",
    "test_cache_keys.py",
    "test_source.py",
    "test_nvrtc.py",
)
FOLDER = Path(__file__).parent
RANKS = {FOLDER / name: rank for rank, name in enumerate(COMPILING)}
assert all(path.exists() for path in RANKS), "COMPILING names a file that is not there"


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of what compilers made; workers of one run take the same."""
    # Most products here are so small that a second thread costs torch more time than it saves.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config.addinivalue_line("markers", "compiler: in a file whose tests need a compiler")
    if artifacts.CACHE_VARIABLE not in os.environ:
        os.environ[artifacts.CACHE_VARIABLE] = str(_artifact_folder(config))
    folder = Path(os.environ[artifacts.CACHE_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    if not hasattr(config, "workerinput"):
        artifacts.remove_old(folder)


def _artifact_folder(config: pytest.Config) -> Path:
    if cache := getattr(config, "cache", None):
        return cache.mkdir("compiled")
    folder = Path(tempfile.mkdtemp(prefix="deep_gemm-tests-"))  # -p no:cacheprovider
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take longest first, and mark those of compilers before -m is looked at."""
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))
    for item in items:
        if item.path in RANKS:
            item.add_marker(pytest.mark.compiler)


def pytest_collection_finish() -> None:
    """Keep modules and tests, which stay until the end, out of every garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kept_kernels() -> Path:
    """Return a kernel cache that lasts from run to run; not for tests of the cache itself."""
    return artifacts.kernel_cache()


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
