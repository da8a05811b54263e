"""The casts in torch operations: any device and granularity, and the bits that kernels give."""

from __future__ import annotations

import torch

from ..errors import ArgumentError
from ..problem.scale_recipe import ScaleRecipe

_SMALLEST_SCALE = 2.0**-126  # smallest normal float32: its inverse is finite
_SLACK = 1.0 + 2.0**-22  # amax / (amax / max) may exceed max by rounding alone
_LARGEST_FP32 = torch.finfo(torch.float32).max


def cast_computed(
    x: torch.Tensor, recipe: ScaleRecipe, use_ue8m0: bool, dtype: torch.dtype, overflow: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x, not empty, cast with one computed scale a block, and the scales, contiguous.

    Raises ArgumentError on overflow.
    """
    largest = largest_of(dtype)
    blocks = blocked(_wide(x), recipe)
    sf = _scales(blocks, largest, use_ue8m0)
    scaled = unblocked(blocks / sf.to(blocks.dtype)[..., :, None, :, None], x.shape)
    return _narrow(scaled, x, dtype, overflow), sf


def cast_precomputed(
    x: torch.Tensor, sf: torch.Tensor, recipe: ScaleRecipe, dtype: torch.dtype, overflow: str
) -> torch.Tensor:
    """Return x cast with the caller's scales; raises ArgumentError on overflow."""
    blocks = blocked(_wide(x), recipe)
    scales = sf.to(blocks.dtype)[..., :, None, :, None]
    scaled = torch.where((blocks == 0) & (scales == 0), 0.0, blocks / scales)
    return _narrow(unblocked(scaled, x.shape), x, dtype, overflow)


def largest_of(dtype: torch.dtype) -> float:
    """Return the largest magnitude of FP8 data, or of INT8, whose range is kept symmetric."""
    return torch.finfo(dtype).max if dtype.is_floating_point else float(torch.iinfo(dtype).max)


def blocked(x: torch.Tensor, recipe: ScaleRecipe) -> torch.Tensor:
    """View x [..., mn, k] as [..., nb, gran_mn, kb, gran_k], zeros filling the last blocks."""
    mn, k = x.shape[-2:]
    rows, columns = recipe.shape(mn, k)
    gran_mn, gran_k = recipe.gran_mn or mn, recipe.gran_k or k
    pad_mn, pad_k = rows * gran_mn - mn, columns * gran_k - k
    if pad_mn or pad_k:
        x = torch.nn.functional.pad(x, (0, pad_k, 0, pad_mn))
    return x.unflatten(-1, (columns, gran_k)).unflatten(-3, (rows, gran_mn))


def unblocked(blocks: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Undo `blocked` and return a contiguous tensor of `shape`."""
    mn, k = shape[-2:]
    return blocks.flatten(-4, -3).flatten(-2, -1)[..., :mn, :k].contiguous()


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


def _narrow(
    scaled: torch.Tensor, x: torch.Tensor, dtype: torch.dtype, overflow: str
) -> torch.Tensor:
    """Round to 8 bits; refuse or clamp what lies beyond them."""
    largest = largest_of(dtype)
    if overflow == "error":
        _refuse_overflow(scaled, x, dtype, largest)
    # Clamped in either case: torch turns out-of-range into NaN or infinity, depending on version.
    clamped = scaled.clamp(-largest, largest)
    if not dtype.is_floating_point:
        clamped = clamped.nan_to_num(nan=0.0).round()
    return clamped.to(dtype)


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


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return x in the dtype the casts compute in: float64 stays, all others become float32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)
