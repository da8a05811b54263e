"""Casts to FP8 or INT8 with one scale a block, and their inverse.

A block holds the elements that share a scale: its scale is amax / max, where amax is the largest
finite magnitude in the block and max the largest finite value of the format (127 for INT8), and its
data are x / scale rounded to nearest even. Then
- a block of zeros gets scale 1 and exact zeros;
- a tiny amax never gives a scale below 2**-126, so scale and 1 / scale are finite normal numbers;
- a NaN makes the scale and the data of its own block NaN, and touches no other block; INT8 data,
  which cannot be NaN, become 0;
- an infinity, or a value beyond `max` after scaling, raises ArgumentError (`overflow="error"`, one
  device synchronization) or is clamped to `max` (`overflow="saturate"`, no synchronization, so
  that one can be captured in a CUDA graph). It never becomes infinity or NaN in silence.

On a GPU of compute capability 9.0 a kernel casts float32, bfloat16 and float16 in one launch: one
read of x (two for one scale a tensor or a column, the second largely from on-chip memory) and one
write. Elsewhere, for float64, and for granularities without a kernel, torch operations do, with the
same bits (but NaN have no sign to rely on). The first call with a kernel compiles it, which takes
tenths of a second and cannot be done while a CUDA graph is captured (UnsupportedError).

Common arguments
    x: float32, bfloat16, float16 or float64, [rows, columns] or with leading dimensions, any
        strides; each matrix of the last two dimensions is cast on its own. May be empty.
    use_ue8m0: round each scale up to a power of two.
    gran_k: elements that share a scale along the blocked axis; the last block may be partial.
    dtype: torch.float8_e4m3fn, torch.float8_e5m2 or torch.int8.
    overflow: "error" or "saturate".
"""

from __future__ import annotations

import torch

from .. import dtypes
from ..errors import ArgumentError, UnsupportedError
from ..layouts import get_tma_aligned_size
from ..problem.scale_recipe import PER_CHANNEL, PER_COLUMN, PER_TENSOR, ScaleRecipe, by_granularity
from . import torch_cast

_SOURCES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def per_token_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    gran_k: int = 128,
    use_packed_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
    scale_layout: str = "row_major",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each row and `gran_k` columns.

    scale_layout: "row_major", or "mn_major" for what get_mn_major_tma_aligned_tensor() would make
        of the scales: neighbours along rows adjacent, columns at multiples of 16 bytes.

    Returns (q, sf): q FP8 shaped as x, sf float32 [rows, ceil(columns / gran_k)].

    Raises ArgumentError on overflow and on a wrong dtype or rank; UnsupportedError for
    `use_packed_ue8m0`, a scale format that no kernel here reads.
    """
    if use_packed_ue8m0:
        reasons = ["packed UE8M0 scales are read by Blackwell kernels only", "pass float32 scales"]
        raise UnsupportedError("per_token_cast_to_fp8(use_packed_ue8m0=True)", reasons)
    recipe = by_granularity(1, gran_k)
    return cast_blocks(x, recipe, use_ue8m0, dtype, overflow, scale_layout)


def per_block_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    gran_k: int = 128,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each 128 rows and `gran_k` columns.

    Returns (q, sf): q FP8 shaped as x, sf float32 [ceil(rows / 128), ceil(columns / gran_k)].
    """
    return cast_blocks(x, by_granularity(128, gran_k), use_ue8m0, dtype, overflow)


def per_channel_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    gran_k: int = 128,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each `gran_k` rows of one column.

    This is the cast of an operand stored [k, mn]. For one scale a row see per_row_cast_to_fp8.

    Returns (q, sf): q FP8 shaped as x, sf float32 [ceil(rows / gran_k), columns].
    """
    return cast_blocks(x, by_granularity(gran_k, 1), use_ue8m0, dtype, overflow)


def per_tensor_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for the whole matrix; sf is float32 [1, 1]."""
    return cast_blocks(x, PER_TENSOR, use_ue8m0, dtype, overflow)


def per_row_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each row, whatever its length; sf is float32 [rows, 1]."""
    return cast_blocks(x, PER_CHANNEL, use_ue8m0, dtype, overflow)


def per_column_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each column over all rows; sf is float32 [1, columns].

    For an operand stored [k, mn] it is what per_row_cast_to_fp8 is for one stored [mn, k].
    """
    return cast_blocks(x, PER_COLUMN, use_ue8m0, dtype, overflow)


