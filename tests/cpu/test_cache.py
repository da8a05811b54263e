"""The disk cache and the builder: keys, damage, unwritable folders, threads and processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deep_gemm
from deep_gemm.errors import CompileError
from deep_gemm.jit import TranslationUnit, build, builder, cache, cache_key, headers, nvrtc

SOURCE = """extern "C" __global__ void gemm_k(float* p) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) p[i * 32 + threadIdx.x] += p[i];
}
"""
UNIT = TranslationUnit("gemm_k_test", "gemm_k", SOURCE, ("--gpu-architecture=sm_90a",))
PACKAGE = Path(deep_gemm.__file__).parent


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test its own cold cache and a process that remembers nothing."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(folder))
    forget()
    yield folder
    forget()


def forget() -> None:
    """Do what a new process does: start without results and without a chosen folder."""
    builder._flights.reset()
    cache._writable.clear()


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


def folder_of(unit: TranslationUnit = UNIT) -> Path:
    folder = build(unit).folder
    assert folder is not None
    return folder


# --- entries ------------------------------------------------------------------------------------


def test_an_entry_keeps_source_cubin_log_and_manifest(root: Path) -> None:
    built = build(UNIT)
    folder = folder_of()
    assert folder.parent == root
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
    assert not list(root.glob(".tmp-*"))


def test_a_new_process_finds_what_an_earlier_one_compiled(compiles: list[str]) -> None:
    first = build(UNIT)
    forget()
    assert build(UNIT) == first
    assert compiles == ["gemm_k_test"]


def test_the_same_process_does_not_read_the_disk_again(root: Path) -> None:
    first = build(UNIT)
    shutil.rmtree(root)
    assert build(UNIT) is first


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated cubin": lambda folder: os.truncate(folder / "kernel.cubin", 1000),
    "empty cubin": lambda folder: os.truncate(folder / "kernel.cubin", 0),
    "one bit flipped": lambda folder: flip(folder / "kernel.cubin"),
    "missing cubin": lambda folder: (folder / "kernel.cubin").unlink(),
    "missing manifest": lambda folder: (folder / "manifest.json").unlink(),
    "empty manifest": lambda folder: os.truncate(folder / "manifest.json", 0),
    "manifest is a list": lambda folder: (folder / "manifest.json").write_text("[]"),
    "manifest of another schema": lambda folder: edit_manifest(folder, schema=0),
    "manifest of another key": lambda folder: edit_manifest(folder, key="0" * 64),
    "manifest without resources": lambda folder: edit_manifest(folder, resources=None),
    "empty folder": lambda folder: [path.unlink() for path in folder.iterdir()],
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


def test_clear_removes_what_the_cache_wrote_and_nothing_else(root: Path) -> None:
    build(UNIT)
    with pytest.raises(CompileError):
        build(replace(UNIT, source="nonsense"))
    old, young = root / f".tmp-{'0' * 32}", root / f".tmp-{'1' * 32}"
    for folder in (root / "photographs", old, young):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert cache.clear() == 3
    assert cache.entries() == []
    assert not old.exists()
    assert young.exists()  # another process may be writing it
    assert (root / "photographs").exists()


def test_a_full_disk_costs_the_entry_and_not_the_kernel(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        built = build(UNIT)
    assert built.folder is None
    assert built.cubin.startswith(b"\x7fELF")
    assert list(root.iterdir()) == []


# --- keys ---------------------------------------------------------------------------------------


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
    for version in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(builder, "CUBIN_PASSES", (("interleave", version, bytes),))
            keys.add(cache_key(UNIT, {}))
    assert len(keys) == 5


def test_cubin_passes_are_applied_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build(UNIT).cubin
    passes = (("a", 1, lambda cubin: cubin + b"a"), ("b", 1, lambda cubin: cubin + b"b"))
    monkeypatch.setattr(builder, "CUBIN_PASSES", passes)
    built = build(UNIT)
    assert built.cubin == plain + b"ab"
    assert (folder_of() / "kernel.cubin").read_bytes() == built.cubin


KEY_SCRIPT = f"""
from deep_gemm.jit import TranslationUnit, build
print(build({UNIT!r}).key)
"""


def run(script: str, package_parent: Path = PACKAGE.parent, **environment: str) -> str:
    """Run a script in a new process; warnings are errors there unless it says otherwise."""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=package_parent,
        env={**os.environ, "PYTHONPATH": str(package_parent), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_key_depends_neither_on_the_packages_place_nor_on_the_caches(tmp_path: Path) -> None:
    elsewhere = tmp_path / "another place"
    shutil.copytree(PACKAGE, elsewhere / "deep_gemm", ignore=shutil.ignore_patterns("__pycache__"))
    there = run(KEY_SCRIPT, elsewhere, DG_JIT_CACHE_DIR=str(tmp_path / "another cache"))
    assert there == run(KEY_SCRIPT) == build(UNIT).key


# --- where --------------------------------------------------------------------------------------


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


# --- errors -------------------------------------------------------------------------------------


def test_a_compile_error_shows_the_log_and_keeps_the_source(root: Path) -> None:
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


# --- threads and processes ----------------------------------------------------------------------


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` on threads that start together; return results and exceptions."""
    barrier = threading.Barrier(count)

    def one(_: int) -> Any:
        barrier.wait()
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_sixteen_threads_compile_once(compiles: list[str]) -> None:
    results = at_once(16, lambda: build(UNIT))
    assert len({id(result) for result in results}) == 1
    assert results[0].cubin.startswith(b"\x7fELF")
    assert compiles == ["gemm_k_test"]


