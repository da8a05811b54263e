"""Choices that problems and kernels are made of, as enums that know what follows from them.

A member's value is its short name in kernel names and tables; `cuda` is what device code calls it.
"""

from __future__ import annotations

from enum import Enum


class Choice(Enum):
    """An enum whose members hash and compare by identity, as fast as any object."""

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.value)


class Mainloop(Choice):
    """What happens to the tensor core's sums over one k-block, 128 bytes of K.

    DIRECT: they stay in the tensor core over all of K.
    PROMOTED: the CUDA cores add them in FP32 (two-level accumulation), unscaled.
    SCALED_1D2D: promoted times a 1x128 scale of A and a 128x128 scale of B.
    SCALED_1D1D: promoted times a 1x128 scale of A and one of B.
    """

    DIRECT = "direct"
    PROMOTED = "promoted"
    SCALED_1D2D = "1d2d"
    SCALED_1D1D = "1d1d"

    @property
    def scales_along_k(self) -> bool:
        """Say whether it applies scales along K."""
        return self in (Mainloop.SCALED_1D2D, Mainloop.SCALED_1D1D)

    @property
    def cuda(self) -> str:
        """The enumerator of cuda/gemm/traits.cuh."""
        names = {"direct": "kDirect", "promoted": "kPromoted"}
        return f"Mainloop::{names.get(self.value, f'kScaled{self.value}')}"


class Major(Choice):
    """Which dimension of an operand is contiguous: K, or M (of A) or N (of B)."""

    K = "k"
    MN = "mn"


class CMode(Choice):
    """How C is added: not at all, read by the epilogue, or D itself, to which the store adds."""

    NONE = "none"
    READ = "read"
    REDUCE = "reduce"


class GroupKind(Choice):
    """How the rows of A, or K, belong to groups; class Grouping has the meaning of each."""

    NONE = "none"
    LABELS = "labels"
    OFFSETS = "offsets"
    MASKED = "masked"
    BATCHED = "batched"
    ALONG_K = "k"

    @property
    def is_stacked(self) -> bool:
        """Say whether A has a matrix for each group."""
        return self in (GroupKind.MASKED, GroupKind.BATCHED)

    @property
    def is_ragged(self) -> bool:
        """Say whether a group's rows may end inside a tile, with rows of D behind it."""
        return self in (GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED)

    @property
    def cuda(self) -> str:
        """The enumerator of cuda/scheduler/grouped.cuh."""
        name = "AlongK" if self is GroupKind.ALONG_K else self.value.capitalize()
        return f"GroupKind::k{name}"


class ScaleChoice(Choice):
    """Which recipes of scales a call allows: one pair of them, or any whose shapes fit."""

    AUTO = "auto"
    SCALED_1D2D = "1d2d"
    SCALED_1D1D = "1d1d"
