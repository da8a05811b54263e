"""Casts to FP8 with one scale a block, and their inverse. Torch operations only, any device.

A block holds the elements that share a scale: its scale is amax / max, where amax is the largest
finite magnitude in the block and max the largest finite value of the FP8 format, and its data are
x / scale rounded to nearest even. Then
- a block of zeros gets scale 1 and exact zeros;
- a tiny amax never gives a scale below 2**-126, so scale and 1 / scale are finite normal numbers;
- a NaN makes the scale and the data of its own block NaN, and touches no other block;
- an infinity, or a value beyond `max` after scaling, raises ArgumentError (`overflow="error"`, one
  device synchronization) or is clamped to `max` (`overflow="saturate"`, no synchronization, so
  that one can be captured in a CUDA graph). It never becomes infinity or NaN in silence.

Common arguments
    x: float32, bfloat16, float16 or float64, [rows, columns] or with leading dimensions, any
        strides; each matrix of the last two dimensions is cast on its own. May be empty.
    use_ue8m0: round each scale up to a power of two.
    gran_k: elements that share a scale along the blocked axis; the last block may be partial.
    dtype: torch.float8_e4m3fn or torch.float8_e5m2.
    overflow: "error" or "saturate".
"""

from __future__ import annotations

import torch

from .. import dtypes
from ..errors import ArgumentError, UnsupportedError
from .recipe import PER_CHANNEL, PER_TENSOR, ScaleRecipe, by_granularity

_SOURCES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SMALLEST_SCALE = 2.0**-126  # smallest normal float32: its inverse is finite
_SLACK = 1.0 + 2.0**-22  # amax / (amax / max) may exceed max by rounding alone
_LARGEST_FP32 = torch.finfo(torch.float32).max


def per_token_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    gran_k: int = 128,
    use_packed_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each row and `gran_k` columns.

    Returns (q, sf): q FP8 shaped as x, sf float32 [rows, ceil(columns / gran_k)], row-major.

    Raises ArgumentError on overflow and on a wrong dtype or rank; UnsupportedError for
    `use_packed_ue8m0`, a scale format that no kernel here reads.
    """
    if use_packed_ue8m0:
        reasons = ["packed UE8M0 scales are read by Blackwell kernels only", "pass float32 scales"]
        raise UnsupportedError("per_token_cast_to_fp8(use_packed_ue8m0=True)", reasons)
    return _cast_blocks(x, by_granularity(1, gran_k), use_ue8m0, dtype, overflow)


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
    return _cast_blocks(x, by_granularity(128, gran_k), use_ue8m0, dtype, overflow)


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
    return _cast_blocks(x, by_granularity(gran_k, 1), use_ue8m0, dtype, overflow)


def per_tensor_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for the whole matrix; sf is float32 [1, 1]."""
    return _cast_blocks(x, PER_TENSOR, use_ue8m0, dtype, overflow)