def test_a_failure_is_shared_by_those_who_wait_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, calls = threading.Semaphore(0), []
    real_run, real_compile = builder._flights.run, nvrtc.compile_cubin

    def announce(key: object, work: Callable[[], Any]) -> Any:
        waiting.release()
        return real_run(key, work)

    def fail_after_all_have_come(source: str, **rest: Any) -> nvrtc.Compiled:
        calls.append(source)
        if len(calls) > 1:
            return real_compile(source, **rest)
        for _ in range(8):
            assert waiting.acquire(timeout=60)
        threading.Event().wait(0.2)  # from its announcement to its wait
        raise CompileError("gemm_k_test", "out of luck", None)

    monkeypatch.setattr(builder._flights, "run", announce)
    monkeypatch.setattr(nvrtc, "compile_cubin", fail_after_all_have_come)
    results = at_once(8, lambda: build(UNIT))
    assert len(calls) == 1
    assert all("out of luck" in str(result) for result in results)
    assert build(UNIT).cubin.startswith(b"\x7fELF")
    assert len(calls) == 2


def test_an_interrupted_compile_does_not_interrupt_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, calls = threading.Event(), []
    real_compile = nvrtc.compile_cubin

    def interrupted_once(source: str, **rest: Any) -> nvrtc.Compiled:
        calls.append(source)
        if len(calls) > 1:
            return real_compile(source, **rest)
        started.set()
        threading.Event().wait(0.3)
        raise KeyboardInterrupt

    monkeypatch.setattr(nvrtc, "compile_cubin", interrupted_once)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(build, UNIT)
        assert started.wait(60)
        second = pool.submit(build, UNIT)
        assert second.result().cubin.startswith(b"\x7fELF")
        assert isinstance(first.exception(), KeyboardInterrupt)
    assert len(calls) == 2


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    script = f"""
import os, threading, warnings
from deep_gemm.jit import TranslationUnit, build, nvrtc
warnings.simplefilter("ignore")  # forking with threads is the point
unit, real = {UNIT!r}, nvrtc.compile_cubin
started, go = threading.Event(), threading.Event()
def slow(source, **rest):
    started.set()
    go.wait()
    return real(source, **rest)
nvrtc.version()
nvrtc.compile_cubin = slow
thread = threading.Thread(target=build, args=(unit,))
thread.start()
started.wait()
child = os.fork()
if child == 0:
    nvrtc.compile_cubin = lambda source, **rest: nvrtc.Compiled(b"child", "")
    os._exit(0 if build(unit).cubin == b"child" else 1)
status = os.waitpid(child, 0)[1]
go.set()
thread.join()
print(status)
"""
    assert run(script) == "0"


PROCESS_SCRIPT = f"""
import sys
from deep_gemm.jit import TranslationUnit, build
print("ready", flush=True)
sys.stdin.readline()
built = build({UNIT!r})
print(built.key, built.folder)
"""


def test_sixteen_processes_share_one_cold_cache(root: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PROCESS_SCRIPT]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(16)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 16, ended
    built = build(UNIT)
    assert {output for output, _ in ended} == {f"{built.key} {built.folder}\n"}
    assert os.listdir(root) == [f"gemm_k_test.{built.key}"]
    assert cache.verify() == {}


def test_many_writers_over_a_damaged_entry_leave_a_good_one(root: Path) -> None:
    built = build(UNIT)
    folder = folder_of()
    for _ in range(20):
        os.truncate(folder / "kernel.cubin", 10)

        def publish() -> Path | None:
            return cache.store(
                UNIT.name,
                built.key,
                source=SOURCE,
                cubin=built.cubin,
                log="",
                resources=built.resources,
                details={},
            )

        assert at_once(8, publish) == [folder] * 8
        assert cache.verify() == {}
    assert os.listdir(root) == [folder.name]
