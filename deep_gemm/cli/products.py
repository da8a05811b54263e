"""The kinds of product that commands take by name, and the options that name them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from . import console

if TYPE_CHECKING:
    import torch

    from ..problem import GemmProblem

SCALES = ("block", "1x128", "tensor", "row", "none")
LAYOUTS = ("nt", "nn", "tn", "tt")

Operands = Annotated[
    str, typer.Option(help="Type of A and B: e4m3, e5m2, int8, bf16, fp16; or A,B of FP8.")
]
Scales = Annotated[
    str | None,
    typer.Option(
        help="block (1x128 of A, 128x128 of B), 1x128 (of both), tensor, row (and column), none. "
        "By default block for FP8, else none."
    ),
]
Output = Annotated[str, typer.Option(help="Type of D: bf16, fp16, fp32, int32.")]
Layout = Annotated[str, typer.Option(help="How A and B lie: nt, nn, tn or tt.")]
FastAccum = Annotated[bool, typer.Option(help="Leave FP8 sums in the tensor core.")]


def product(
    extents: tuple[int, int, int],
    operands: str,
    scales: str | None,
    output: str,
    layout: str,
    fast_accum: bool,
) -> GemmProblem:
    """Return the product (m, n, k) that a command's options name, or end the command with why not.

    Whether the parts go together is judged as matmul() does, on small tensors of these kinds.
    """
    from .. import dtypes, errors
    from ..problem import ScaleChoice
    from ..problem.from_tensors import problem_of
    from ..problem.request import Options, Tensors

    try:
        a, b, d = (dtypes.by_name(name) for name in (*_pair(operands), output))
    except KeyError as error:
        console.fail(f"{error}: not one of {', '.join(row.name for row in dtypes.ALL)}")
    scales = scales or ("block" if a.is_fp8 else "none")
    if scales not in SCALES or layout not in LAYOUTS:
        console.fail(f"{scales}, {layout}: scales are {SCALES}, layouts {LAYOUTS}")
    sfa, sfb = _scales(scales)
    small = Tensors(
        _matrix(a.torch, layout[0] == "n"), sfa, _matrix(b.torch, layout[1] == "t"), sfb, None,
        _matrix(d.torch, True),
    )  # fmt: skip
    along_k = {"block": ScaleChoice.SCALED_1D2D, "1x128": ScaleChoice.SCALED_1D1D}
    options = Options(along_k.get(scales, ScaleChoice.AUTO), fast_accum)
    try:
        problem = problem_of(small, options, 1.0, 1.0)
    except errors.DeepGemmError as error:
        console.fail(str(error))
    m, n, k = extents
    return replace(problem, m=m, n=n, k=k)


_SMALL = 256  # enough for every granularity to have a shape of its own


def _pair(operands: str) -> tuple[str, str]:
    first, _, second = operands.partition(",")
    return first, second or first


def _matrix(dtype: torch.dtype, row_major: bool) -> torch.Tensor:
    import torch

    made = torch.empty(_SMALL, _SMALL, dtype=dtype)
    return made if row_major else made.t()


def _scales(scales: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    import torch

    from ..problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128

    recipes = {
        "block": (ROW_1X128, BLOCK_128X128),
        "1x128": (ROW_1X128, ROW_1X128),
        "tensor": (PER_TENSOR, PER_TENSOR),
        "row": (PER_CHANNEL, PER_CHANNEL),
    }
    if scales not in recipes:
        return None, None
    sfa, sfb = (torch.ones(recipe.shape(_SMALL, _SMALL)) for recipe in recipes[scales])
    return sfa, sfb