def per_row_cast_to_fp8(
    x: torch.Tensor,
    use_ue8m0: bool = False,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    overflow: str = "error",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast to FP8 with one scale for each row, whatever its length; sf is float32 [rows, 1]."""
    return _cast_blocks(x, PER_CHANNEL, use_ue8m0, dtype, overflow)


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
    largest = _check_cast(x, dtype, overflow)
    check_scale(sf, x.shape, recipe)
    blocks = _blocked(_wide(x), recipe)
    scales = sf.to(blocks.dtype)[..., :, None, :, None]
    scaled = torch.where((blocks == 0) & (scales == 0), 0.0, blocks / scales)
    return _to_fp8(_unblocked(scaled, x.shape), x, dtype, overflow, largest)


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
    blocks = _blocked(q.to(dtype), recipe)
    return _unblocked(blocks * sf.to(dtype)[..., :, None, :, None], q.shape)


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


def _cast_blocks(
    x: torch.Tensor, recipe: ScaleRecipe, use_ue8m0: bool, dtype: torch.dtype, overflow: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cast x with one computed scale for each block of `recipe`."""
    largest = _check_cast(x, dtype, overflow)
    *lead, mn, k = x.shape
    if x.numel() == 0:
        sf = torch.ones((*lead, *recipe.shape(mn, k)), dtype=torch.float32, device=x.device)
        return torch.empty(x.shape, dtype=dtype, device=x.device), sf
    blocks = _blocked(_wide(x), recipe)
    sf = _scales(blocks, largest, use_ue8m0)
    scaled = _unblocked(blocks / sf.to(blocks.dtype)[..., :, None, :, None], x.shape)
    return _to_fp8(scaled, x, dtype, overflow, largest), sf


def _scales(blocks: torch.Tensor, largest: float, use_ue8m0: bool) -> torch.Tensor:
    """Return the float32 scale of each block [..., nb, gran_mn, kb, gran_k]."""
    magnitude = blocks.abs()
    magnitude.masked_fill_(magnitude == torch.inf, 0.0)
    amax = magnitude.amax(dim=(-3, -1)).clamp_(max=_LARGEST_FP32)
    # A tensor, because CUDA multiplies by the inverse of a plain number: other bits than the CPU.
    divisor = amax.new_full((), largest)
    sf = (amax / divisor).to(torch.float32).clamp_(min=_SMALLEST_SCALE)
    if use_ue8m0:
        sf = torch.where(sf.isnan(), sf, _ceil_to_power_of_two(sf))
    return torch.where(amax == 0, 1.0, sf)


def _ceil_to_power_of_two(sf: torch.Tensor) -> torch.Tensor:
    """Round positive, normal float32 up to a power of two, exactly."""
    bits = sf.view(torch.int32)
    return ((bits + 0x007FFFFF) & -0x00800000).view(torch.float32)


def _to_fp8(
    scaled: torch.Tensor, x: torch.Tensor, dtype: torch.dtype, overflow: str, largest: float
) -> torch.Tensor:
    """Round to FP8; refuse or clamp what lies beyond `largest`."""
    if overflow == "error":
        _refuse_overflow(scaled, x, dtype, largest)
    # Clamped in either case: torch turns out-of-range into NaN or infinity, depending on version.
    return scaled.clamp(-largest, largest).to(dtype)


def _refuse_overflow(
    scaled: torch.Tensor, x: torch.Tensor, dtype: torch.dtype, largest: float
) -> None:
    beyond = scaled.abs() > largest * _SLACK
    count = int(beyond.sum())
    if not count:
        return
    worst = float(x.abs()[beyond].to(torch.float64).max())
    raise ArgumentError(
        "x",
        "every value",
        f"finite and within {largest:g} ({dtype}) after scaling",
        f"{count} of {x.numel()} elements beyond it, the largest magnitude {worst:g}",
        'check the data, or pass overflow="saturate" to clamp',
    )


def _check_cast(x: torch.Tensor, dtype: torch.dtype, overflow: str) -> float:
    """Check the arguments common to all casts; return the largest value of the FP8 format."""
    row = dtypes.from_torch(dtype)
    if row is None or not row.max:
        wanted = "torch.float8_e4m3fn or torch.float8_e5m2"
        raise ArgumentError("dtype", "value", wanted, dtype)
    if overflow not in ("error", "saturate"):
        raise ArgumentError("overflow", "value", '"error" or "saturate"', repr(overflow))
    if x.dtype not in _SOURCES:
        raise ArgumentError("x", "dtype", "float32, bfloat16, float16 or float64", x.dtype)
    if x.dim() < 2:
        raise ArgumentError("x", "shape", "[rows, columns]", list(x.shape))
    return row.max


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return x in the dtype the casts compute in: float64 stays, all others become float32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _blocked(x: torch.Tensor, recipe: ScaleRecipe) -> torch.Tensor:
    """View x [..., mn, k] as [..., nb, gran_mn, kb, gran_k], zeros filling the last blocks."""
    mn, k = x.shape[-2:]
    rows, columns = recipe.shape(mn, k)
    gran_mn, gran_k = recipe.gran_mn or mn, recipe.gran_k or k
    pad_mn, pad_k = rows * gran_mn - mn, columns * gran_k - k
    if pad_mn or pad_k:
        x = torch.nn.functional.pad(x, (0, pad_k, 0, pad_mn))
    return x.unflatten(-1, (columns, gran_k)).unflatten(-3, (rows, gran_mn))


def _unblocked(blocks: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Undo `_blocked` and return a contiguous tensor of `shape`."""
    mn, k = shape[-2:]
    return blocks.flatten(-4, -3).flatten(-2, -1)[..., :mn, :k].contiguous()
