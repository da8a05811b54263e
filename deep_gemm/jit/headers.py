"""The package's own CUDA headers a source needs, as text."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import CompileError

PREFIX = "deep_gemm/"
ROOT = Path(__file__).resolve().parent.parent / "cuda"

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](deep_gemm/[^">]+)[">]', re.MULTILINE)


def headers_for(source: str) -> dict[str, str]:
    """Return every header `source` includes, directly or through others: include name to text.

    "deep_gemm/ptx/tma.cuh" is the file cuda/ptx/tma.cuh of this package. Includes inside an #if
    count whatever the condition, so the result depends on text alone. Names are sorted.

    Raises CompileError for a name that has no file.
    """
    found: dict[str, str] = {}
    pending = [(name, "the kernel source") for name in _INCLUDE.findall(source)]
    while pending:
        name, includer = pending.pop()
        if name in found:
            continue
        found[name] = _read(name, includer)
        pending += [(inner, name) for inner in _INCLUDE.findall(found[name])]
    return dict(sorted(found.items()))


def _read(name: str, includer: str) -> str:
    try:
        return (ROOT / name.removeprefix(PREFIX)).read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError(name, f"included by {includer}: {error.strerror}", None) from error
