"""Kernels of one parameter struct and a grid of one dimension: built, loaded, launched.

A warm launch looks a kernel up, writes the struct's fields and calls the driver.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .. import settings
from ..errors import CudaError, UnsupportedError
from ..jit import build, driver, key_of
from ..jit.launch import Launcher
from ..jit.source import render
from ..jit.unit import OPTIONS, TranslationUnit
from .current import current_device, current_stream


class Divider(ctypes.Structure):
    """Divider of cuda/kernels/cast.cuh: divides numbers below 2**31 without a division."""

    _fields_ = [
        ("divisor", ctypes.c_uint32),
        ("multiplier", ctypes.c_uint32),
        ("shift", ctypes.c_uint32),
    ]

    @classmethod
    def by(cls, divisor: int) -> Divider:
        """Return what divides by `divisor`, from 1 to 2**31."""
        shift = (divisor - 1).bit_length()
        return cls(divisor, ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift)


@dataclass(frozen=True, eq=False)
class Variant:
    """One kernel: what its source is made of, and itself a key. To be made once.

    body: the device function, defined by cuda/kernels/<header>; params: its parameter's C++ type
        and the struct here. constants: members of Config, by name.
    ctas_per_sm: so many are to fit an SM. smem_bytes: dynamic. cooperative: all CTAs are resident.
    """

    name: str
    header: str
    body: str
    params: str
    struct: type[ctypes.Structure]
    constants: tuple[tuple[str, int | str], ...]
    threads: int
    ctas_per_sm: int = 1
    smem_bytes: int = 0
    cooperative: bool = False

    def unit(self) -> TranslationUnit:
        """Return what to compile."""
        source = render(
            header=f"deep_gemm/kernels/{self.header}",
            body=self.body,
            params=self.params,
            entry=self.name,
            constants={
                **dict(self.constants),
                "kThreads": self.threads,
                "kParamsBytes": ctypes.sizeof(self.struct),
            },
            threads=self.threads,
            ctas_per_sm=self.ctas_per_sm,
        )
        return TranslationUnit(name=self.name, entry=self.name, source=source, options=OPTIONS)


class SimpleKernel:
    """A variant loaded on a device, with its parameter; launched at any grid and arguments."""

    def __init__(self, variant: Variant, device_index: int, pdl: bool):
        """Compile or find the kernel and load it.

        Raises CompileError, CudaError, or UnsupportedError where a graph is being captured and the
        kernel is not loaded yet.
        """
        unit = variant.unit()
        if torch.cuda.is_current_stream_capturing() and not driver.is_loaded(
            key_of(unit), device_index
        ):
            reason = f"kernel {variant.name} is not loaded yet: call once before capture"
            raise UnsupportedError("a first call inside a CUDA graph capture", [reason])
        function = driver.load(build(unit), device_index)
        self._device = device_index
        self._lock = threading.Lock()
        self._params = variant.struct()
        cooperative = variant.cooperative
        self.resident = (
            driver.max_active_clusters(function, 1, variant.threads, variant.smem_bytes)
            if cooperative
            else 0
        )
        self._launcher = Launcher(
            function,
            1,
            1,
            variant.threads,
            variant.smem_bytes,
            pdl and not cooperative,
            ctypes.addressof(self._params),
            cooperative,
        )

    def launch(self, blocks: int, *values: Any) -> None:
        """Launch on the current stream; values: the parameter's fields, in order."""
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self.launch(blocks, *values)
            return
        stream = current_stream(device)
        with self._lock:
            self._params.__init__(*values)  # type: ignore[misc]
            self._launcher.resize(blocks)
            try:
                self._launcher.launch(stream)
            except CudaError as error:
                driver.make_current_after(error, device)
                self._launcher.launch(stream)


def kernel(variant: Variant, device_index: int) -> SimpleKernel:
    """Return a kernel on a device; it is compiled and loaded at the first call."""
    return _kernel(variant, device_index, settings.current().pdl)


_kernel = cache(SimpleKernel)


@cache
def refusal(device_index: int) -> str | None:
    """Return why kernels cannot run on a CUDA device, or None where they can."""
    try:
        return driver.device_attributes(device_index).refusal
    except UnsupportedError as error:
        return str(error)
