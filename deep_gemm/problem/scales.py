"""Which element types, scales and outputs go together, whatever the shape of the product."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import dtypes
from ..dtypes import BF16, FP16, FP32, INT8, INT32, DType
from ..errors import ArgumentError, UnsupportedError
from . import checks
from .choices import ScaleChoice
from .scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128, ScaleRecipe

Recipes = tuple[ScaleRecipe | None, ScaleRecipe | None]

_FP4 = "packed FP4 (two values a byte) needs another GPU generation; cast to FP8 or INT8"


class OperandScales(NamedTuple):
    """The scales of one operand [mn, k], or of a stack of such matrices.

    groups: how many matrices the stack has; None for one matrix.
    ragged: K is cut into groups with blocks of their own, so there may be more columns of scales.
    """

    name: str
    scale: torch.Tensor | None
    mn: int
    k: int
    groups: int | None = None
    ragged: bool = False

    def shapes(self, recipe: ScaleRecipe) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that scales of a recipe may have; errors name the first one."""
        whole = recipe.shape(self.mn, self.k)
        if self.groups is None:
            flat: tuple[tuple[int, ...], ...] = (whole[:1],) if recipe == PER_CHANNEL else ()
            return (whole, (), (1,)) if recipe == PER_TENSOR else (whole, *flat)
        if recipe == PER_TENSOR:
            return (self.groups,), (), (1,)
        stack = (self.groups, *whole)
        return (stack, stack[:2]) if recipe == PER_CHANNEL else (stack,)

    def fits(self, recipe: ScaleRecipe | None) -> bool:
        """Say whether the scales have a shape of this recipe; None is that of no scales."""
        if self.scale is None or recipe is None:
            return self.scale is None and recipe is None
        shape = tuple(self.scale.shape)
        if self.ragged:
            rows, columns = recipe.shape(self.mn, self.k)
            return len(shape) == 2 and shape[0] == rows and shape[1] >= columns
        return shape in self.shapes(recipe)

    @property
    def operand(self) -> str:
        """The operand for people."""
        matrix = f"{self.mn} x {self.k} operand"
        return f"a {matrix}" if self.groups is None else f"{self.groups} times a {matrix}"


def operand_dtypes(a: torch.Tensor, b: torch.Tensor) -> tuple[DType, DType]:
    """Return the element types of A and B; ArgumentError or UnsupportedError for what is none."""
    found = []
    for name, value in (("a", a), ("b", b)):
        row = dtypes.from_torch(value.dtype)
        if value.dtype == torch.uint8:
            raise UnsupportedError(f"{name} of {value.dtype}", [_FP4])
        if row is None or not row.mma:
            wanted = "float8_e4m3fn, float8_e5m2, int8, bfloat16 or float16"
            remedy = "cast it with per_token_cast_to_fp8 or the like"
            raise ArgumentError(name, "dtype", wanted, value.dtype, remedy)
        found.append(row)
    a_dtype, b_dtype = found
    if a_dtype != b_dtype and not (a_dtype.is_fp8 and b_dtype.is_fp8):
        remedy = "only the FP8 formats may be mixed"
        raise ArgumentError("b", "dtype", a_dtype.torch, b_dtype.torch, remedy)
    return a_dtype, b_dtype


def output_dtype(d: torch.Tensor, a: DType, scaled: bool) -> DType:
    """Return D's element type; ArgumentError for one that such products are not written in."""
    exact = a == INT8 and not scaled
    allowed = (BF16, FP16, FP32, INT32) if exact else (BF16, FP16, FP32)
    for row in allowed:
        if d.dtype == row.torch:
            return row
    names = ", ".join(str(row.torch) for row in allowed)
    remedy = "INT32 holds unscaled INT8 products" if d.dtype == torch.int32 else ""
    raise ArgumentError("d", "dtype", f"one of {names}", d.dtype, remedy)


def exact_factors(d: DType, alpha: float, beta: float, adds: bool) -> None:
    """Check that an INT32 output is asked for unscaled; beta counts where C is added."""
    if d == INT32 and (alpha != 1 or (adds and beta != 1)):
        wanted = "1 with an int32 output, which is exact"
        raise ArgumentError("alpha, beta", "value", wanted, f"{alpha}, {beta}", "use float32")


def recipes(
    sides: tuple[OperandScales, OperandScales],
    scales: ScaleChoice,
    fast_accum: bool,
    a_dtype: DType,
) -> Recipes:
    """Return which elements share the scales given; ArgumentError where the shapes fit nothing.

    scales, fast_accum: as of request.Options.
    """
    given = [side for side in sides if side.scale is not None]
    if not given and scales is ScaleChoice.AUTO:
        return None, None
    for side in given:
        if side.scale is not None:
            checks.scale_dtype(side.name, side.scale)
    if a_dtype.bytes > 1:
        raise ArgumentError("sfa, sfb", "presence", f"None with {a_dtype.torch}", "scales")
    if not a_dtype.is_fp8:
        choices = _EPILOGUE_SCALES
    elif scales is not ScaleChoice.AUTO:
        choices = (_ALONG_K[scales],)
    elif fast_accum:
        choices = _EPILOGUE_SCALES
    else:
        block, rows = _ALONG_K.values()
        choices = (block, *_EPILOGUE_SCALES, rows)
    for recipe_a, recipe_b in choices:
        if sides[0].fits(recipe_a) and sides[1].fits(recipe_b):
            return recipe_a, recipe_b
    raise _mismatch(sides, choices)


# Scales along K, and those after all of K: one for the tensor, or one for each row.
_ALONG_K: dict[ScaleChoice, Recipes] = {
    ScaleChoice.SCALED_1D2D: (ROW_1X128, BLOCK_128X128),
    ScaleChoice.SCALED_1D1D: (ROW_1X128, ROW_1X128),
}
_EACH = (None, PER_TENSOR, PER_CHANNEL)
_EPILOGUE_SCALES: tuple[Recipes, ...] = tuple((a, b) for a in _EACH for b in _EACH)


def _mismatch(
    sides: tuple[OperandScales, OperandScales], choices: tuple[Recipes, ...]
) -> ArgumentError:
    """Return the error for scales that fit no choice, about the first one that never fits."""
    for which, side in enumerate(sides):
        named = list(dict.fromkeys(choice[which] for choice in choices))
        if not any(side.fits(recipe) for recipe in named):
            return _wrong_shape(side, [recipe for recipe in named if recipe is not None])
    scales = [side.scale for side in sides]
    got = ", ".join("none" if s is None else str(tuple(s.shape)) for s in scales)
    return ArgumentError(
        "sfa, sfb", "shapes", "scales that go together", got,
        "1x128 with 128x128, 1x128 with 1x128, or scales per tensor, row or column",
    )  # fmt: skip


def _wrong_shape(side: OperandScales, named: list[ScaleRecipe]) -> ArgumentError:
    if side.ragged:
        rows, columns = named[0].shape(side.mn, side.k)
        wanted = [f"({rows}, {columns}) or more columns, ceil(k / 128) for each group"]
    else:
        wanted = [str(side.shapes(recipe)[0]) for recipe in named]
    remedy = f"{' or '.join(r.name for r in named)} scales of {side.operand} have this shape"
    if side.scale is None:
        return ArgumentError(side.name, "presence", " or ".join(wanted), None, remedy)
    shown = " or ".join(dict.fromkeys(wanted))
    return ArgumentError(side.name, "shape", shown, tuple(side.scale.shape), remedy)
