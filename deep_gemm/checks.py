"""Checks of tensors on the host, one vocabulary: tensor, property, wanted, got, remedy."""

from __future__ import annotations

import torch

from .errors import ArgumentError
from .quant.recipe import ScaleRecipe

ALIGNMENT_BYTES = 16  # of base addresses and row pitches that TMA takes


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
    pitch = value.stride(0) * element
    if pitch % ALIGNMENT_BYTES:
        step = ALIGNMENT_BYTES // element
        padded = -(-value.shape[1] // step) * step
        raise ArgumentError(
            name,
            "row stride",
            f"a multiple of {step} elements ({ALIGNMENT_BYTES} bytes)",
            value.stride(0),
            f"rows of {padded} elements and the view [:, :{value.shape[1]}]: quant.align_rows()",
        )


def tma_extents(n: int) -> None:
    """Check that rows of D end where a TMA store can end them: at multiples of 16 bytes.

    A store of fewer columns would write up to the next multiple, into what lies behind the row.
    Loads end at any element, so K has no such limit.
    """
    if n % 8:
        padded = f"pad B, its scales and D to N = {-(-n // 8) * 8}, with rows of zeros in B"
        raise ArgumentError("b", "number of rows (N)", "a multiple of 8", n, padded)


def address(name: str, pointer: int) -> None:
    """Check that a base address is one that TMA can take."""
    if pointer % ALIGNMENT_BYTES:
        raise ArgumentError(
            name,
            "address",
            f"a multiple of {ALIGNMENT_BYTES}",
            f"{pointer:#x} ({pointer % ALIGNMENT_BYTES} over)",
            f"pass a view that starts on a {ALIGNMENT_BYTES}-byte boundary, or {name}.clone()",
        )


def scale(name: str, value: torch.Tensor, recipe: ScaleRecipe, extents: tuple[int, int]) -> None:
    """Check a scale tensor: FP32, one value per group of the recipe, any strides."""
    if value.dtype == torch.int32:
        raise ArgumentError(
            name,
            "dtype",
            torch.float32,
            value.dtype,
            "packed UE8M0 scales are of another GPU generation; pass the FP32 scales",
        )
    dtype(name, value, torch.float32)
    remedy = f"{recipe.name} scales of a {extents[0]} x {extents[1]} operand have this shape"
    shape(name, value, recipe.shape(*extents), remedy)
