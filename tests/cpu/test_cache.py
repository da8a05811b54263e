"""The disk cache: its entries, damage to them, and where it lies."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.errors import CompileError
from deep_gemm.jit import build, cache

from .cache_kit import SOURCE, UNIT, folder_of, forget

pytestmark = pytest.mark.usefixtures("cold_cache")

# --- entries --------------------------------------------------------------------------------------


def test_an_entry_keeps_source_cubin_log_and_manifest(cold_cache: Path) -> None:
    built = build(UNIT)
    folder = folder_of()
    assert folder.parent == cold_cache
    assert folder.name == f"gemm_k_test.{built.key}"
    assert sorted(path.name for path in folder.iterdir()) == [
        "kernel.cu",
        "kernel.cubin",
        "log.txt",
        "manifest.json",
    ]
    assert (folder / "kernel.cu").read_text() == SOURCE
    assert (folder / "kernel.cubin").read_bytes() == built.cubin
    assert "registers" in (folder / "log.txt").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["cubin_sha256"] == hashlib.sha256(built.cubin).hexdigest()
    assert manifest["cubin_bytes"] == len(built.cubin)
    assert manifest["key"] == built.key
    assert manifest["resources"]["registers"] == built.resources.registers > 0
    assert not list(cold_cache.glob(".tmp-*"))


def test_a_new_process_finds_what_an_earlier_one_compiled(compiles: list[str]) -> None:
    first = build(UNIT)
    forget()
    assert build(UNIT) == first
    assert compiles == ["gemm_k_test"]


def test_the_same_process_does_not_read_the_disk_again(cold_cache: Path) -> None:
    first = build(UNIT)
    shutil.rmtree(cold_cache)
    assert build(UNIT) is first


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated cubin": lambda folder: os.truncate(folder / "kernel.cubin", 1000),
    "empty cubin": lambda folder: os.truncate(folder / "kernel.cubin", 0),
    "one bit flipped": lambda folder: flip(folder / "kernel.cubin"),
    "missing cubin": lambda folder: os.remove(folder / "kernel.cubin"),
    "missing manifest": lambda folder: os.remove(folder / "manifest.json"),
    "empty manifest": lambda folder: os.truncate(folder / "manifest.json", 0),
    "manifest is a list": lambda folder: (folder / "manifest.json").write_text("[]"),
    "manifest of another schema": lambda folder: edit_manifest(folder, schema=0),
    "manifest of another key": lambda folder: edit_manifest(folder, key="0" * 64),
    "manifest without resources": lambda folder: edit_manifest(folder, resources=None),
    "empty folder": empty_folder,
    "a file instead of the folder": replace_by_file,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_a_miss_and_is_repaired(
    damage: Callable[[Path], object], compiles: list[str]
) -> None:
    good = build(UNIT)
    folder = folder_of()
    damage(folder)
    assert list(cache.verify()) == [folder]
    assert cache.entries() == []
    forget()
    assert build(UNIT) == good
    assert len(compiles) == 2
    assert cache.verify() == {}
    assert [entry.folder for entry in cache.entries()] == [folder]
    assert os.listdir(folder.parent) == [folder.name]


def test_clear_removes_what_the_cache_wrote_and_nothing_else(cold_cache: Path) -> None:
    build(UNIT)
    with pytest.raises(CompileError):
        build(replace(UNIT, source="nonsense"))
    old, young = cold_cache / f".tmp-{'0' * 32}", cold_cache / f".tmp-{'1' * 32}"
    for folder in (cold_cache / "photographs", old, young):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert cache.clear() == 3
    assert cache.entries() == []
    assert not old.exists()
    assert young.exists()  # another process may be writing it
    assert (cold_cache / "photographs").exists()


def test_a_full_disk_costs_the_entry_and_not_the_kernel(
    cold_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        built = build(UNIT)
    assert built.folder is None
    assert built.cubin.startswith(b"\x7fELF")
    assert list(cold_cache.iterdir()) == []


# --- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["with a space", "with 'single' and \"double\" quotes", "a/b/c"])
def test_the_cache_may_lie_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: list[str]
) -> None:
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(tmp_path / name))
    assert folder_of().parent == tmp_path / name
    forget()
    build(UNIT)
    assert len(compiles) == 1


def test_home_is_used_where_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DG_JIT_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of().parent == tmp_path / ".deep_gemm"


def below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(tmp_path / "file" / "cache"))


def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DG_JIT_CACHE_DIR", "/proc/deep_gemm")  # nobody can write there


def read_only_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DG_JIT_CACHE_DIR")
    monkeypatch.setenv("HOME", "/proc")


def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DG_JIT_CACHE_DIR")
    monkeypatch.delenv("HOME")


def absent_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DG_JIT_CACHE_DIR")
    monkeypatch.setenv("HOME", "/nonexistent")


NO_PLACE = [below_a_file, read_only, read_only_home, no_home, absent_home]


@pytest.mark.parametrize("arrange", NO_PLACE)
def test_without_a_writable_place_a_private_folder_serves_with_one_warning(
    arrange: Callable[[Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiles: list[str],
) -> None:
    arrange(tmp_path, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = folder_of()
        build(replace(UNIT, source=SOURCE + "\n"))
        with pytest.raises(CompileError) as failure:
            build(replace(UNIT, source="nonsense"))
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "set DG_JIT_CACHE_DIR" in str(caught[0].message)
    assert folder.parent == tmp_path / f"deep_gemm-{os.getuid()}"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert failure.value.source_path is not None
    assert failure.value.source_path.is_file()
    assert not Path("/nonexistent").exists()
    # The next process profits from it.
    forget()
    with pytest.warns(RuntimeWarning):
        build(UNIT)
    assert len(compiles) == 3


def test_a_temporary_folder_of_someone_else_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(tmp_path, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"deep_gemm-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.warns(RuntimeWarning):
        folder = folder_of()
    assert folder.parent != planted
    assert folder.parent.parent == tmp_path
    assert list(planted.iterdir()) == []


def test_a_cache_that_can_only_be_read_serves_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: list[str]
) -> None:
    folder = folder_of()
    forget()
    monkeypatch.setattr(cache, "_why_not_writable", lambda root: "read-only")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert folder_of() == folder
    assert len(compiles) == 1
