"""Integer helpers, and the layouts of matrices and of scales that TMA can load."""

from __future__ import annotations

import torch

from .errors import ArgumentError

TMA_ALIGNMENT_BYTES = 16
LINE_BYTES = 128  # of the caches


def ceil_div(x: int, y: int) -> int:
    """Return x / y rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """Return x rounded up to a multiple of y."""
    return ceil_div(x, y) * y


def get_tma_aligned_size(x: int, element_size: int) -> int:
    """Return the number of elements `x` rounded up so that they fill whole 16-byte units.

    Raises ArgumentError when 16 bytes do not hold a whole number of elements.
    """
    if element_size <= 0 or TMA_ALIGNMENT_BYTES % element_size:
        raise ArgumentError("element_size", "value", "1, 2, 4, 8 or 16 bytes", element_size)
    return align(x, TMA_ALIGNMENT_BYTES // element_size)


def line_aligned_size(columns: int, element_size: int) -> int:
    """Return `columns` rounded up to whole cache lines of 128 bytes."""
    return align(columns, LINE_BYTES // element_size)


def align_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the matrix `x` with rows that start at multiples of 16 bytes, as TMA wants them.

    Requirements: x is [rows, columns] of any dtype, on any device.

    Returns x itself where its rows do already, else a view of the same shape and values into rows
    of whole cache lines, 128 bytes, the rest of which is not initialized: from lines of its own a
    row loads up to 11 % faster (docs/findings.md). Costs one read and one write of x then; never
    synchronizes.
    """
    rows = x.shape[0]
    aligned = x.stride(0) * x.element_size() % TMA_ALIGNMENT_BYTES == 0 or rows <= 1
    if x.stride(1) == 1 and aligned and x.data_ptr() % TMA_ALIGNMENT_BYTES == 0:
        return x
    return rows_of_whole_lines(x)


def rows_of_whole_lines(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of a matrix, or a stack of them, in rows of whole cache lines of 128 bytes."""
    *lead, columns = x.shape
    pitch = line_aligned_size(columns, x.element_size())
    return torch.empty(*lead, pitch, dtype=x.dtype, device=x.device)[..., :columns].copy_(x)


def get_mn_major_tma_aligned_tensor(sf: torch.Tensor) -> torch.Tensor:
    """Return the scales `sf` with neighbours along mn adjacent and columns 16-byte aligned.

    Requirements: sf is float32, [mn, kb] or [groups, mn, kb], any strides.

    Returns a tensor of the same shape and values with strides (1, T) or (T * kb, 1, T), where T
    is mn rounded up to a multiple of 4. The elements between mn and T are not initialized. When
    sf has these strides and a 16-byte aligned address already, sf itself is returned.

    Raises ArgumentError for another dtype or rank. Costs one read and one write of the scales
    unless sf is returned; never synchronizes.
    """
    if sf.dtype != torch.float32:
        remedy = "only float32 scales have this layout"
        raise ArgumentError("sf", "dtype", torch.float32, sf.dtype, remedy)
    if sf.dim() not in (2, 3):
        wanted = "[mn, kb] or [groups, mn, kb]"
        raise ArgumentError("sf", "shape", wanted, list(sf.shape))
    *lead, mn, kb = sf.shape
    pitch = get_tma_aligned_size(mn, sf.element_size())
    if _complies(sf, pitch):
        return sf
    storage = torch.empty((*lead, kb, pitch), dtype=sf.dtype, device=sf.device)
    return storage.transpose(-1, -2)[..., :mn, :].copy_(sf)


get_col_major_tma_aligned_tensor = get_mn_major_tma_aligned_tensor


def _complies(sf: torch.Tensor, pitch: int) -> bool:
    wanted = (1, pitch) if sf.dim() == 2 else (pitch * sf.shape[2], 1, pitch)
    return sf.stride() == wanted and sf.data_ptr() % TMA_ALIGNMENT_BYTES == 0
