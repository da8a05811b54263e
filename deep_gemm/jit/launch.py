"""The warm path of a kernel launch: everything prepared once, then one call into the driver.

The call goes through ctypes on the driver's own function pointer, with the structs it reads kept
between launches. The driver rules the time: 5.0 us a launch this way, 5.8 us through cuda-bindings
and 5.6 us through cuda-core with three pointers (NVIDIA H200, CUDA 13.0, 2026-11-29,
benchmarks/launch_overhead.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from . import driver
from .driver import Function


class LaunchShape(NamedTuple):
    """How a kernel is launched, but for its grid; all in one dimension.

    threads: of a CTA. cluster: CTAs of a cluster. ctas_per_sm: CTAs that an SM is to hold.
    smem_bytes: dynamic shared memory. cooperative: all CTAs are resident at once, or the launch is
        refused.
    """

    threads: int
    cluster: int = 1
    ctas_per_sm: int = 1
    smem_bytes: int = 0
    cooperative: bool = False


class ClusterDim(ctypes.Structure):
    """The clusterDim member of CUlaunchAttributeValue in cuda.h."""

    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class LaunchAttributeValue(ctypes.Union):
    """CUlaunchAttributeValue in cuda.h: 64 bytes, of which the members used here."""

    _fields_ = [
        ("pad", ctypes.c_char * 64),
        ("clusterDim", ClusterDim),
        ("programmaticStreamSerializationAllowed", ctypes.c_int),
        ("cooperative", ctypes.c_int),
    ]


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute in cuda.h."""

    _fields_ = [("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", LaunchAttributeValue)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig in cuda.h."""

    _fields_ = [
        ("gridDimX", ctypes.c_uint32),
        ("gridDimY", ctypes.c_uint32),
        ("gridDimZ", ctypes.c_uint32),
        ("blockDimX", ctypes.c_uint32),
        ("blockDimY", ctypes.c_uint32),
        ("blockDimZ", ctypes.c_uint32),
        ("sharedMemBytes", ctypes.c_uint32),
        ("hStream", ctypes.c_void_p),
        ("attrs", ctypes.POINTER(LaunchAttribute)),
        ("numAttrs", ctypes.c_uint32),
    ]


class Launcher:
    """Launch one kernel with one geometry and one parameter struct, again and again.

    The struct at `params_address` is read by the driver during each launch; whoever owns it keeps
    it alive and lets no other thread change it, nor use this launcher, meanwhile.
    """

    __slots__ = (
        "_attributes",
        "_call",
        "_config",
        "_config_ref",
        "_handle",
        "_name",
        "_params",
        "_stream",
    )

    def __init__(
        self, function: Function, shape: LaunchShape, grid: int, pdl: bool, params_address: int
    ):
        """Prepare the launch; no driver call is made.

        grid: in CTAs, a multiple of the cluster. pdl: may start before the kernel ahead of it in
        the stream is complete (it must then wait by griddepcontrol.wait).
        """
        self._name = (
            f"{function.entry}: grid {grid}, cluster {shape.cluster}, {shape.threads} threads, "
            f"{shape.smem_bytes} bytes of shared memory, pdl {pdl}"
        )
        self._attributes = _attributes(shape, pdl)
        count = len(self._attributes)
        threads = shape.threads, 1, 1
        self._config = LaunchConfig(
            grid, 1, 1, *threads, shape.smem_bytes, None, self._attributes, count
        )
        self._stream = 0
        self._config_ref = ctypes.byref(self._config)
        self._handle = ctypes.c_void_p(function.handle)
        self._params = (ctypes.c_void_p * 1)(params_address)
        self._call = _launch_call()

    def resize(self, ctas: int) -> None:
        """Let the next launches have a grid of so many CTAs."""
        self._config.gridDimX = ctas

    def launch(self, stream: int) -> None:
        """Launch on a stream (its handle, 0 for the default one); CudaError where refused.

        The kernel's device must be current where the stream is 0.
        """
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        code = self._call(self._config_ref, self._handle, self._params, None)
        if code:
            driver.check(code, "cuLaunchKernelEx", self._name)


def _attributes(shape: LaunchShape, pdl: bool) -> ctypes.Array[LaunchAttribute]:
    ids = driver.bindings().CUlaunchAttributeID
    attributes: list[LaunchAttribute] = []
    if shape.cluster > 1:
        value = LaunchAttributeValue(clusterDim=ClusterDim(shape.cluster, 1, 1))
        kind = int(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        attributes.append(LaunchAttribute(kind, 0, value))
    if pdl:
        value = LaunchAttributeValue(programmaticStreamSerializationAllowed=1)
        kind = int(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        attributes.append(LaunchAttribute(kind, 0, value))
    if shape.cooperative:
        kind = int(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        attributes.append(LaunchAttribute(kind, 0, LaunchAttributeValue(cooperative=1)))
    return (LaunchAttribute * len(attributes))(*attributes)


@cache
def _launch_call() -> Callable[..., int]:
    # CFUNCTYPE drops the interpreter lock: a launch blocks while the launch queue is full, and
    # what empties the queue may be a host callback that needs the lock.
    pointer = ctypes.c_void_p
    form = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, pointer)
    return form(driver.address_of("cuLaunchKernelEx"))
