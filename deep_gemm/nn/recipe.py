"""How the operands of a quantized layer are cast: element type, and scales of each side."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..errors import ArgumentError
from ..problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128, ScaleRecipe
from ..quant.cast import cast_blocks

_SERVED = (PER_TENSOR, PER_CHANNEL, ROW_1X128, BLOCK_128X128)


@dataclass(frozen=True)
class Recipe:
    """Element type and scales of a layer's operands.

    name: what state dicts keep, to refuse another recipe's weights.
    dtype: of activations and weights: float8_e4m3fn, float8_e5m2 or int8 with scales, bfloat16 or
        float16 without.
    activation, weight: which elements share a scale, in a combination matmul() takes; both None
        without scales.
    """

    name: str
    dtype: torch.dtype
    activation: ScaleRecipe | None = None
    weight: ScaleRecipe | None = None

    def __post_init__(self) -> None:
        if (self.activation is None) != (self.weight is None):
            wanted = "scales of both operands, or of neither"
            raise ArgumentError("activation, weight", "presence", wanted, self)
        for side in (self.activation, self.weight):
            if side is not None and side not in _SERVED:
                wanted = ", ".join(recipe.name for recipe in _SERVED)
                raise ArgumentError("activation, weight", "value", f"one of {wanted}", side)

    def cast_activation(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return (data, scale) of an activation [rows, k]; infinities become the largest value."""
        return self._cast(x, self.activation, "saturate")

    def cast_weight(self, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return (data, scale) of a weight [n, k]; ArgumentError for infinities."""
        return self._cast(w, self.weight, "error")

    def _cast(
        self, x: torch.Tensor, scales: ScaleRecipe | None, overflow: str
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if scales is None:
            return x.to(self.dtype), None
        return cast_blocks(x, scales, False, self.dtype, overflow)


_E4M3 = torch.float8_e4m3fn

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("bf16", torch.bfloat16),
        Recipe("fp8_tensor", _E4M3, PER_TENSOR, PER_TENSOR),
        Recipe("fp8_row", _E4M3, PER_CHANNEL, PER_CHANNEL),
        Recipe("fp8_block", _E4M3, ROW_1X128, BLOCK_128X128),
        Recipe("int8_row", torch.int8, PER_CHANNEL, PER_CHANNEL),
    )
}


def as_recipe(recipe: Recipe | str) -> Recipe:
    """Return the recipe itself, or the one of RECIPES with this name; ArgumentError for others."""
    found = RECIPES.get(recipe) if isinstance(recipe, str) else recipe
    if not isinstance(found, Recipe):
        names = ", ".join(RECIPES)
        raise ArgumentError("recipe", "value", f"a Recipe or one of {names}", repr(recipe))
    return found
