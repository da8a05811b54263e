"""FP8 GEMM under the names and argument orders of the DeepGEMM interface."""

from __future__ import annotations

import torch

from ..errors import ArgumentError, UnsupportedError
from ..gemm import Pair, block_scaled_nt, unpack_pair

_DEFAULT_RECIPE = (1, 128, 128)


def fp8_gemm_nt(
    a: Pair,
    b: Pair,
    d: torch.Tensor,
    c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    *,
    static_b: bool = False,
) -> None:
    """Write D = A @ B^T, FP8 with 1x128 scales of A and 128x128 scales of B, into bf16.

    Arguments:
        a: (A float8_e4m3fn [M, K], sfa float32 [M, ceil(K / 128)]), tuple or list.
        b: (B float8_e4m3fn [N, K], sfb float32 [ceil(N / 128), ceil(K / 128)]).
        d: bfloat16 [M, N], written in place.
        c: must be None with these scales.
        recipe: (rows of A, rows of B, columns) that share a scale; (1, 128, 128) or None.
        recipe_a, recipe_b: the same as (rows, columns) of each operand; both or neither, and not
            together with recipe.
        compiled_dims: accepted and checked; kernels take M, N and K at run time.
        disable_ue8m0_cast: no effect; FP32 scales are used as they are.
        static_b: no kernel in flight writes B or its scales; as matmul().

    Requirements, costs and errors as matmul().
    """
    if c is not None:
        reason = "adding C is not supported with 1x128 and 128x128 scales"
        raise UnsupportedError("fp8_gemm_nt", [reason])
    if recipe is not None or recipe_a is not None or recipe_b is not None:
        _check_recipe(recipe, recipe_a, recipe_b)
    if compiled_dims != "nk" and not set(compiled_dims) <= set("mnk"):
        raise ArgumentError("compiled_dims", "value", 'letters of "mnk"', repr(compiled_dims))
    x, sfa = unpack_pair("a", a)
    w, sfb = unpack_pair("b", b)
    block_scaled_nt(x, sfa, w, sfb, d, static_b)


def _check_recipe(
    recipe: tuple[int, int, int] | None,
    recipe_a: tuple[int, int] | None,
    recipe_b: tuple[int, int] | None,
) -> None:
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
    if recipe is not None and tuple(recipe) != _DEFAULT_RECIPE:
        raise UnsupportedError(
            f"recipe {tuple(recipe)}", [f"{_DEFAULT_RECIPE} is served: 1x128 with 128x128 scales"]
        )
