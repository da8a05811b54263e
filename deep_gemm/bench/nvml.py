"""What NVML says of a device: driver version and SM clocks. Needs nvidia-ml-py, extra `[bench]`."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError

PURPOSE = "reading the SM clock and the driver version"


class NvmlDevice:
    """A CUDA device as NVML knows it.

    device_index: of CUDA, the current device by default.
    errors: UnsupportedError without nvidia-ml-py, or where NVML does not answer.
    """

    def __init__(self, device_index: int | None = None):
        import torch

        index = torch.cuda.current_device() if device_index is None else device_index
        # CUDA_VISIBLE_DEVICES renumbers devices for CUDA but not for NVML: the uuid is common.
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        self._nvml = _nvml()
        self._ask("nvmlInit")
        name = f"GPU-{uuid.removeprefix('GPU-')}"
        self._handle = self._ask("nvmlDeviceGetHandleByUUID", name)

    def driver_version(self) -> str:
        """Return the version of the display driver, such as "580.159.04"."""
        return str(self._ask("nvmlSystemGetDriverVersion"))

    def sm_clock_mhz(self) -> int:
        """Return the SM clock at this moment, in MHz."""
        return int(self._ask("nvmlDeviceGetClockInfo", self._handle, self._nvml.NVML_CLOCK_SM))

    def max_sm_clock_mhz(self) -> int:
        """Return the highest SM clock of the device, in MHz."""
        return int(self._ask("nvmlDeviceGetMaxClockInfo", self._handle, self._nvml.NVML_CLOCK_SM))

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise UnsupportedError(PURPOSE, [f"NVML: {error}"]) from None


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        reason = "nvidia-ml-py is not installed: pip install 'deep-gemm[bench]'"
        raise UnsupportedError(PURPOSE, [reason]) from None
    return pynvml
