"""From a translation unit to a cubin: out of the cache, or compiled once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TypeAlias

from .. import settings
from ..errors import CompileError
from . import cache, ffma_interleave, nvrtc
from .headers import headers_for
from .unit import Built, TranslationUnit

# A pass over the finished cubin: name, version, and what turns the bytes into others.
CubinPass: TypeAlias = tuple[str, int, Callable[[bytes], bytes]]

_FFMA_INTERLEAVE = ("ffma_interleave", ffma_interleave.VERSION, ffma_interleave.interleave)


def cubin_passes() -> tuple[CubinPass, ...]:
    """Return the passes that are on now, in order; they are part of the key of what is built."""
    return (_FFMA_INTERLEAVE,) if settings.flag("DG_FFMA_INTERLEAVE") else ()


def build(unit: TranslationUnit) -> Built:
    """Return the compiled kernel of `unit`: from this process, from disk, or from NVRTC.

    Within a process a kernel is compiled once however many threads ask; the others wait. A failure
    reaches all who wait, and the next call tries again.

    Raises CompileError (log in the message, source kept on disk), UnsupportedError without NVRTC.
    Costs under a millisecond when known, tenths of a second when not.
    """
    headers, passes = headers_for(unit.source), cubin_passes()
    key = cache_key(unit, headers, passes)
    root = cache.configured_root()
    return _flights.run((root, key), lambda: _find_or_compile(unit, headers, passes, key))


def key_of(unit: TranslationUnit) -> str:
    """Return the key under which build() keeps a unit; nothing is compiled or read from disk."""
    return cache_key(unit, headers_for(unit.source), cubin_passes())


def cache_key(
    unit: TranslationUnit, headers: Mapping[str, str], passes: Sequence[CubinPass] = ()
) -> str:
    """Return the sha256 (hex) of everything that decides the cubin's content."""
    parts = {
        "schema": cache.SCHEMA,
        "nvrtc": nvrtc.version(),
        "name": unit.name,
        "entry": unit.entry,
        "source": unit.source,
        "options": _options(unit),
        "headers": sorted(headers.items()),
        "passes": [(name, version) for name, version, _ in passes],
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _options(unit: TranslationUnit) -> list[str]:
    return [*unit.options, nvrtc.REPORT_OPTION]


def _find_or_compile(
    unit: TranslationUnit, headers: Mapping[str, str], passes: Sequence[CubinPass], key: str
) -> Built:
    entry = cache.find(unit.name, key)
    if entry is None:
        return _compile(unit, headers, passes, key)
    _debug(f"hit {entry.folder}")
    return Built(entry.cubin, unit.entry, entry.folder, key, entry.resources)


def _compile(
    unit: TranslationUnit, headers: Mapping[str, str], passes: Sequence[CubinPass], key: str
) -> Built:
    from . import sass  # a kept kernel's resources are in its manifest

    options = _options(unit)
    start = time.perf_counter()
    try:
        compiled = nvrtc.compile_cubin(
            unit.source, headers=headers, options=options, name=unit.name
        )
    except CompileError as error:
        path = cache.store_failed(unit.name, key, unit.source, error.log)
        raise CompileError(unit.name, error.log, path) from None
    seconds = time.perf_counter() - start
    cubin = compiled.cubin
    for _, _, cubin_pass in passes:
        cubin = cubin_pass(cubin)
    resources = sass.resources(compiled.log, unit.entry)
    details = {
        "entry": unit.entry,
        "options": options,
        "nvrtc": list(nvrtc.version()),
        "passes": [[name, version] for name, version, _ in passes],
        "headers": {name: _sha256(text) for name, text in headers.items()},
        "compile_seconds": round(seconds, 3),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    folder = cache.store(
        unit.name,
        key,
        source=unit.source,
        cubin=cubin,
        log=compiled.log,
        resources=resources,
        details=details,
    )
    _debug(f"compiled {unit.name} in {seconds:.2f} s, kept in {folder}")
    return Built(cubin, unit.entry, folder, key, resources)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _debug(message: str) -> None:
    if settings.flag("DG_JIT_DEBUG"):
        print(f"deep_gemm.jit: {message}", file=sys.stderr)


class _Flights:
    """Run the work of a key once at a time; keep results, share failures and forget them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._lock = threading.Lock()
        self._futures: dict[object, Future[Built]] = {}

    def run(self, key: object, work: Callable[[], Built]) -> Built:
        """Return the result of `work`, called here or by the thread that came first."""
        while True:
            with self._lock:
                future = self._futures.get(key)
                if future is None:
                    mine = self._futures[key] = Future()
                    break
            with suppress(CancelledError):  # the first was interrupted: take its place
                return future.result()
        try:
            mine.set_result(work())
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            if not isinstance(error, Exception):
                mine.cancel()
                raise
            mine.set_exception(error)
        return mine.result()


_flights = _Flights()
# A child must not wait for a compile whose thread stayed in the parent.
os.register_at_fork(after_in_child=_flights.reset)
