"""The kernel cache under many threads and processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.errors import CompileError
from deep_gemm.jit import Built, build, builder, cache, nvrtc

from .cache_kit import PACKAGE, SOURCE, UNIT, at_once, folder_of, run

pytestmark = pytest.mark.usefixtures("cold_cache")


def test_sixteen_threads_compile_once(compiles: list[str]) -> None:
    results = at_once(16, lambda: build(UNIT))
    assert len({id(result) for result in results}) == 1
    assert results[0].cubin.startswith(b"\x7fELF")
    assert compiles == ["gemm_k_test"]


def test_a_failure_is_shared_by_those_who_wait_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, calls = threading.Semaphore(0), []
    real_compile = nvrtc.compile_cubin

    class Announced(Future[Built]):
        def result(self, timeout: float | None = None) -> Built:
            waiting.release()
            return super().result(timeout)

    def fail_once_all_others_wait(source: str, **rest: Any) -> nvrtc.Compiled:
        calls.append(source)
        if len(calls) > 1:
            return real_compile(source, **rest)
        for _ in range(7):
            assert waiting.acquire(timeout=60)
        raise CompileError("gemm_k_test", "out of luck", None)

    monkeypatch.setattr(builder, "Future", Announced)
    monkeypatch.setattr(nvrtc, "compile_cubin", fail_once_all_others_wait)
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


def test_sixteen_processes_share_one_cold_cache(cold_cache: Path) -> None:
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
    assert os.listdir(cold_cache) == [f"gemm_k_test.{built.key}"]
    assert cache.verify() == {}


def test_many_writers_over_a_damaged_entry_leave_a_good_one(cold_cache: Path) -> None:
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
    assert os.listdir(cold_cache) == [folder.name]
