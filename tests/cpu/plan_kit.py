"""Launches seen by a fake driver, and tensors that have addresses but no memory."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deep_gemm.jit import driver, launch
from deep_gemm.kernels import launch_plan

from .config_kit import H200
from .fake_driver import FakeDriver

PTR, INT = ctypes.c_void_p, ctypes.c_int
LAUNCH = ctypes.CFUNCTYPE(INT, PTR, PTR, PTR, PTR)
ENCODE = ctypes.CFUNCTYPE(
    INT, PTR, INT, ctypes.c_uint32, PTR, PTR, PTR, PTR, PTR, INT, INT, INT, INT
)
REPLACE = ctypes.CFUNCTYPE(INT, PTR, PTR)
FUNCTION = driver.Function(0x1234, "kernel", 0, 168, 0, 0, H200.smem_bytes)


class Placed:
    """A tensor of the meta device that says it lies at an address of CUDA device 0."""

    device = SimpleNamespace(index=0)

    def __init__(self, address: int, tensor: torch.Tensor):
        self._address, self._tensor = address, tensor

    def data_ptr(self) -> int:
        return self._address

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._tensor[index]


class Seen:
    """What the fake driver was told: launches, and the addresses that maps were given.

    launches: geometry, and a copy of the parameter as bytes. encoded, patched: addresses by offset
    in the parameter. fits: clusters that the device holds at a time. status: of the next calls.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[launch.LaunchConfig, bytes]] = []
        self.encoded: dict[int, int] = {}
        self.patched: dict[int, int] = {}
        self.fits = 66
        self.params_bytes = 4096  # read at a launch; a plan's parameter is smaller, its page is not
        self._places: list[tuple[dict[int, int], int, int]] = []

    def last(self, struct: type[ctypes.Structure]) -> tuple[launch.LaunchConfig, Any]:
        """Return the geometry and the parameter of the last launch."""
        geometry, content = self.launches[-1]
        return geometry, struct.from_buffer_copy(content)

    def forget(self) -> None:
        """Forget which maps were written."""
        self.encoded.clear()
        self.patched.clear()
