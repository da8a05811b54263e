"""The disk cache of compiled kernels: one folder a kernel, complete or absent.

A folder holds kernel.cu, kernel.cubin, log.txt and manifest.json. It is written under a temporary
name and renamed, so a reader never sees half of it, and everything read is checked against the
manifest (schema, key, size, sha256): whatever does not fit is a miss and is replaced.

There is no lock between processes. Sixteen of them may compile the same kernel at once; the first
rename wins and the others adopt its folder. A lock would save some processor time, would not make
any of them ready earlier, and is what hangs on network file systems and after killed processes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .unit import Resources

SCHEMA = 1

SOURCE, CUBIN, LOG, MANIFEST = "kernel.cu", "kernel.cubin", "log.txt", "manifest.json"
_FAILED = "failed"  # folder of sources that did not compile
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_.-]+\.[0-9a-f]{64}")
_TEMPORARY_NAME = re.compile(r"\.tmp-[0-9a-f]{32}")
_STALE_SECONDS = 600  # writing an entry takes milliseconds


@dataclass(frozen=True)
class Entry:
    """A complete, checked cache entry."""

    folder: Path
    cubin: bytes
    resources: Resources
    manifest: Mapping[str, Any]


# --- where --------------------------------------------------------------------------------------


def configured_root() -> Path | None:
    """Return the folder the environment asks for, existing or not; None without a usable one.

    DG_JIT_CACHE_DIR wins; else $HOME/.deep_gemm, where HOME is an existing folder.
    """
    chosen = os.environ.get("DG_JIT_CACHE_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    home = os.environ.get("HOME")
    if home and os.path.isdir(home):
        return Path(home).absolute() / ".deep_gemm"
    return None


_writable: dict[Path | None, Path] = {}
_writable_lock = threading.Lock()
os.register_at_fork(
    before=_writable_lock.acquire,
    after_in_parent=_writable_lock.release,
    after_in_child=_writable_lock.release,
)


def cache_root() -> Path:
    """Return the folder new entries go to, made if needed.

    Where the configured one cannot be written, that is a private folder below the system's
    temporary one, and a RuntimeWarning says so once a process.
    """
    wanted = configured_root()
    with _writable_lock:
        if wanted not in _writable:
            problem = "neither DG_JIT_CACHE_DIR nor HOME names a folder"
            if wanted is not None:
                problem = _why_not_writable(wanted)
            _writable[wanted] = _temporary_root(problem) if problem or not wanted else wanted
        return _writable[wanted]


def _why_not_writable(root: Path) -> str:
    # A probe, since permission bits say nothing for root or on a read-only mount.
    probe = _temporary_folder(root)
    try:
        probe.mkdir(parents=True)
        probe.rmdir()
    except OSError as error:
        return f"{root}: {error.strerror or error}"
    return ""


def _temporary_folder(root: Path) -> Path:
    return root / f".tmp-{uuid.uuid4().hex}"


def _temporary_root(problem: str) -> Path:
    root = Path(tempfile.gettempdir()) / f"deep_gemm-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        state = root.lstat()
        private = stat.S_ISDIR(state.st_mode) and not state.st_mode & 0o077
        if not private or state.st_uid != os.getuid() or _why_not_writable(root):
            raise PermissionError
    except OSError:  # someone else's: never load code from it
        root = Path(tempfile.mkdtemp(prefix="deep_gemm-"))
    warnings.warn(
        f"compiled kernels are kept in {root}, because the cache folder cannot be written "
        f"({problem}); set DG_JIT_CACHE_DIR to a folder that can",
        RuntimeWarning,
        stacklevel=2,
    )
    return root


# --- read ---------------------------------------------------------------------------------------


def find(name: str, key: str) -> Entry | None:
    """Return the entry of `key`, or None where there is none that can be trusted.

    A configured folder that can be read and not written still serves.
    """
    root = configured_root()
    entry = _read(root / _folder_name(name, key)) if root is not None else ""
    if isinstance(entry, str) and cache_root() != root:
        entry = _read(cache_root() / _folder_name(name, key))
    return entry if isinstance(entry, Entry) else None


def _read(folder: Path) -> Entry | str:
    """Return the entry, or a sentence that says what is wrong with it."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        cubin = (folder / CUBIN).read_bytes()
        if manifest["schema"] != SCHEMA:
            return f"schema {manifest['schema']} instead of {SCHEMA}"
        if not folder.name.endswith(f".{manifest['key']}"):
            return f"{MANIFEST} is of another key"
        if len(cubin) != manifest["cubin_bytes"]:
            return f"{CUBIN} has {len(cubin)} bytes instead of {manifest['cubin_bytes']}"
        if hashlib.sha256(cubin).hexdigest() != manifest["cubin_sha256"]:
            return f"{CUBIN} does not have the manifest's sha256"
        resources = Resources(**manifest["resources"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return Entry(folder, cubin, resources, manifest)


# --- write --------------------------------------------------------------------------------------


def store(
    name: str,
    key: str,
    *,
    source: str,
    cubin: bytes,
    log: str,
    resources: Resources,
    details: Mapping[str, Any],
) -> Path | None:
    """Write an entry and return its folder; None, with a warning, where the disk refuses.

    details: further JSON values for the manifest.
    """
    manifest = {
        **details,
        "schema": SCHEMA,
        "key": key,
        "name": name,
        "cubin_bytes": len(cubin),
        "cubin_sha256": hashlib.sha256(cubin).hexdigest(),
        "resources": asdict(resources),
    }
    root = cache_root()
    temporary = _temporary_folder(root)
    try:
        temporary.mkdir(parents=True)
        (temporary / SOURCE).write_text(source, encoding="utf-8")
        (temporary / CUBIN).write_bytes(cubin)
        (temporary / LOG).write_text(log, encoding="utf-8")
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        return _publish(temporary, root / _folder_name(name, key))
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        warnings.warn(f"compiled kernel not kept: {error}", RuntimeWarning, stacklevel=2)
        return None


def _publish(temporary: Path, final: Path) -> Path:
    for _ in range(32):  # each turn lost means that another process has just published
        try:
            temporary.rename(final)
            return final
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if isinstance(_read(final), Entry):
            shutil.rmtree(temporary, ignore_errors=True)
            return final
        _remove(final)
    raise OSError(f"{final} could not be replaced")


def _remove(path: Path) -> None:
    # Renamed before it is deleted: nothing under a final name is ever half gone.
    trash = _temporary_folder(path.parent)
    try:
        path.rename(trash)
    except FileNotFoundError:
        return
    if trash.is_dir() and not trash.is_symlink():
        shutil.rmtree(trash, ignore_errors=True)
    else:
        trash.unlink(missing_ok=True)


def store_failed(name: str, key: str, source: str, log: str) -> Path | None:
    """Keep a source that did not compile, with its log; return the path of the source."""
    folder = cache_root() / _FAILED / _folder_name(name, key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOG).write_text(log, encoding="utf-8")
        (folder / SOURCE).write_text(source, encoding="utf-8")
    except OSError:
        return None
    return folder / SOURCE


def _folder_name(name: str, key: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:96]
    return f"{readable}.{key}"


# --- keep ---------------------------------------------------------------------------------------


def folders() -> list[Path]:
    """Return the folder of every entry, trusted or not, in name order."""
    return _matching(cache_root(), _ENTRY_NAME)


def entries() -> list[Entry]:
    """Return every entry that can be trusted."""
    return [entry for entry in map(_read, folders()) if isinstance(entry, Entry)]


def verify() -> dict[Path, str]:
    """Return what is wrong, by folder; empty where every entry can be trusted."""
    read = {folder: _read(folder) for folder in folders()}
    return {folder: problem for folder, problem in read.items() if isinstance(problem, str)}


def clear() -> int:
    """Remove every entry, kept failures, and leftovers of killed processes; return how many.

    What the cache did not write is left alone, whatever folder it was pointed at.
    """
    root = cache_root()
    doomed = [*folders(), *_matching(root / _FAILED, _ENTRY_NAME)]
    stale = time.time() - _STALE_SECONDS
    doomed += [path for path in _matching(root, _TEMPORARY_NAME) if _modified(path) < stale]
    for path in doomed:
        _remove(path)
    return len(doomed)


def _matching(root: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if pattern.fullmatch(path.name))
    except FileNotFoundError:
        return []


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # its owner has just finished with it
        return time.time()