def cast_to_fp8(
    x: torch.Tensor,
    sf: torch.Tensor,
    recipe: ScaleRecipe,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> torch.Tensor:
    """Cast to FP8 with the caller's own scales and return the data, x / sf.

    Requirements: sf is float32 in the shape that recipe gives for x. A zero divided by a scale of
    zero counts as zero; a scale that is not finite is not finite in its own block.

    Raises ArgumentError on overflow, counting every element that the scales leave beyond the
    format, and on a wrong dtype or shape.
    """
    _check_cast(x, dtype, overflow)
    check_scale(sf, x.shape, recipe)
    if sf.device != x.device:
        raise ArgumentError("scale", "device", x.device, sf.device)
    if x.numel() and _has_kernel(x, recipe, precomputed=True):
        from ..kernels import cast as kernels

        q = torch.empty(x.shape, dtype=dtype, device=x.device)
        if not kernels.cast(x, q, sf, recipe, precomputed=True, counted=overflow == "error"):
            return q
    return torch_cast.cast_precomputed(x, sf, recipe, dtype, overflow)


def dequantize(
    q: torch.Tensor,
    sf: torch.Tensor,
    recipe: ScaleRecipe,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return q * sf, each block with its own scale, as float32 (rounded once) or float64 (exact).

    Requirements: q [..., mn, k] of any floating dtype, sf float32 in the recipe's shape.
    """
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentError("dtype", "value", "torch.float32 or torch.float64", dtype)
    check_scale(sf, q.shape, recipe)
    blocks = torch_cast.blocked(q.to(dtype), recipe)
    return torch_cast.unblocked(blocks * sf.to(dtype)[..., :, None, :, None], q.shape)


def check_scale(sf: torch.Tensor, shape: torch.Size, recipe: ScaleRecipe) -> None:
    """Raise ArgumentError unless sf is float32 and shaped as `recipe` wants for data of `shape`."""
    if sf.dtype != torch.float32:
        raise ArgumentError("scale", "dtype", torch.float32, sf.dtype)
    if len(shape) < 2:
        raise ArgumentError("data", "rank", "2 or more", len(shape))
    *lead, mn, k = shape
    wanted = [*lead, *recipe.shape(mn, k)]
    if list(sf.shape) != wanted:
        prop = f"shape (recipe {recipe.name}, data {list(shape)})"
        raise ArgumentError("scale", prop, wanted, list(sf.shape))


def cast_blocks(
    x: torch.Tensor,
    recipe: ScaleRecipe,
    use_ue8m0: bool,
    dtype: torch.dtype,
    overflow: str,
    scale_layout: str = "row_major",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast x with one computed scale for each block of `recipe`; scale_layout as per token."""
    _check_cast(x, dtype, overflow)
    sf = _empty_scales(x, recipe, scale_layout)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device), sf.fill_(1)
    if _has_kernel(x, recipe):
        from ..kernels import cast as kernels

        q = torch.empty(x.shape, dtype=dtype, device=x.device)
        counted = overflow == "error"
        if not kernels.cast(x, q, sf, recipe, power_of_two=use_ue8m0, counted=counted):
            return q, sf
    # Where a kernel has counted overflow, this raises, and says where.
    q, computed = torch_cast.cast_computed(x, recipe, use_ue8m0, dtype, overflow)
    return q, sf.copy_(computed)


def _has_kernel(x: torch.Tensor, recipe: ScaleRecipe, precomputed: bool = False) -> bool:
    """Say whether a kernel casts x, with the caller's scales if they are precomputed."""
    if not x.is_cuda:
        return False
    from ..kernels import cast as kernels

    return kernels.serves(x, recipe, precomputed)


def _empty_scales(x: torch.Tensor, recipe: ScaleRecipe, layout: str) -> torch.Tensor:
    """Return memory for the scales of x, row-major, or with columns that start at 16 bytes."""
    *lead, mn, k = x.shape
    rows, columns = recipe.shape(mn, k)
    if layout == "row_major":
        return torch.empty((*lead, rows, columns), dtype=torch.float32, device=x.device)
    if layout != "mn_major":
        raise ArgumentError("scale_layout", "value", '"row_major" or "mn_major"', repr(layout))
    pitch = get_tma_aligned_size(rows, 4)
    storage = torch.empty((*lead, columns, pitch), dtype=torch.float32, device=x.device)
    return storage.transpose(-1, -2)[..., :rows, :]


def _check_cast(x: torch.Tensor, dtype: torch.dtype, overflow: str) -> None:
    """Check the arguments common to all casts."""
    row = dtypes.from_torch(dtype)
    if row is None or not row.max:
        wanted = "torch.float8_e4m3fn, torch.float8_e5m2 or torch.int8"
        raise ArgumentError("dtype", "value", wanted, dtype)
    if overflow not in ("error", "saturate"):
        raise ArgumentError("overflow", "value", '"error" or "saturate"', repr(overflow))
    if x.dtype not in _SOURCES:
        raise ArgumentError("x", "dtype", "float32, bfloat16, float16 or float64", x.dtype)
    if x.dim() < 2:
        raise ArgumentError("x", "shape", "[rows, columns]", list(x.shape))
