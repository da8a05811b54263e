"""What a process asks of the library around its calls: availability, warm-up, the SM budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from . import settings
from .config import GemmConfig, from_index, select
from .errors import DeepGemmError, UnsupportedError
from .problem import GemmProblem


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


def warmup(m: Iterable[int], n: int, k: int, device: int | None = None) -> list[GemmConfig]:
    """Compile and load every kernel that problems M x N x K choose, for all M in `m`.

    Afterwards no call with these shapes, with static_b or without, compiles or loads anything, so
    it can be captured in a CUDA graph at once. Needs a GPU, allocates and launches nothing. Returns
    the configurations.

    Arguments:
        m: e.g. range(1, 8193); one that needs no new kernel costs about a millisecond.
        device: CUDA device index; the current one where None.
    """
    from .kernels.plan import load

    index = torch.cuda.current_device() if device is None else device
    spec = from_index(index)
    cap = settings.current().num_sms
    problems = [
        GemmProblem.block_scaled(rows, n, k, static_b)
        for rows in m
        if rows > 0
        for static_b in (False, True)
    ]
    configs = list(dict.fromkeys(select(problem, spec, cap) for problem in problems))
    for config in configs:
        load(config, index)
    return configs
