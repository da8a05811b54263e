"""The only module that calls the CUDA driver.

Everything here acts in a device's primary context, the one torch uses, and leaves the calling
thread's current context as it was.

Kernels are loaded as modules (cuModuleLoadData), one a device, and not as context-free libraries
(cuLibraryLoadData): a library defers the load, and with it any failure, to the first launch, which
may be inside a graph capture; and its kernel handles are looked up per context at each launch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import CudaError, UnsupportedError

if TYPE_CHECKING:
    from .unit import Built


@dataclass(frozen=True)
class Function:
    """A kernel loaded on one device.

    handle: its CUfunction as an integer.
    registers, local_bytes: per thread, as the driver sees them.
    shared_bytes: static; max_dynamic_shared_bytes: what a launch may ask for on top.
    """

    handle: int
    entry: str
    device_index: int
    registers: int
    local_bytes: int
    shared_bytes: int
    max_dynamic_shared_bytes: int


@dataclass(frozen=True)
class DeviceAttributes:
    """What the driver says about a device."""

    name: str
    sm_count: int
    smem_per_block_optin: int
    compute_capability: tuple[int, int]
    l2_bytes: int

    @property
    def refusal(self) -> str | None:
        """Why the kernels cannot run here, or None where they can."""
        major, minor = self.compute_capability
        if (major, minor) == (9, 0):
            return None
        return f"{self.name} has compute capability {major}.{minor}, kernels are for 9.0"


# --- calls --------------------------------------------------------------------------------------


@cache
def bindings() -> ModuleType:
    """Return `cuda.bindings.driver`, initialized; UnsupportedError without driver or bindings."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise UnsupportedError(
            "using the GPU", [f"install the pip package cuda-bindings ({error})"]
        ) from error
    module: ModuleType = driver
    try:
        result = module.cuInit(0)
    except RuntimeError as error:  # libcuda is not on this machine
        raise UnsupportedError("using the GPU", [f"no CUDA driver ({error})"]) from error
    check(result, "cuInit", module=module)
    return module


def check(result: Any, call: str, detail: str = "", *, module: ModuleType | None = None) -> Any:
    """Return what a driver call gave beyond its status; CudaError where it failed.

    result: the tuple of a `cuda.bindings` call, or a bare status code of a ctypes call.
    """
    code, *values = result if isinstance(result, tuple) else (result,)
    if int(code) != 0:
        name, sentence = _describe(module or bindings(), int(code))
        raise CudaError(call, int(code), name, sentence, detail)
    return values[0] if len(values) == 1 else (tuple(values) or None)


def _describe(module: ModuleType, code: int) -> tuple[str, str]:
    try:
        status = module.CUresult(code)
    except ValueError:
        return f"CUresult {code}", "a status newer than cuda-bindings"
    try:
        _, sentence = module.cuGetErrorString(status)
    except RuntimeError:  # no driver to ask
        sentence = None
    return status.name, sentence.decode() if sentence else "no description"


@cache
def address_of(name: str, version: int = 12000) -> int:
    """Return the driver's function pointer for `name`, for calls through ctypes.

    version: CUDA version (1000 * major + 10 * minor) whose form of the function is meant.
    """
    pointer, status = check(bindings().cuGetProcAddress(name.encode(), version, 0), name)
    if not int(pointer):
        raise UnsupportedError(name, [f"the CUDA driver does not have it ({status.name})"])
    return int(pointer)


# --- devices ------------------------------------------------------------------------------------

INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: this thread has not used the GPU before


