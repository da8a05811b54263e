"""ScaledTensor: FP8 data and their scales, kept together with the recipe that relates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .. import dtypes
from ..errors import ArgumentError
from .cast import check_scale, dequantize
from .recipe import ScaleRecipe


@dataclass(frozen=True, eq=False)
class ScaledTensor:
    """FP8 data [..., mn, k] with float32 scales in the shape of `recipe`.

    Unpacks as (data, scale), so it can stand wherever such a pair is taken.

    Raises ArgumentError when the dtypes, the shapes or the devices do not go together.
    """

    data: torch.Tensor
    scale: torch.Tensor
    recipe: ScaleRecipe

    def __post_init__(self) -> None:
        row = dtypes.from_torch(self.data.dtype)
        if row is None or not row.max:
            raise ArgumentError("data", "dtype", "an FP8 type", self.data.dtype)
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
