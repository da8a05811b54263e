"""What callers pass as A and B: tensors, pairs with scales, in several layouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

import torch

from .errors import ArgumentError
from .problem import checks

if TYPE_CHECKING:  # a product of tensors needs no casts
    from .quant.scaled_tensor import ScaledTensor

Pair: TypeAlias = Union["ScaledTensor", Iterable[torch.Tensor]]
Operand: TypeAlias = torch.Tensor | Pair


class Operands(NamedTuple):
    """A as [M, K] and B as [N, K], with their scales."""

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None


def unpack(name: str, operand: Operand) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (data, scale) of an operand; None for the scale of a tensor alone."""
    return (operand, None) if isinstance(operand, torch.Tensor) else unpack_pair(name, operand)


def unpack_pair(name: str, pair: Operand) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (data, scale) of a tuple, list or ScaledTensor; ArgumentError for anything else."""
    if type(pair) is tuple and len(pair) == 2:  # most calls
        return pair
    try:
        if isinstance(pair, torch.Tensor):
            raise TypeError
        data, scale = pair
    except (TypeError, ValueError):
        raise ArgumentError(
            name, "form", "a pair (data, scale)", type(pair).__name__, "pass a tuple or a list"
        ) from None
    return data, scale


def to_nt(
    layout: str,
    a: torch.Tensor,
    sfa: torch.Tensor | None,
    b: torch.Tensor,
    sfb: torch.Tensor | None,
) -> Operands:
    """Return views of operands passed in `layout` as A [M, K] and B [N, K]; scales follow."""
    if layout not in ("nt", "nn", "tn", "tt"):
        raise ArgumentError("layout", "value", '"nt", "nn", "tn" or "tt"', repr(layout))
    if layout[0] == "t":
        a, sfa = _transpose("a", a), _transpose_scale(sfa)
    if layout[1] == "n":
        b, sfb = _transpose("b", b), _transpose_scale(sfb)
    return Operands(a, sfa, b, sfb)


def _transpose(name: str, value: torch.Tensor) -> torch.Tensor:
    checks.matrix(name, checks.tensor(name, value))
    return value.t()


def _transpose_scale(scale: torch.Tensor | None) -> torch.Tensor | None:
    return scale.t() if isinstance(scale, torch.Tensor) and scale.dim() == 2 else scale


def stack_to_nt(
    layout: str, b: torch.Tensor, sfb: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return views of B, passed in `layout` "nt" or "nn", as [G, N, K]; its scales follow."""
    if layout == "nt":
        return b, sfb
    if layout != "nn":
        raise ArgumentError("layout", "value", '"nt" or "nn"', repr(layout))
    if checks.tensor("b", b).dim() != 3:
        raise ArgumentError("b", "number of dimensions", 3, b.dim(), "B is [groups, K, N]")
    if isinstance(sfb, torch.Tensor) and sfb.dim() == 3:
        sfb = sfb.transpose(1, 2)
    return b.transpose(1, 2), sfb


def default_dtype(a: torch.Tensor, scaled: bool) -> torch.dtype:
    """Return the type of a product of A, with scales or without, where none is asked for."""
    if a.dtype == torch.int8 and not scaled:
        return torch.int32
    return torch.float16 if a.dtype == torch.float16 else torch.bfloat16
