"""What NVML says of a device, through a fake pynvml."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from deep_gemm.bench.nvml import NvmlDevice
from deep_gemm.errors import UnsupportedError

UUIDS = ("11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")


class FakeNvml:
    """The part of pynvml that is used, of one process with two devices.

    NVML numbers the devices in the other order than CUDA, as CUDA_VISIBLE_DEVICES may.
    """

    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        """As of pynvml."""

    def __init__(self) -> None:
        self.initialized = False
        self.handles = {f"GPU-{uuid.removeprefix('GPU-')}": i for i, uuid in enumerate(UUIDS)}

    def nvmlInit(self) -> None:
        self.initialized = True

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        assert self.initialized
        if uuid not in self.handles:
            raise self.NVMLError("Not Found")
        return self.handles[uuid]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        assert clock == self.NVML_CLOCK_SM
        return 1500 + handle

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        assert clock == self.NVML_CLOCK_SM
        return 1980 + handle


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    properties = [SimpleNamespace(uuid=uuid) for uuid in UUIDS]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties[index])
    return fake


@pytest.mark.parametrize(("index", "handle"), [(0, 0), (1, 1), (None, 1)])
def test_a_device_is_found_by_its_uuid(nvml: FakeNvml, index: int | None, handle: int) -> None:
    device = NvmlDevice(index)
    assert device.sm_clock_mhz() == 1500 + handle
    assert device.max_sm_clock_mhz() == 1980 + handle
    assert device.driver_version() == "580.159.04"


def test_the_absent_package_is_named(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'deep-gemm\[bench\]'") as raised:
        NvmlDevice()
    assert "reading the SM clock and the driver version" in str(raised.value)


def test_an_unknown_device_is_an_error(nvml: FakeNvml) -> None:
    nvml.handles.clear()
    with pytest.raises(UnsupportedError, match="NVML: Not Found"):
        NvmlDevice(0)


def test_nvml_that_does_not_start_is_an_error(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise nvml.NVMLError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    with pytest.raises(UnsupportedError, match="NVML: Driver Not Loaded"):
        NvmlDevice()


@pytest.mark.parametrize(
    ("function", "method"),
    [
        ("nvmlSystemGetDriverVersion", "driver_version"),
        ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
        ("nvmlDeviceGetMaxClockInfo", "max_sm_clock_mhz"),
    ],
)
def test_a_figure_that_nvml_does_not_give_is_an_error(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, function: str, method: str
) -> None:
    def fail(*arguments: object) -> None:
        raise nvml.NVMLError("Not Supported")

    monkeypatch.setattr(nvml, function, fail)
    device = NvmlDevice()
    with pytest.raises(UnsupportedError, match="NVML: Not Supported"):
        getattr(device, method)()
