"""The launch path against a fake driver: the structs it hands over, and its errors."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deep_gemm.errors import CudaError, UnsupportedError
from deep_gemm.jit import driver, launch
from deep_gemm.jit.launch import LaunchShape

from .fake_driver import LAUNCH, FakeDriver, forget_addresses

FUNCTION = driver.Function(0x1234, "gemm_k", 0, 168, 0, 0, 232448)


class Calls(list[Any]):
    """Launches seen, and the status the next ones return."""

    status = 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    fake = FakeDriver(monkeypatch)
    seen = Calls()

    def launch_kernel(config: int, handle: int, params: int, extra: int | None) -> int:
        block = ctypes.c_void_p.from_address(params).value
        # Copied and read now: the launcher changes the struct in place, and frees it.
        copy = launch.LaunchConfig.from_buffer_copy(ctypes.string_at(config, 56))
        seen.append((copy, attributes_of(copy), handle, block, extra))
        return seen.status

    fake.serve("cuLaunchKernelEx", LAUNCH, launch_kernel)
    yield seen
    forget_addresses()


def attributes_of(config: launch.LaunchConfig) -> list[tuple[int, tuple[int, int, int]]]:
    found = []
    for index in range(config.numAttrs):
        attribute = config.attrs[index]
        dims = attribute.value.clusterDim
        found.append((attribute.id, (dims.x, dims.y, dims.z)))
    return found


def test_structs_have_the_layout_of_the_bindings_own() -> None:
    from cuda.bindings import driver as real

    cluster, pdl = real.CUlaunchAttribute(), real.CUlaunchAttribute()
    cluster.id = real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dims = cluster.value.clusterDim
    dims.x, dims.y, dims.z = 2, 3, 5
    pdl.id = real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    pdl.value.programmaticStreamSerializationAllowed = 7
    config = real.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 11, 12, 13
    config.blockDimX, config.blockDimY, config.blockDimZ = 14, 15, 16
    config.sharedMemBytes, config.hStream = 17, real.CUstream(0x1122334455667788)
    config.attrs, config.numAttrs = [cluster, pdl], 2

    ours = launch.LaunchConfig.from_address(config.getPtr())
    assert (ours.gridDimX, ours.gridDimY, ours.gridDimZ) == (11, 12, 13)
    assert (ours.blockDimX, ours.blockDimY, ours.blockDimZ) == (14, 15, 16)
    assert (ours.sharedMemBytes, ours.hStream, ours.numAttrs) == (17, 0x1122334455667788, 2)
    # The second attribute is found only if the size of one is right.
    assert attributes_of(ours)[0] == (4, (2, 3, 5))
    assert ours.attrs[1].id == 6
    assert ours.attrs[1].value.programmaticStreamSerializationAllowed == 7
    assert ctypes.sizeof(launch.LaunchAttribute) == 72
    assert ctypes.sizeof(launch.LaunchConfig) == 56


def test_a_launch_hands_over_geometry_parameters_and_stream(calls: Calls) -> None:
    params = ctypes.create_string_buffer(256)
    address = ctypes.addressof(params)
    launcher = launch.Launcher(FUNCTION, LaunchShape(384, 2, 1, 200000), 132, True, address)
    launcher.launch(0)
    launcher.launch(0x77)
    launcher.launch(0x77)
    launcher.launch(0)
    assert [config.hStream for config, *_ in calls] == [None, 0x77, 0x77, None]
    for config, attributes, handle, block, extra in calls:
        assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (132, 1, 1)
        assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (384, 1, 1)
        assert config.sharedMemBytes == 200000
        assert attributes == [(4, (2, 1, 1)), (6, (1, 0, 0))]
        assert (handle, block, extra) == (0x1234, address, None)


@pytest.mark.parametrize(
    ("cluster", "pdl", "wanted"),
    [
        (1, False, []),
        (1, True, [(6, (1, 0, 0))]),
        (2, False, [(4, (2, 1, 1))]),
    ],
)
def test_only_attributes_that_say_something_are_passed(
    calls: Calls, cluster: int, pdl: bool, wanted: list[Any]
) -> None:
    launch.Launcher(FUNCTION, LaunchShape(128, cluster), 8, pdl, 64).launch(0)
    config, attributes = calls[0][:2]
    assert attributes == wanted
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (8, 1, 1)


def test_a_cooperative_launch_says_so_and_a_grid_can_be_resized(calls: Calls) -> None:
    launcher = launch.Launcher(FUNCTION, LaunchShape(256, cooperative=True), 132, True, 64)
    launcher.launch(0)
    launcher.resize(7)
    launcher.launch(0)
    (first, attributes, *_), (second, again, *_) = calls
    assert attributes == again == [(6, (1, 0, 0)), (2, (1, 0, 0))]
    assert (first.gridDimX, second.gridDimX) == (132, 7)


def test_a_refused_launch_says_what_was_launched(calls: Calls) -> None:
    calls.status = 1
    launcher = launch.Launcher(FUNCTION, LaunchShape(384, 2, 1, 999999), 132, False, 64)
    with pytest.raises(CudaError) as caught:
        launcher.launch(0)
    assert (caught.value.call, caught.value.code) == ("cuLaunchKernelEx", 1)
    assert caught.value.name == "CUDA_ERROR_INVALID_VALUE"
    assert "gemm_k: grid 132, cluster 2, 384 threads, 999999 bytes" in str(caught.value)


@pytest.mark.parametrize(
    ("result", "value"), [((0,), None), ((0, 5), 5), ((0, 5, 6), (5, 6)), (0, None)]
)
def test_check_returns_what_follows_the_status(result: Any, value: object) -> None:
    from cuda.bindings import driver as real

    assert driver.check(result, "cuCall", module=real) == value


def test_check_names_a_status_the_bindings_do_not_know() -> None:
    from cuda.bindings import driver as real

    with pytest.raises(CudaError, match=r"cuCall returned CUresult 123456 \(123456\).*\[why\]"):
        driver.check(123456, "cuCall", "why", module=real)


def test_a_machine_without_driver_is_refused_with_a_reason() -> None:
    from cuda.bindings import driver as real

    try:
        real.cuInit(0)
    except RuntimeError:
        with pytest.raises(UnsupportedError, match="no CUDA driver"):
            driver.bindings()
    else:
        pytest.skip("this machine has a CUDA driver")


def test_importing_the_jit_imports_no_cuda_module() -> None:
    code = (
        "import sys, deep_gemm.jit, deep_gemm.jit.launch, deep_gemm.jit.tensor_map;"
        "print([m for m in sys.modules if m.split('.')[0] == 'cuda'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
