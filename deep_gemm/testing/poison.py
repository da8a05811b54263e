"""Memory that betrays a wrong access: outputs among canaries, inputs among NaN."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..layouts import align
from .numerics import bits

GUARD_ROWS = 2  # rows of canaries before and after the output
_CANARY = 0xA5  # every byte outside the output: a finite value, so that it looks like a result


def canary(
    m: int,
    n: int,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
    row_pad: int = 8,
) -> tuple[torch.Tensor, Callable[[], None]]:
    """Return an output [m, n] inside a larger buffer, and a check of that buffer.

    The output has row pitch n + row_pad, starts at a 16-byte boundary when row pitch times
    element size does, and is filled with NaN, so that an element nobody wrote shows. Everything
    around it (GUARD_ROWS before and after, row_pad elements after each row) holds canaries.

    The check raises AssertionError when a canary changed, with the first coordinate relative to
    the output; it synchronizes.
    """
    buffer = torch.empty((m + 2 * GUARD_ROWS, n + row_pad), dtype=dtype, device=device)
    raw = buffer.view(torch.uint8)
    raw.fill_(_CANARY)
    view = buffer[GUARD_ROWS : GUARD_ROWS + m, :n]
    nan_fill_(view)

    def check() -> None:
        words = bits(buffer)
        changed = words != _canary_word(words.dtype)
        changed[GUARD_ROWS : GUARD_ROWS + m, :n] = False
        count = int(changed.sum())
        if count:
            row, column = (int(i) for i in changed.nonzero()[0])
            where = (row - GUARD_ROWS, column)
            raise AssertionError(
                f"{count} elements outside the [{m}, {n}] output were written, first at {where}"
            )

    return view, check


def nan_fill_(x: torch.Tensor) -> torch.Tensor:
    """Fill x with NaN, FP8 too, or integers with bytes of 0x7F, and return it."""
    if x.dtype == torch.int32:
        return x.fill_(0x7F7F7F7F)
    if x.element_size() == 1:
        x.view(torch.uint8).fill_(0x7F)
        return x
    return x.fill_(torch.nan)


def nan_like(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return a NaN-filled contiguous tensor of `shape`, in like's dtype and on its device."""
    return nan_fill_(torch.empty(shape, dtype=like.dtype, device=like.device))


def pitched(x: torch.Tensor, pitch: int) -> torch.Tensor:
    """Return a copy of x [rows, columns] with row pitch `pitch`; NaN fills the padding."""
    buffer = nan_like((x.shape[0], pitch), x)
    return copied(x, buffer[:, : x.shape[1]])


def transposed(x: torch.Tensor, pitch: int | None = None) -> torch.Tensor:
    """Return a copy of x [rows, columns] with strides (1, pitch); NaN fills the padding.

    pitch: at least rows; rows itself by default.
    """
    rows, columns = x.shape
    buffer = nan_like((columns, rows if pitch is None else pitch), x)
    return copied(x, buffer.T[:rows])


def every_second_column(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of x [rows, columns] in every second column of a wider, NaN-filled buffer."""
    buffer = nan_like((x.shape[0], 2 * x.shape[1]), x)
    return copied(x, buffer[:, ::2])


def tma_pitched(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of float32 x with strides (1, rows rounded up to 4); NaN fills the padding."""
    return transposed(x, align(x.shape[0], 4))


def copied(x: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """Copy x into view, FP8 byte by byte so that NaN keep their bits, and return the view."""
    if x.element_size() == 1:
        view.view(torch.uint8).copy_(x.view(torch.uint8))
        return view
    return view.copy_(x)


def _canary_word(dtype: torch.dtype) -> int:
    size = torch.empty((), dtype=dtype).element_size()
    signed = dtype != torch.uint8
    return int.from_bytes(bytes([_CANARY] * size), "little", signed=signed)
