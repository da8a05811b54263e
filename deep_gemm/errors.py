"""Exceptions that reach users.

All derive from `RuntimeError`, which is what callers of GEMM libraries catch. Every check runs on
the host before a launch, so when one of these is raised nothing has been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class DeepGemmError(RuntimeError):
    """Base of every error this package raises on purpose."""


class ArgumentError(DeepGemmError, ValueError):
    """One argument has one wrong property.

    The message has a fixed form: tensor, property, wanted, got, remedy.
    """

    def __init__(self, tensor: str, prop: str, wanted: object, got: object, remedy: str = ""):
        self.tensor, self.prop, self.wanted, self.got, self.remedy = (
            tensor,
            prop,
            wanted,
            got,
            remedy,
        )
        message = f"{tensor}: {prop} must be {wanted}, got {got}"
        super().__init__(f"{message}; {remedy}" if remedy else message)


class UnsupportedError(DeepGemmError, NotImplementedError):
    """The problem is well formed, but no kernel serves it here; `reasons` says why, one each."""

    def __init__(self, what: str, reasons: Sequence[str]):
        self.reasons = tuple(reasons)
        super().__init__(f"{what}: " + "; ".join(self.reasons))


class CompileError(DeepGemmError):
    """NVRTC refused a source. The log is in the message; the source is kept at `source_path`."""

    def __init__(self, what: str, log: str, source_path: Path | None):
        self.log, self.source_path = log, source_path
        where = f"\nThe source is kept at {source_path}" if source_path else ""
        super().__init__(f"NVRTC could not compile {what}\n{log.strip()}{where}")


class CudaError(DeepGemmError):
    """A CUDA driver call failed."""

    def __init__(self, call: str, code: int, name: str, sentence: str, detail: str = ""):
        self.call, self.code, self.name = call, code, name
        tail = f" [{detail}]" if detail else ""
        super().__init__(f"{call} returned {name} ({code}): {sentence}{tail}")
