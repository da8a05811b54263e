"""A request for a product: its tensors and options, checked and turned into a GemmProblem.

This is the one place that says which element types, scales and outputs go together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from . import checks, dtypes
from .dtypes import BF16, FP16, FP32, INT8, INT32, DType
from .errors import ArgumentError, UnsupportedError
from .problem import GemmProblem, Grouping
from .quant.recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128, ScaleRecipe

_FP4 = "packed FP4 (two values a byte) needs another GPU generation; cast to FP8 or INT8"


class Tensors(NamedTuple):
    """The tensors of D = alpha * A @ B^T + beta * C: A [M, K], B [N, K], C and D [M, N].

    groups: the int32 tensor of a Grouping, which also says how the others' shapes differ.
    """

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None
    c: torch.Tensor | None
    d: torch.Tensor
    groups: torch.Tensor | None = None


class Options(NamedTuple):
    """What is asked for besides the tensors.

    scales: "block" (1x128 with 128x128), "rows" (1x128 with 1x128), or "auto": by their shapes.
    fast_accum: FP8 sums stay in the tensor core over all of K.
    static_b: no kernel still in flight writes B or its scales.
    grouping: None for one product.
    """

    scales: str = "auto"
    fast_accum: bool = False
    static_b: bool = False
    grouping: Grouping | None = None


Recipes = tuple[ScaleRecipe | None, ScaleRecipe | None]


def problem_of(t: Tensors, options: Options, alpha: float, beta: float) -> GemmProblem:
    """Check everything but addresses and what only TMA asks; return what is to be computed.

    Raises ArgumentError or UnsupportedError.
    """
    for name in ("a", "b", "d"):
        checks.matrix(name, checks.tensor(name, getattr(t, name)))
    a_dtype, b_dtype = _operand_dtypes(t)
    (m, k), n = t.a.shape, t.b.shape[0]
    checks.shape("b", t.b, (n, k), "A is [M, K] and B is [N, K]")
    checks.shape("d", t.d, (m, n))
    scale_a, scale_b = _recipes(t, options, a_dtype)
    d_dtype = _output_dtype(t, a_dtype, scaled=scale_a is not None or scale_b is not None)
    if t.c is not None:
        checks.dtype("c", checks.tensor("c", t.c), t.d.dtype, "C has D's type")
        checks.shape("c", t.c, (m, n))
    if d_dtype == INT32 and (alpha != 1 or (t.c is not None and beta != 1)):
        wanted = "1 with an int32 output, which is exact"
        raise ArgumentError("alpha, beta", "value", wanted, f"{alpha}, {beta}", "use float32")
    for name in ("sfa", "b", "sfb", "c", "d"):
        value = getattr(t, name)
        if value is not None:
            checks.same_device(name, value, t.a.device)
    if t.a.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"tensors on {t.a.device}", ["CPU and CUDA devices are served"])
    for name in ("c", "d"):
        if getattr(t, name) is not None:
            checks.rows_contiguous(name, getattr(t, name))
    problem = GemmProblem(
        m, n, k, a_dtype, b_dtype, d_dtype, scale_a, scale_b,
        promoted=not options.fast_accum,
        a_major=checks.major("a", t.a), b_major=checks.major("b", t.b),
        addend=_addend(t, d_dtype, beta),
    )  # fmt: skip
    # A kernel in flight writes a B that is transposed first.
    return replace(problem, static_b=options.static_b and "b" not in problem.transposed)


def _addend(t: Tensors, d_dtype: DType, beta: float) -> str:
    if t.c is None:
        return "none"
    in_place = t.c.data_ptr() == t.d.data_ptr()
    return "reduce" if in_place and beta == 1 and d_dtype.bytes == 4 else "read"


def _operand_dtypes(t: Tensors) -> tuple[DType, DType]:
    found = []
    for name, value in (("a", t.a), ("b", t.b)):
        row = dtypes.from_torch(value.dtype)
        if value.dtype == torch.uint8:
            raise UnsupportedError(f"{name} of {value.dtype}", [_FP4])
        if row is None or not row.mma:
            wanted = "float8_e4m3fn, float8_e5m2, int8, bfloat16 or float16"
            remedy = "cast it with per_token_cast_to_fp8 or the like"
            raise ArgumentError(name, "dtype", wanted, value.dtype, remedy)
        found.append(row)
    a, b = found
    if a != b and not (a.is_fp8 and b.is_fp8):
        raise ArgumentError("b", "dtype", a.torch, b.torch, "only the FP8 formats may be mixed")
    return a, b


def _output_dtype(t: Tensors, a: DType, scaled: bool) -> DType:
    exact = a == INT8 and not scaled
    allowed = (BF16, FP16, FP32, INT32) if exact else (BF16, FP16, FP32)
    for row in allowed:
        if t.d.dtype == row.torch:
            return row
    names = ", ".join(str(row.torch) for row in allowed)
    remedy = "INT32 holds unscaled INT8 products" if t.d.dtype == torch.int32 else ""
    raise ArgumentError("d", "dtype", f"one of {names}", t.d.dtype, remedy)


def _recipes(t: Tensors, options: Options, a_dtype: DType) -> Recipes:
    """Return which elements share the scales given; ArgumentError where the shapes fit nothing."""
    if t.sfa is None and t.sfb is None and options.scales == "auto":
        return None, None
    for name in ("sfa", "sfb"):
        if getattr(t, name) is not None:
            checks.scale_dtype(name, getattr(t, name))
    if a_dtype.bytes > 1:
        raise ArgumentError("sfa, sfb", "presence", f"None with {a_dtype.torch}", "scales")
    if not a_dtype.is_fp8:
        choices = _choices("vectors")
    elif options.scales != "auto":
        choices = _choices(options.scales)
    elif options.fast_accum:
        choices = _choices("vectors")
    else:
        choices = _choices("block") + _choices("vectors") + _choices("rows")
    (m, k), n = t.a.shape, t.b.shape[0]
    for recipe_a, recipe_b in choices:
        if _fits(t.sfa, recipe_a, m, k) and _fits(t.sfb, recipe_b, n, k):
            return recipe_a, recipe_b
    raise _misfit(t, choices)


def _choices(scales: str) -> tuple[Recipes, ...]:
    if scales == "block":
        return ((ROW_1X128, BLOCK_128X128),)
    if scales == "rows":
        return ((ROW_1X128, ROW_1X128),)
    each = (None, PER_TENSOR, PER_CHANNEL)
    return tuple((a, b) for a in each for b in each)


def _fits(scale: torch.Tensor | None, recipe: ScaleRecipe | None, mn: int, k: int) -> bool:
    if scale is None or recipe is None:
        return scale is None and recipe is None
    shape, wanted = tuple(scale.shape), recipe.shape(mn, k)
    if recipe == PER_TENSOR:
        return shape in ((), (1,), wanted)
    return shape == wanted or (recipe == PER_CHANNEL and shape == wanted[:1])


def _misfit(t: Tensors, choices: tuple[Recipes, ...]) -> ArgumentError:
    """Return the error for scales that fit no choice, about the first one that never fits."""
    (m, k), n = t.a.shape, t.b.shape[0]
    sides = (("sfa", t.sfa, m, 0), ("sfb", t.sfb, n, 1))
    for name, scale, mn, side in sides:
        recipes = list(dict.fromkeys(choice[side] for choice in choices))
        if not any(_fits(scale, recipe, mn, k) for recipe in recipes):
            return _unfit(name, scale, recipes, mn, k)
    got = ", ".join("none" if s is None else str(tuple(s.shape)) for s in (t.sfa, t.sfb))
    return ArgumentError(
        "sfa, sfb", "shapes", "scales that go together", got,
        "vectors with vectors, 1x128 with 128x128, or 1x128 with 1x128",
    )  # fmt: skip


def _unfit(
    name: str, scale: torch.Tensor | None, recipes: list[ScaleRecipe | None], mn: int, k: int
) -> ArgumentError:
    named = [recipe for recipe in recipes if recipe is not None]
    wanted = [recipe.shape(mn, k) for recipe in named]
    remedy = f"{' or '.join(r.name for r in named)} scales of a {mn} x {k} operand have this shape"
    if scale is None:
        return ArgumentError(name, "presence", " or ".join(map(str, wanted)), None, remedy)
    shown = wanted[0] if len(wanted) == 1 else " or ".join(map(str, dict.fromkeys(wanted)))
    return ArgumentError(name, "shape", shown, tuple(scale.shape), remedy)
