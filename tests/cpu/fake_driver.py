"""A stand-in for the CUDA driver's functions on a machine that has none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from deep_gemm.jit import driver, launch, tensor_map

U32, PTR, INT = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int
# Functions of cuda.h: cuLaunchKernelEx, cuTensorMapEncodeTiled, cuTensorMapReplaceAddress.
LAUNCH = ctypes.CFUNCTYPE(INT, PTR, PTR, PTR, PTR)
ENCODE = ctypes.CFUNCTYPE(INT, PTR, INT, U32, PTR, PTR, PTR, PTR, PTR, INT, INT, INT, INT)
REPLACE = ctypes.CFUNCTYPE(INT, PTR, PTR)


class FakeDriver:
    """Give real addresses of C-callable Python functions instead of the driver's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        from cuda.bindings import driver as real

        self.enums = real
        self._functions: dict[str, Any] = {}
        monkeypatch.setattr(driver, "bindings", lambda: real)
        monkeypatch.setattr(driver, "address_of", self._address_of)
        forget_addresses()

    def serve(self, name: str, form: Any, function: Callable[..., int]) -> None:
        """Let `name` call `function` with the C types of `form`."""
        self._functions[name] = form(function)

    def _address_of(self, name: str, version: int = 12000) -> int:
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0


def forget_addresses() -> None:
    """Drop every function pointer the package has kept."""
    for kept in (tensor_map._constants, tensor_map._encode_call, tensor_map._replace_call):
        kept.cache_clear()
    launch._launch_call.cache_clear()
