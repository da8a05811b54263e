"""Scale recipes: which elements of an operand share one scale.

This is the only place where the shape of a scale tensor is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError
from ..layouts import ceil_div


@dataclass(frozen=True)
class ScaleRecipe:
    """One scale for each `gran_mn` rows by `gran_k` columns of a [mn, k] operand.

    name: short name, used in configuration keys and messages.
    gran_mn, gran_k: elements that share a scale along each axis; 0 stands for the whole extent.
    """

    name: str
    gran_mn: int
    gran_k: int

    def shape(self, mn: int, k: int) -> tuple[int, int]:
        """Return the shape of the scales of a [mn, k] operand; partial blocks count whole."""
        return _count(mn, self.gran_mn), _count(k, self.gran_k)


PER_TENSOR = ScaleRecipe("per_tensor", 0, 0)
PER_CHANNEL = ScaleRecipe("per_channel", 1, 0)
PER_COLUMN = ScaleRecipe("per_column", 0, 1)
ROW_1X128 = ScaleRecipe("1x128", 1, 128)
BLOCK_128X128 = ScaleRecipe("128x128", 128, 128)

_ALL = (PER_TENSOR, PER_CHANNEL, PER_COLUMN, ROW_1X128, BLOCK_128X128)
_NAMED = {(r.gran_mn, r.gran_k): r for r in _ALL}


def by_granularity(gran_mn: int, gran_k: int) -> ScaleRecipe:
    """Return the recipe with these granularities, one of the named ones where there is one.

    Raises ArgumentError for a granularity that is not an int of at least 0.
    """
    for name, value in (("gran_mn", gran_mn), ("gran_k", gran_k)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ArgumentError(name, "value", "an int >= 0 (0 means the whole extent)", value)
    known = _NAMED.get((gran_mn, gran_k))
    return known or ScaleRecipe(f"{gran_mn}x{gran_k}", gran_mn, gran_k)


def _count(extent: int, granularity: int) -> int:
    return ceil_div(extent, granularity) if granularity else 1
