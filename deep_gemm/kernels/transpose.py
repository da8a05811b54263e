"""Host half of cuda/transpose.cuh: 8-bit matrices with the other dimension contiguous."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from ..config.cost_model import copy_us
from ..errors import ArgumentError
from ..jit.launch import LaunchShape
from ..layouts import align, ceil_div, line_aligned_size
from .small_kernel import small_kernel
from .spec import KernelSpec

TILE = 128
_THREADS = 256


class TransposeParams(ctypes.Structure):
    """TransposeParams of the kernel, member by member; its source asserts the offsets."""

    _fields_ = [
        ("x", ctypes.c_uint64),
        ("y", ctypes.c_uint64),
        ("pitch_x", ctypes.c_int64),
        ("pitch_y", ctypes.c_int64),
        ("rows", ctypes.c_uint32),
        ("columns", ctypes.c_uint32),
        ("tiles_across", ctypes.c_uint32),
    ]


@cache
def spec(aligned: bool) -> KernelSpec:
    """Return the kernel for rows that can be loaded by 16 bytes, or for any."""
    return KernelSpec(
        name=f"transpose_bytes_{'aligned' if aligned else 'any'}",
        header="transpose.cuh",
        function="transpose_bytes",
        constants=(("kAligned", int(aligned)), ("kThreads", _THREADS)),
        params=TransposeParams,
        params_type="TransposeParams",
        launch=LaunchShape(_THREADS, ctas_per_sm=4),
        cost=copy_us,
    )


def load(device_index: int) -> None:
    """Compile and load the kernels on a device, so that no call does."""
    for aligned in (True, False):
        small_kernel(spec(aligned), device_index)


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Return x [mn, k] with k contiguous, where mn was.

    Requirements: one byte an element, on a CUDA device of compute capability 9.0, and
    x.stride(0) == 1 (unless mn is 1): a view of a matrix stored [k, mn].

    Returns a tensor of the same shape and values, whose rows are pitched to whole lines of 128
    bytes; what lies beyond k is not initialized.

    Raises ArgumentError otherwise; UnsupportedError for a first call inside a graph capture. Costs
    one read and one write of x; never synchronizes.
    """
    if x.dim() != 2 or x.element_size() != 1 or not x.is_cuda:
        wanted = "[mn, k] of one byte an element, on a CUDA device"
        raise ArgumentError("x", "kind", wanted, f"{list(x.shape)} of {x.dtype}, on {x.device}")
    mn, k = x.shape
    if mn > 1 and x.stride(0) != 1:
        raise ArgumentError("x", "strides", "1 along the first dimension", x.stride())
    y = torch.empty(mn, line_aligned_size(k, 1), dtype=x.dtype, device=x.device)[:, :k]
    if x.numel():
        transpose_into(x.t(), y)
    return y


def transpose_into(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write x [rows, columns], rows contiguous, into y [columns, rows].

    Rows of y start at multiples of 16 bytes, of which the last one of a row is written whole.
    """
    rows, columns = x.shape
    pitch = x.stride(0) if rows > 1 else align(columns, 16)
    pitch_y = y.stride(0) if columns > 1 else align(rows, 16)
    at = x.data_ptr()
    across = ceil_div(columns, TILE)
    kernel = small_kernel(spec((at | pitch) % 16 == 0), x.device.index)
    kernel.launch(
        ceil_div(rows, TILE) * across, at, y.data_ptr(), pitch, pitch_y, rows, columns, across
    )
