"""Compiled artifacts, cached from run to run. What they compute is tested anew on every run."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cache_kit import PACKAGE

CACHE_VARIABLE = "DG_TEST_CACHE"
MAX_AGE_DAYS = 14


def artifact(key: Any, make: Callable[[Path], object]) -> Path:
    """Return the file that make(path) writes, or that it wrote in an earlier run.

    key: JSON values that decide the file's content.

    Threads and processes may ask for one file at a time: the first one makes it, and the others
    wait. It is renamed when it is complete.
    """
    path = Path(os.environ[CACHE_VARIABLE]) / _sha256(key)
    if path.exists():
        return path
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
            try:
                make(temporary)
                temporary.rename(path)
            finally:
                temporary.unlink(missing_ok=True)
    return path


def kernel_cache() -> Path:
    """Return a folder for DG_JIT_CACHE_DIR that lasts from run to run.

    Keys of the package's own cache cover a kernel's source, headers and options. The name of the
    folder covers the code that compiles kernels and reads resources, and the release of NVRTC.
    """
    code = {path.name: path.read_text() for path in sorted((PACKAGE / "jit").glob("*.py"))}
    installed = importlib.metadata.distributions(name="nvidia-cuda-nvrtc")
    releases = sorted(str(release.version) for release in installed)
    return Path(os.environ[CACHE_VARIABLE]) / f"kernels-{_sha256([code, releases])[:16]}"


def remove_old(folder: Path) -> None:
    """Remove artifacts and kernels that were made MAX_AGE_DAYS ago or earlier."""
    oldest = time.time() - MAX_AGE_DAYS * 86400
    for path in (*folder.glob("kernels-*/*"), *folder.iterdir()):
        if path.lstat().st_mtime < oldest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
