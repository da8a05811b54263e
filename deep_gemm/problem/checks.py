"""Checks of tensors on the host, one vocabulary: tensor, property, wanted, got, remedy."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import ArgumentError, UnsupportedError
from ..layouts import TMA_ALIGNMENT_BYTES, align
from .choices import Major


def tensor(name: str, value: object) -> torch.Tensor:
    """Return `value` if it is a tensor; ArgumentError names what it is instead."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(name, "type", "torch.Tensor", type(value).__name__)
    return value


def dtype(name: str, value: torch.Tensor, wanted: torch.dtype, remedy: str = "") -> None:
    """Check the element type."""
    if value.dtype != wanted:
        raise ArgumentError(name, "dtype", wanted, value.dtype, remedy)


def shape(name: str, value: torch.Tensor, wanted: tuple[int, ...], remedy: str = "") -> None:
    """Check the shape."""
    if tuple(value.shape) != tuple(wanted):
        raise ArgumentError(name, "shape", wanted, tuple(value.shape), remedy)


def matrix(name: str, value: torch.Tensor) -> None:
    """Check that there are two dimensions."""
    if value.dim() != 2:
        raise ArgumentError(name, "number of dimensions", 2, value.dim())


def same_device(name: str, value: torch.Tensor, wanted: torch.device) -> None:
    """Check that a tensor lies where the others do."""
    if value.device != wanted:
        raise ArgumentError(name, "device", wanted, value.device, f"move it with .to('{wanted}')")


def served_device(tensors: Mapping[str, torch.Tensor | None], wanted: torch.device) -> None:
    """Check that those tensors there are lie on one device, of a kind that is served."""
    for name, value in tensors.items():
        if value is not None:
            same_device(name, value, wanted)
    if wanted.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"tensors on {wanted}", ["CPU and CUDA devices are served"])


def rows_contiguous(name: str, value: torch.Tensor) -> None:
    """Check that the elements of a row follow one another and rows do not overlap."""
    rows, columns = value.shape
    if columns > 1 and value.stride(1) != 1:
        raise ArgumentError(
            name,
            "stride of the last dimension",
            1,
            value.stride(1),
            f"pass {name}.contiguous(), or the other operand layout",
        )
    if rows > 1 and value.stride(0) < columns:
        raise ArgumentError(
            name, "row stride", f"at least {columns}", value.stride(0), "rows may not overlap"
        )


def tma_rows(name: str, value: torch.Tensor) -> None:
    """Check that the row pitch is one that TMA can address."""
    if value.shape[0] <= 1:
        return
    element = value.element_size()
    if value.stride(0) * element % TMA_ALIGNMENT_BYTES:
        step = TMA_ALIGNMENT_BYTES // element
        padded = align(value.shape[1], step)
        raise ArgumentError(
            name,
            "row stride",
            f"a multiple of {step} elements ({TMA_ALIGNMENT_BYTES} bytes)",
            value.stride(0),
            f"rows of {padded} elements and the view [:, :{value.shape[1]}]: quant.align_rows()",
        )


def tma_stack(name: str, value: torch.Tensor, major: Major) -> None:
    """Check that TMA can address the rows of a matrix, or of each matrix of a stack."""
    matrix = value if value.dim() == 2 else value[0]
    tma_rows(name, matrix if major is Major.K else matrix.t())
    pitch = value.stride(0) * value.element_size()
    if value.dim() == 3 and value.shape[0] > 1 and pitch % TMA_ALIGNMENT_BYTES:
        step = TMA_ALIGNMENT_BYTES // value.element_size()
        wanted = f"a multiple of {step} elements ({TMA_ALIGNMENT_BYTES} bytes)"
        remedy = "rows of a multiple of 16 bytes, and as many for each group"
        raise ArgumentError(name, "group stride", wanted, value.stride(0), remedy)


def tma_extents(n: int, element_bytes: int) -> None:
    """Check that rows of D end where a TMA store can end them: at multiples of 16 bytes.

    A store of fewer columns would write up to the next multiple, into what lies behind the row.
    Loads end at any element, so K has no such limit.
    """
    step = TMA_ALIGNMENT_BYTES // element_bytes
    if n % step:
        padded = f"pad B, its scales and D to N = {align(n, step)}, with rows of zeros in B"
        raise ArgumentError("b", "number of rows (N)", f"a multiple of {step}", n, padded)


def address(name: str, pointer: int) -> None:
    """Check that a base address is one that TMA can take."""
    if pointer % TMA_ALIGNMENT_BYTES:
        raise ArgumentError(
            name,
            "address",
            f"a multiple of {TMA_ALIGNMENT_BYTES}",
            f"{pointer:#x} ({pointer % TMA_ALIGNMENT_BYTES} over)",
            f"pass a view that starts on a {TMA_ALIGNMENT_BYTES}-byte boundary, or {name}.clone()",
        )


def scale_dtype(name: str, value: torch.Tensor) -> None:
    """Check that scales are FP32."""
    if tensor(name, value).dtype == torch.int32:
        raise ArgumentError(
            name,
            "dtype",
            torch.float32,
            value.dtype,
            "packed UE8M0 scales are of another GPU generation; pass the FP32 scales",
        )
    dtype(name, value, torch.float32)


def major(name: str, value: torch.Tensor) -> Major:
    """Return which dimension of an operand [mn, k] is contiguous.

    Where both are (one row, one column), it is the one whose lines TMA can address.
    """
    found = [
        (which, view)
        for which, view in ((Major.K, value), (Major.MN, value.t()))
        if _lines_contiguous(view)
    ]
    if not found:
        rows_contiguous(name, value)
    return next((which for which, view in found if _pitch_aligned(view)), found[0][0])


def _lines_contiguous(matrix: torch.Tensor) -> bool:
    rows, columns = matrix.shape
    return (columns <= 1 or matrix.stride(1) == 1) and (rows <= 1 or matrix.stride(0) >= columns)


def _pitch_aligned(matrix: torch.Tensor) -> bool:
    return (
        matrix.shape[0] <= 1 or matrix.stride(0) * matrix.element_size() % TMA_ALIGNMENT_BYTES == 0
    )


def same_or_apart(name: str, value: torch.Tensor, d: torch.Tensor) -> None:
    """Check that a matrix, or a stack of them, is D itself or shares no memory with it."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or d.numel() == 0:
        return
    start, end = _span(value)
    start_d, end_d = _span(d)
    if start >= end_d or start_d >= end or value.device != d.device:
        return
    strides, strides_d = _strides(value), _strides(d)
    if start == start_d and strides == strides_d and value.shape == d.shape:
        return
    if d.dim() == 2 and strides == strides_d and _columns_apart(value, d, strides[0]):
        return
    raise ArgumentError(
        name,
        "memory",
        "D itself, with its strides, or apart from it",
        "memory that overlaps D's",
        f"pass {name}.clone()",
    )


def _strides(value: torch.Tensor) -> tuple[int, ...]:
    """Return the strides, 0 where there is one element."""
    sizes = zip(value.shape, value.stride(), strict=True)
    return tuple(stride if size > 1 else 0 for size, stride in sizes)


def _columns_apart(value: torch.Tensor, d: torch.Tensor, pitch: int) -> bool:
    """Say whether two matrices of rows with one pitch are different columns of one buffer."""
    offset = (value.data_ptr() - d.data_ptr()) // d.element_size()
    columns = value.shape[1]
    return pitch > 0 and d.shape[1] <= offset % pitch <= pitch - columns


def _span(value: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor and the one after its last element."""
    steps = zip(value.shape, value.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()
