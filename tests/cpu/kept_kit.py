"""What compilers made, kept from run to run. It is judged on every run, as if it were new."""

from __future__ import annotations

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

FOLDER_VARIABLE = "DG_TEST_CACHE"
DAYS = 14  # that something stays


def kept(decides: Any, make: Callable[[Path], object]) -> Path:
    """Return the file that make(path) writes, or that it wrote in an earlier run.

    decides: JSON values that decide the file's content.

    Threads and processes may ask for the same file at once: it is renamed when it is complete.
    """
    path = Path(os.environ[FOLDER_VARIABLE]) / _sha256(decides)
    if not path.exists():
        temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
        try:
            make(temporary)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path


def kernel_cache() -> Path:
    """Return a folder for DG_JIT_CACHE_DIR that lasts.

    Keys of the package's own cache cover a kernel's source, headers and options. The folder is of
    the code that compiles kernels and reads resources, and of the release of NVRTC.
    """
    code = {path.name: path.read_text() for path in sorted((PACKAGE / "jit").glob("*.py"))}
    installed = importlib.metadata.distributions(name="nvidia-cuda-nvrtc")
    releases = sorted(str(one.version) for one in installed)
    return Path(os.environ[FOLDER_VARIABLE]) / f"kernels-{_sha256([code, releases])[:16]}"


def remove_old(folder: Path) -> None:
    """Remove files and kernels that were made long ago."""
    for path in (*folder.glob("kernels-*/*"), *folder.iterdir()):
        if path.lstat().st_mtime < time.time() - DAYS * 86400:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
