"""What a process asks of the library around its calls: availability, warm-up, the SM budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from . import settings
from .config import GemmConfig, choices, from_index
from .errors import DeepGemmError, UnsupportedError
from .problem import GemmProblem, GroupKind


@dataclass(frozen=True)
class Availability:
    """Whether GPU kernels can run here, and why not; true or false like a bool."""

    available: bool
    reason: str

    def __bool__(self) -> bool:
        return self.available


def is_available(device: int = 0) -> Availability:
    """Say whether CUDA device `device` can run the kernels, with the reason if not.

    Asks for a driver, a device of compute capability 9.0 and NVRTC; compiles nothing. Never raises.
    """
    from .jit import driver, nvrtc

    if not torch.cuda.is_available():
        return Availability(False, "torch sees no CUDA device")
    try:
        attributes = driver.device_attributes(device)
        major, minor = nvrtc.version()
    except DeepGemmError as error:
        return Availability(False, str(error))
    if attributes.refusal:
        return Availability(False, attributes.refusal)
    return Availability(True, f"{attributes.name}, NVRTC {major}.{minor}")


def get_num_sms() -> int:
    """Return how many SMs kernels may use: the cap of set_num_sms(), else all of the device.

    Raises UnsupportedError where no cap is set and there is no GPU to ask.
    """
    cap = settings.current().num_sms
    if cap:
        return cap
    if not torch.cuda.is_available():
        raise UnsupportedError("get_num_sms()", ["no cap is set and torch sees no CUDA device"])
    return from_index(torch.cuda.current_device()).sm_count


def warmup(
    m: Iterable[int],
    n: int,
    k: int,
    device: int | None = None,
    *,
    like: GemmProblem | None = None,
) -> list[GemmConfig]:
    """Compile and load every kernel that products M x N x K choose, for all M in `m`.

    Afterwards no call with these shapes, with static_b or without, compiles or loads anything, so
    it can be captured in a CUDA graph at once. Needs a GPU, allocates and launches nothing. Returns
    the configurations.

    Arguments:
        m: e.g. range(1, 8193); a thousand of them that need no new kernel cost a tenth of a
            second.
        device: CUDA device index; the current one where None.
        like: the kind of product, its extents being ignored; None for e4m3 with scales of 1x128 and
            128x128 into bf16.
    """
    from .kernels import gemm_sm90, group_tensor_maps, transpose

    index = torch.cuda.current_device() if device is None else device
    problem = replace(like or GemmProblem.block_scaled(0, 0, 0), n=n, k=k)
    configs = list(choices(problem, m, from_index(index), settings.current().num_sms))
    for config in configs:
        gemm_sm90.spec(config).load(index)
    if problem.transposed:
        transpose.load(index)
    if problem.grouping and problem.grouping.kind is GroupKind.ALONG_K:
        group_tensor_maps.load(problem, index)
    return configs
