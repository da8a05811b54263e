"""Host time of one kernel launch, by way of launching, and of the driver calls around it.

    python3 benchmarks/launch_overhead.py

Needs a GPU. Prints the median over batches of the mean microseconds a call takes on the host. A
batch is shorter than the launch queue (1024 deep), so that no call waits for the device.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from types import ModuleType

import torch

from deep_gemm.jit import TranslationUnit, build, driver, tensor_map
from deep_gemm.jit.driver import Function
from deep_gemm.jit.launch import Launcher, LaunchShape

BATCH, BATCHES = 256, 41
THREADS, GRID, CLUSTER = 128, 132, 2
PARAMS_BYTES = 640

SOURCE = f"""
struct Params {{ alignas(64) char bytes[{PARAMS_BYTES}]; }};
extern "C" __global__ void __launch_bounds__({THREADS})
gemm_nothing(const __grid_constant__ Params params) {{}}
"""
POINTERS_SOURCE = f"""
extern "C" __global__ void __launch_bounds__({THREADS})
gemm_pointers(void* a, void* b, void* c) {{}}
"""


def host_us(call: Callable[[], object]) -> float:
    """Return the median microseconds `call` takes on the host."""
    means = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        means.append((time.perf_counter() - start) / BATCH * 1e6)
    torch.cuda.synchronize()
    return statistics.median(means)


def unit(entry: str, source: str) -> TranslationUnit:
    """Return a kernel that does nothing, for the device at hand."""
    major, minor = driver.device_attributes(torch.cuda.current_device()).compute_capability
    suffix = "a" if major >= 9 else ""
    return TranslationUnit(entry, entry, source, (f"--gpu-architecture=sm_{major}{minor}{suffix}",))


def bindings_launch(function: Function, params: int, stream: int) -> Callable[[], object]:
    """Return a launch through cuda-bindings with everything prepared that can be."""
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dims = attribute.value.clusterDim
    dims.x, dims.y, dims.z = CLUSTER, 1, 1
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = GRID, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = THREADS, 1, 1
    config.hStream = cuda.CUstream(stream)
    config.attrs, config.numAttrs = [attribute], 1
    handle = cuda.CUfunction(function.handle)
    block = (ctypes.c_void_p * 1)(params)
    address = ctypes.addressof(block)

    def call(keep: object = block) -> None:
        driver.check(cuda.cuLaunchKernelEx(config, handle, address, 0), "cuLaunchKernelEx")

    call()
    return call


def core_launch(stream: int) -> Callable[[], object]:
    """Return a launch through cuda-core of a kernel with three pointers."""
    core = _cuda_core()
    core.Device(torch.cuda.current_device()).set_current()
    code = core.ObjectCode.from_cubin(build(unit("gemm_pointers", POINTERS_SOURCE)).cubin)
    kernel = code.get_kernel("gemm_pointers")
    # cuda-core counts the grid in clusters.
    config = core.LaunchConfig(grid=GRID // CLUSTER, cluster=CLUSTER, block=THREADS)
    where = core.Stream.from_handle(stream)

    def call() -> None:
        core.launch(where, config, kernel, 0, 0, 0)

    call()
    return call


def _cuda_core() -> ModuleType:
    import cuda.core

    if hasattr(cuda.core, "launch"):
        return cuda.core
    import cuda.core.experimental

    return cuda.core.experimental


def launches(stream: int, params: int) -> dict[str, Callable[[], object]]:
    """Return every way of launching, by name."""
    index = torch.cuda.current_device()
    function = driver.load(build(unit("gemm_nothing", SOURCE)), index)
    shape = LaunchShape(THREADS, CLUSTER)
    without_pdl = Launcher(function, shape, GRID, False, params)
    pdl = Launcher(function, shape, GRID, True, params)
    ways: dict[str, Callable[[], object]] = {
        "ctypes (deep_gemm.jit.launch)": lambda: without_pdl.launch(stream),
        "ctypes, with PDL": lambda: pdl.launch(stream),
        "cuda-bindings": bindings_launch(function, params, stream),
    }
    try:
        ways["cuda-core, three pointers"] = core_launch(stream)
    except Exception as error:  # its interface differs between versions
        print(f"cuda-core not measured: {type(error).__name__}: {error}")
    return ways


def around(params: int, tensor: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return the other calls of a warm path, by name, with torch's own for comparison."""
    cuda = driver.bindings()
    matrix = tensor_map.TensorMap(1, 256, 256, 256, 128, 64, 128)
    matrix.encode(tensor.data_ptr(), params)
    theirs = cuda.CUtensorMap()
    ctypes.memmove(theirs.getPtr(), params, tensor_map.SIZE)
    address, index = tensor.data_ptr(), torch.cuda.current_device()

    def guarded() -> None:
        with driver.device_guard(index):
            pass

    left, right = (torch.zeros(64, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(left)
    return {
        "tensor map: encode": lambda: matrix.encode(address, params),
        "tensor map: new address, ctypes": lambda: tensor_map.patch(params, address),
        "tensor map: new address, cuda-bindings": lambda: cuda.cuTensorMapReplaceAddress(
            theirs, address
        ),
        "device_guard": guarded,
        "torch.cuda.current_stream().cuda_stream": lambda: torch.cuda.current_stream().cuda_stream,
        "torch.mm(out=)": lambda: torch.mm(left, right, out=out),
    }


def main() -> None:
    """Print the table."""
    tensor = torch.zeros(65536, dtype=torch.uint8, device="cuda")
    storage = ctypes.create_string_buffer(PARAMS_BYTES + tensor_map.ALIGNMENT)
    params = ctypes.addressof(storage)
    params += -params % tensor_map.ALIGNMENT
    stream = torch.cuda.Stream().cuda_stream
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us per call on the host")
    for name, call in {**launches(stream, params), **around(params, tensor)}.items():
        print(f"{host_us(call):8.2f}  {name}")


if __name__ == "__main__":
    main()
