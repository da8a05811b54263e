"""Runner: a launch plan called with tensors, on their device and its current stream."""

from __future__ import annotations

from typing import Any

import torch

from .. import checks
from ..errors import UnsupportedError
from ..jit import driver
from ..problem import GemmProblem
from .gemm_sm90 import Operands
from .plan import LaunchPlan

# torch's own look-ups without the objects its public forms make at every call.
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Runner:
    """Runs D = A @ B^T for tensors of one metadata; only their addresses may differ."""

    __slots__ = ("_device", "_launch")

    def __init__(
        self,
        problem: GemmProblem,
        a: torch.Tensor,
        sfa: torch.Tensor,
        b: torch.Tensor,
        sfb: torch.Tensor,
        d: torch.Tensor,
    ):
        """Make the plan from checked tensors.

        Raises UnsupportedError for a GPU without wgmma, or where a graph is being captured and the
        kernel is not loaded yet.
        """
        index = a.device.index
        refusal = driver.device_attributes(index).refusal
        if refusal:
            raise UnsupportedError(f"GEMM on {a.device}", [refusal])
        operands = Operands(
            m=problem.m,
            n=problem.n,
            k=problem.k,
            stride_a=_pitch(a, 16),
            stride_b=_pitch(b, 16),
            stride_d=_pitch(d, 8),
            stride_sfa=(sfa.stride(0), sfa.stride(1)),
            stride_sfb=(sfb.stride(0), sfb.stride(1)),
        )
        capturing = torch.cuda.is_current_stream_capturing()
        self._launch = LaunchPlan(problem, operands, index, may_load=not capturing).launch
        self._device = index

    def __call__(
        self,
        a: torch.Tensor,
        sfa: torch.Tensor,
        b: torch.Tensor,
        sfb: torch.Tensor,
        d: torch.Tensor,
    ) -> None:
        """Launch; raises ArgumentError for an address that TMA cannot take."""
        at_a, at_b, at_d = a.data_ptr(), b.data_ptr(), d.data_ptr()
        if (at_a | at_b | at_d) & 15:
            for name, address in (("a", at_a), ("b", at_b), ("d", at_d)):
                checks.address(name, address)
        device = self._device
        if _current_device() != device:
            with torch.cuda.device(device):
                self(a, sfa, b, sfb, d)
            return
        stream = _current_stream(device)
        self._launch(at_a, sfa.data_ptr(), at_b, sfb.data_ptr(), at_d, stream)


def _pitch(matrix: torch.Tensor, step: int) -> int:
    """Return the row pitch in elements; a single row gets one that TMA accepts."""
    rows, columns = matrix.shape
    return matrix.stride(0) if rows > 1 else -(-columns // step) * step
