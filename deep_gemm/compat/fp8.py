"""FP8 GEMM under the names and argument orders of the DeepGEMM interface.

The `fp8_fp4_` names are the same functions: FP8 is what this GPU generation multiplies.
"""

from __future__ import annotations

import torch

from ..dispatch import gemm
from ..errors import ArgumentError, UnsupportedError
from ..operands import Pair, to_nt, unpack_pair
from ..problem import ScaleChoice
from ..problem.request import Options, Tensors

Recipe = tuple[int, int, int]
Granularity = tuple[int, int]

_SCALES: dict[tuple[int, ...], ScaleChoice] = {
    (1, 128, 128): ScaleChoice.SCALED_1D2D,
    (1, 1, 128): ScaleChoice.SCALED_1D1D,
}
_OPTIONS = Options(ScaleChoice.SCALED_1D2D)
_OPTIONS_STATIC_B = Options(ScaleChoice.SCALED_1D2D, static_b=True)
_PACKED = frozenset((torch.int8, torch.uint8))


def fp8_gemm_nt(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    static_b: bool = False,
) -> None:
    """Write D = A @ B^T + C of FP8 operands with a scale for every 128 of K.

    Arguments:
        a: (A float8_e4m3fn or float8_e5m2 [M, K], sfa float32 [M, ceil(K / 128)]), tuple or list.
        b: (B the same [N, K], sfb float32 [ceil(N / 128), ceil(K / 128)], or with the recipe
            (1, 1, 128) [N, ceil(K / 128)]).
        d: bfloat16, float16 or float32 [M, N], written in place.
        c: of d's type and shape, added; may be d itself. None adds nothing.
        recipe: (rows of A, rows of B, columns) that share a scale: (1, 128, 128), which None
            stands for, or (1, 1, 128).
        recipe_a, recipe_b: the same as (rows, columns) of each operand; both or neither, and not
            together with recipe.
        compiled_dims: accepted and checked; kernels take M, N and K at run time.
        disable_ue8m0_cast: no effect; FP32 scales are used as they are.
        static_b: no kernel in flight writes B or its scales; as matmul().

    Requirements, costs and errors as matmul(); packed FP4 operands raise UnsupportedError.
    """
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    _fp8_gemm("nt", a, b, d, c, options)


def fp8_gemm_nn(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    static_b: bool = False,
) -> None:
    """Write D = A @ B + C: fp8_gemm_nt() with B as [K, N] and its scales transposed as well."""
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    _fp8_gemm("nn", a, b, d, c, options)


def fp8_gemm_tn(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    *,
    static_b: bool = False,
) -> None:
    """Write D = A^T @ B + C: fp8_gemm_nt() with A, B and both scales transposed."""
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    _fp8_gemm("tn", a, b, d, c, options)


def fp8_gemm_tt(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: Recipe | None = None,
    recipe_a: Granularity | None = None,
    recipe_b: Granularity | None = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
    *,
    static_b: bool = False,
) -> None:
    """Write D = A^T @ B^T + C: fp8_gemm_nt() with A as [K, M] and its scales transposed as well."""
    options = options_of(recipe, recipe_a, recipe_b, compiled_dims, static_b)
    _fp8_gemm("tt", a, b, d, c, options)


fp8_fp4_gemm_nt = fp8_gemm_nt
fp8_fp4_gemm_nn = fp8_gemm_nn
fp8_fp4_gemm_tn = fp8_gemm_tn
fp8_fp4_gemm_tt = fp8_gemm_tt


def _fp8_gemm(
    layout: str, a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None, options: Options
) -> None:
    x, sfa = unpack_fp8("a", a)
    w, sfb = unpack_fp8("b", b)
    if layout != "nt":
        x, sfa, w, sfb = to_nt(layout, x, sfa, w, sfb)  # type: ignore[assignment]
    gemm(Tensors(x, sfa, w, sfb, c, d), options)


def unpack_fp8(name: str, pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (data, scale) of a pair; UnsupportedError for packed FP4 data."""
    data, scale = unpack_pair(name, pair)
    if getattr(data, "dtype", None) in _PACKED:
        reason = "packed FP4 (two values a byte) needs another GPU generation; cast to FP8"
        raise UnsupportedError(f"{name} of {data.dtype}", [reason])
    return data, scale


def options_of(
    recipe: Recipe | None,
    recipe_a: Granularity | None,
    recipe_b: Granularity | None,
    compiled_dims: str,
    static_b: bool,
) -> Options:
    check_compiled_dims(compiled_dims)
    if recipe is None and recipe_a is None and recipe_b is None:
        return _OPTIONS_STATIC_B if static_b else _OPTIONS
    return Options(_scales(recipe, recipe_a, recipe_b), static_b=static_b)


def check_compiled_dims(compiled_dims: str) -> None:
    """Check an argument that is a hint for other libraries: letters of "mnk"."""
    if compiled_dims not in ("nk", "mn") and not set(compiled_dims) <= set("mnk"):
        raise ArgumentError("compiled_dims", "value", 'letters of "mnk"', repr(compiled_dims))


def _scales(
    recipe: Recipe | None, recipe_a: Granularity | None, recipe_b: Granularity | None
) -> ScaleChoice:
    """Return which of Options.scales a recipe stands for."""
    if (recipe_a is None) != (recipe_b is None):
        raise ArgumentError(
            "recipe_a, recipe_b", "presence", "both or neither", f"{recipe_a}, {recipe_b}"
        )
    if recipe_a is not None and recipe_b is not None:
        if recipe is not None:
            raise ArgumentError("recipe", "value", "None beside recipe_a and recipe_b", recipe)
        if recipe_a[1] != recipe_b[1]:
            raise ArgumentError("recipe_b", "columns", recipe_a[1], recipe_b[1])
        recipe = (recipe_a[0], recipe_b[0], recipe_a[1])
    found = _SCALES.get(tuple(recipe or ()))
    if found is None:
        reason = "(1, 128, 128), 1x128 with 128x128 scales, and (1, 1, 128) are served"
        raise UnsupportedError(f"recipe {recipe}", [reason])
    return found
