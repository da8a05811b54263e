"""Loading and occupancy against recorded driver calls: order, contexts, handles, errors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deep_gemm.errors import CudaError
from deep_gemm.jit import Built, Resources, driver
from deep_gemm.jit.driver import Function

ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "L2_CACHE_SIZE": 50 << 20,
    "SHARED_SIZE_BYTES": 1024,
    "NUM_REGS": 168,
    "LOCAL_SIZE_BYTES": 0,
}


class RecordedDriver:
    """The bindings' own enumerations and structs, with calls that are recorded and answered."""

    def __init__(self) -> None:
        from cuda.bindings import driver as real

        self._real = real
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, tuple[Any, ...]] = {
            "cuDeviceGet": (0, 3),
            "cuDeviceGetName": (0, b"NVIDIA H200\0\0"),
            "cuDevicePrimaryCtxRetain": (0, "primary"),
            "cuGetErrorString": (0, b"the drivers own words"),
            "cuModuleLoadData": (0, "module"),
            "cuModuleGetFunction": (0, 0x1234),
            "cuOccupancyMaxActiveClusters": (0, 60),
        }

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(self._real, name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            if name.endswith("GetAttribute"):
                kind = arguments[0].name.split("ATTRIBUTE_")[1]
                return (0, ATTRIBUTES[kind])
            return self.answers.get(name, (0,))

        return call

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the calls of these names, in order."""
        return [call for call in self.calls if call[0] in names]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedDriver]:
    fake = RecordedDriver()
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    monkeypatch.setattr(driver, "_loaded", {})
    kept = (driver._primary_context, driver.device_attributes)
    for function in kept:
        function.cache_clear()
    yield fake
    for function in kept:
        function.cache_clear()


def built(key: str) -> Built:
    return Built(b"cubin", "gemm_k", None, key, Resources(168, 0, 0, 0, 1024, 1))


def test_device_attributes_are_the_drivers(recorded: RecordedDriver) -> None:
    wanted = driver.DeviceAttributes("NVIDIA H200", 132, 232448, (9, 0), 50 << 20)
    assert driver.device_attributes(3) == wanted


def test_a_kernel_is_loaded_in_the_primary_context_with_all_shared_memory(
    recorded: RecordedDriver,
) -> None:
    function = driver.load_cubin(b"cubin", "gemm_k", 3)
    assert function == Function(0x1234, "gemm_k", 3, 168, 0, 1024, 232448 - 1024)
    kind = recorded.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    order = (
        "cuCtxPushCurrent",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuFuncSetAttribute",
        "cuCtxPopCurrent",
    )
    assert recorded.named(*order) == [
        ("cuCtxPushCurrent", "primary"),
        ("cuModuleLoadData", b"cubin"),
        ("cuModuleGetFunction", "module", b"gemm_k"),
        ("cuFuncSetAttribute", 0x1234, kind, 232448 - 1024),
        ("cuCtxPopCurrent",),
    ]


def test_a_cubin_that_does_not_load_is_an_error_that_restores_the_context(
    recorded: RecordedDriver,
) -> None:
    recorded.answers["cuModuleLoadData"] = (209, None)
    with pytest.raises(CudaError) as caught:
        driver.load_cubin(b"cubin", "gemm_k", 3)
    assert caught.value.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert "the drivers own words [kernel gemm_k, 5 bytes, on NVIDIA H200 (9, 0)" in str(
        caught.value
    )
    assert [call[0] for call in recorded.calls].count("cuCtxPopCurrent") == 1


def test_a_kernel_is_loaded_once_per_key_and_device(recorded: RecordedDriver) -> None:
    with ThreadPoolExecutor(8) as pool:
        functions = list(pool.map(lambda _: driver.load(built("one"), 0), range(8)))
    assert len({id(function) for function in functions}) == 1
    assert driver.load(built("two"), 0) is not functions[0]
    assert driver.load(built("one"), 1).device_index == 1
    assert len(recorded.named("cuModuleLoadData")) == 3


def test_a_failed_load_is_tried_again(recorded: RecordedDriver) -> None:
    recorded.answers["cuModuleLoadData"] = (2, None)
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        driver.load(built("one"), 0)
    recorded.answers["cuModuleLoadData"] = (0, "module")
    assert driver.load(built("one"), 0).handle == 0x1234


def test_resident_clusters_are_asked_for_the_launch_at_hand(recorded: RecordedDriver) -> None:
    function = driver.load(built("one"), 0)
    assert driver.max_active_clusters(function, 2, 384, 200000) == 60
    ((_, handle, config),) = recorded.named("cuOccupancyMaxActiveClusters")
    assert int(handle) == 0x1234
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (2, 384, 200000)
    assert config.numAttrs == 1
    assert config.attrs[0].value.clusterDim.x == 2


def test_a_device_guard_restores_the_context_after_an_exception(recorded: RecordedDriver) -> None:
    with pytest.raises(ZeroDivisionError), driver.device_guard(1):
        raise ZeroDivisionError
    assert recorded.named("cuCtxPushCurrent", "cuCtxPopCurrent") == [
        ("cuCtxPushCurrent", "primary"),
        ("cuCtxPopCurrent",),
    ]


def test_a_context_is_made_current_only_after_the_error_that_says_none_was(
    recorded: RecordedDriver,
) -> None:
    driver.make_current_after(CudaError("launch", 201, "CUDA_ERROR_INVALID_CONTEXT", "", ""), 1)
    assert recorded.named("cuCtxSetCurrent") == [("cuCtxSetCurrent", "primary")]
    with pytest.raises(CudaError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        driver.make_current_after(CudaError("launch", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "", ""), 1)
    assert len(recorded.named("cuCtxSetCurrent")) == 1
