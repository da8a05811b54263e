"""Grouping: how the rows of A, or K, belong to groups."""

from __future__ import annotations

from dataclasses import dataclass

from .choices import GroupKind


@dataclass(frozen=True)
class Grouping:
    """Groups, each with a B, or a D, of its own.

    kind: what the grouped layout, an int32 tensor that only the device reads, says:
        LABELS [M]: the group of each row of A [M, K], -1 for none. Groups have whole blocks of
            `alignment` rows, and the first row of a block speaks for it.
        OFFSETS [num_groups]: the end of each group in A [M, K]; a group begins at the end of the
            one before, rounded up to `alignment`.
        MASKED [num_groups]: the valid rows of each A [m, K] of A [num_groups, m, K].
        BATCHED: there is no grouped layout; all rows of A [num_groups, m, K] are valid.
        ALONG_K [num_groups]: the extent of each group along K; D is [num_groups, M, N].
    num_groups: how many there are.
    alignment: in rows; see `kind`.
    expected_m: rows to expect of a group that has any; 0 says nothing. No result depends on it.
    zero_padding: OFFSETS: rows of D between groups become zeros, else they stay as they are.
    """

    kind: GroupKind
    num_groups: int
    alignment: int = 1
    expected_m: int = 0
    zero_padding: bool = False

    @property
    def is_stacked(self) -> bool:
        """Say whether A has a matrix for each group."""
        return self.kind.is_stacked
