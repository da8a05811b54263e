"""Kernels of one parameter struct and a grid of one dimension: built, loaded, launched.

A warm launch looks a kernel up, writes the struct's fields and calls the driver.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import torch

from .. import settings
from ..errors import CudaError, UnsupportedError
from ..jit import driver
from ..jit.launch import Launcher
from .current import current_device, current_stream
from .spec import KernelSpec


class FastDivmod(ctypes.Structure):
    """FastDivmod of cuda/common/fast_divmod.cuh: divides numbers below 2**31."""

    _fields_ = [
        ("divisor", ctypes.c_uint32),
        ("multiplier", ctypes.c_uint32),
        ("shift", ctypes.c_uint32),
    ]

    @classmethod
    def by(cls, divisor: int) -> FastDivmod:
        """Return what divides by `divisor`, from 1 to 2**31."""
        shift = (divisor - 1).bit_length()
        return cls(divisor, ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift)


class SmallKernel:
    """A kernel loaded on a device, with its parameter; launched at any grid and arguments."""

    def __init__(self, kernel: KernelSpec, device_index: int, pdl: bool):
        """Compile or find the kernel and load it.

        Raises CompileError, CudaError, or UnsupportedError where a graph is being captured and the
        kernel is not loaded yet.
        """
        capturing = torch.cuda.is_current_stream_capturing()
        function = kernel.load(device_index, may_load=not capturing)
        self._device, self._lock = device_index, threading.Lock()
        self._params, address = kernel.new_params()
        cooperative = kernel.launch.cooperative
        self.resident = kernel.resident_clusters(function) if cooperative else 0
        self._launcher = Launcher(function, kernel.launch, 1, pdl and not cooperative, address)

    def launch(self, ctas: int, *values: Any) -> None:
        """Launch on the current stream; values: the parameter's members, in order."""
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self.launch(ctas, *values)
            return
        stream = current_stream(device)
        with self._lock:
            self._params.__init__(*values)
            self._launcher.resize(ctas)
            try:
                self._launcher.launch(stream)
            except CudaError as error:
                driver.make_current_after(error, device)
                self._launcher.launch(stream)


def small_kernel(kernel: KernelSpec, device_index: int) -> SmallKernel:
    """Return a kernel on a device; it is compiled and loaded at the first call."""
    return _small_kernel(kernel, device_index, settings.current().pdl)


_small_kernel = cache(SmallKernel)


@cache
def refusal(device_index: int) -> str | None:
    """Return why kernels cannot run on a CUDA device, or None where they can."""
    try:
        return driver.device_attributes(device_index).refusal
    except UnsupportedError as error:
        return str(error)
