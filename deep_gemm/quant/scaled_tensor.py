"""ScaledTensor: 8-bit data and their scales, kept together with the recipe that relates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .. import dtypes
from ..errors import ArgumentError
from ..problem.scale_recipe import ROW_1X128, ScaleRecipe
from .cast import cast_blocks, check_scale, dequantize


@dataclass(frozen=True, eq=False)
class ScaledTensor:
    """FP8 or INT8 data [..., mn, k] with float32 scales in the shape of `recipe`.

    Unpacks as (data, scale), so it can stand wherever such a pair is taken.

    Raises ArgumentError when the dtypes, the shapes or the devices do not go together.
    """

    data: torch.Tensor
    scale: torch.Tensor
    recipe: ScaleRecipe

    def __post_init__(self) -> None:
        row = dtypes.from_torch(self.data.dtype)
        if row is None or not row.max:
            raise ArgumentError("data", "dtype", "an FP8 type or int8", self.data.dtype)
        check_scale(self.scale, self.data.shape, self.recipe)
        if self.scale.device != self.data.device:
            raise ArgumentError("scale", "device", self.data.device, self.scale.device)

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield self.data
        yield self.scale

    @property
    def shape(self) -> torch.Size:
        """Shape of the data."""
        return self.data.shape

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return data * scale as float32 (rounded once) or float64 (exact)."""
        return dequantize(self.data, self.scale, self.recipe, dtype)


def quantize(
    x: torch.Tensor,
    recipe: ScaleRecipe,
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    use_ue8m0: bool = False,
    overflow: str = "error",
) -> ScaledTensor:
    """Return x cast with computed scales of any recipe, as the GEMM likes it.

    Arguments, errors and cost as of the casts in quant/cast.py. Scales of 1x128 blocks on CUDA are
    MN-major, as of per_token_cast_to_fp8(scale_layout="mn_major"); all others row-major.
    """
    layout = "mn_major" if recipe == ROW_1X128 and x.is_cuda else "row_major"
    q, sf = cast_blocks(x, recipe, use_ue8m0, dtype, overflow, layout)
    return ScaledTensor(q, sf, recipe)