@cache
def _primary_context(index: int) -> Any:
    # Retained for good: torch holds it as long as the process lives, too.
    driver = bindings()
    device = check(driver.cuDeviceGet(index), "cuDeviceGet", f"device {index}")
    return check(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")


@contextmanager
def device_guard(index: int) -> Iterator[None]:
    """Make a device's primary context current inside a `with` block; 2 driver calls."""
    driver = bindings()
    check(driver.cuCtxPushCurrent(_primary_context(index)), "cuCtxPushCurrent")
    try:
        yield
    finally:
        check(driver.cuCtxPopCurrent(), "cuCtxPopCurrent")


def make_current(index: int) -> None:
    """Make a device's primary context current in this thread, and leave it so.

    It is what the CUDA runtime does at a thread's first call.
    """
    check(bindings().cuCtxSetCurrent(_primary_context(index)), "cuCtxSetCurrent")


def make_current_after(error: CudaError, index: int) -> None:
    """Make a device's context current where a launch failed since this thread had none.

    Raises any other error again.
    """
    if error.code != INVALID_CONTEXT:
        raise error
    make_current(index)


@cache
def device_attributes(index: int) -> DeviceAttributes:
    """Return what the driver says about a device; asked once a process."""
    driver = bindings()
    device = check(driver.cuDeviceGet(index), "cuDeviceGet", f"device {index}")
    kinds = driver.CUdevice_attribute

    def ask(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(kind, device), "cuDeviceGetAttribute", name))

    name = check(driver.cuDeviceGetName(128, device), "cuDeviceGetName")
    return DeviceAttributes(
        name=name.rstrip(b"\0").decode(),
        sm_count=ask("MULTIPROCESSOR_COUNT"),
        smem_per_block_optin=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        compute_capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        l2_bytes=ask("L2_CACHE_SIZE"),
    )


# --- kernels ------------------------------------------------------------------------------------

_load_lock = threading.Lock()
_loaded: dict[tuple[str, int], Function] = {}


def load(built: Built, device_index: int) -> Function:
    """Return a compiled kernel on a device; it is loaded at the first call and kept for good."""
    handle = (built.key, device_index)
    with _load_lock:
        if handle not in _loaded:
            _loaded[handle] = load_cubin(built.cubin, built.entry, device_index)
        return _loaded[handle]


def is_loaded(key: str, device_index: int) -> bool:
    """Say whether load() would only look up the kernel built under a key."""
    with _load_lock:
        return (key, device_index) in _loaded


def load_cubin(cubin: bytes, entry: str, device_index: int) -> Function:
    """Load a cubin on a device and return its kernel `entry`, never unloaded.

    All the shared memory of a block that the device can give is made available to it.
    Raises CudaError, e.g. where the cubin is for another architecture.
    """
    driver = bindings()
    device = device_attributes(device_index)
    detail = f"kernel {entry}, {len(cubin)} bytes, on {device.name} {device.compute_capability}"
    kinds = driver.CUfunction_attribute
    with device_guard(device_index):
        module = check(driver.cuModuleLoadData(cubin), "cuModuleLoadData", detail)
        function = check(
            driver.cuModuleGetFunction(module, entry.encode()), "cuModuleGetFunction", detail
        )

        def ask(name: str) -> int:
            kind = getattr(kinds, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(check(driver.cuFuncGetAttribute(kind, function), "cuFuncGetAttribute", name))

        shared = ask("SHARED_SIZE_BYTES")
        dynamic = device.smem_per_block_optin - shared
        kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(function, kind, dynamic), "cuFuncSetAttribute", detail)
        return Function(
            handle=int(function),
            entry=entry,
            device_index=device_index,
            registers=ask("NUM_REGS"),
            local_bytes=ask("LOCAL_SIZE_BYTES"),
            shared_bytes=shared,
            max_dynamic_shared_bytes=dynamic,
        )


def max_active_clusters(function: Function, cluster: int, threads: int, smem_bytes: int) -> int:
    """Return how many clusters of `cluster` blocks the device can hold at once.

    On parts with SMs switched off this is below sm_count // cluster, since a cluster cannot cross
    a GPC.
    """
    driver = bindings()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = cluster
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = smem_bytes
    config.attrs, config.numAttrs = [attribute], 1
    detail = f"{function.entry}: cluster {cluster}, {threads} threads, {smem_bytes} bytes"
    with device_guard(function.device_index):
        handle = driver.CUfunction(function.handle)
        call = driver.cuOccupancyMaxActiveClusters(handle, config)
        return int(check(call, "cuOccupancyMaxActiveClusters", detail))
