"""What grouped layouts mean, written apart from the kernels, and random ones."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from deep_gemm.problem import GroupKind

INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Case:
    """A launch of a grouped product, as far as its tile scheduler goes.

    n_clusters: clusters of tiles along N. swizzle_width, along_n: of the raster.
    grid: clusters of CTAs. layout: the words of the grouped layout.
    """

    kind: GroupKind
    block_m: int
    cluster_m: int
    n_clusters: int
    swizzle_width: int
    along_n: bool
    grid: int
    num_groups: int
    m: int
    alignment: int
    zero_fill: bool
    layout: tuple[int, ...]

    def line(self) -> str:
        """Return the case as host/group_tiles.cpp reads it."""
        shape = list(GroupKind).index(self.kind), self.block_m, self.cluster_m
        order = self.n_clusters, self.swizzle_width, int(self.along_n), self.grid
        groups = self.num_groups, self.m, self.alignment, int(self.zero_fill)
        return " ".join(map(str, (*shape, *order, *groups, len(self.layout), *self.layout)))


class Rows(NamedTuple):
    """Rows of a group: those of D that are stored, and those of A that are multiplied."""

    stored: Collection[int]
    multiplied: Collection[int]


# --- what grouped layouts mean --------------------------------------------------------------------


def meaning(case: Case) -> dict[int, Rows]:
    """Return the rows of every group that has any."""
    by_kind = {
        GroupKind.LABELS: _labelled,
        GroupKind.OFFSETS: _between_offsets,
        GroupKind.MASKED: _unmasked,
    }
    if case.kind in by_kind:
        return by_kind[case.kind](case)
    rows = set(range(case.m))
    along_k = case.kind is GroupKind.ALONG_K
    groups = [
        i for i in range(case.num_groups) if not along_k or case.layout[i] > 0 or case.zero_fill
    ]
    return {i: Rows(rows, rows) for i in groups} if rows else {}


def _labelled(case: Case) -> dict[int, Rows]:
    found: dict[int, tuple[set[int], set[int]]] = {}
    for start in range(0, case.m, case.alignment):
        label = case.layout[start]
        if not 0 <= label < case.num_groups:
            continue
        stored, multiplied = found.setdefault(label, (set(), set()))
        for row in range(start, min(start + case.alignment, case.m)):
            stored.add(row)
            if case.layout[row // 64 * 64] >= 0:
                multiplied.add(row)
    return {label: Rows(*rows) for label, rows in found.items()}


def _between_offsets(case: Case) -> dict[int, Rows]:
    found = {}
    begin = 0
    for group, end in enumerate(case.layout):
        if end > begin:
            store_end = round_up(end, case.alignment) if case.zero_fill else end
            stored = set(range(begin, min(store_end, case.m)))
            found[group] = Rows(stored, set(range(begin, min(end, case.m))))
        begin = round_up(max(end, 0), case.alignment)
    return {group: rows for group, rows in found.items() if rows.stored}


def _unmasked(case: Case) -> dict[int, Rows]:
    counts = [max(0, min(count, case.m)) for count in case.layout]
    rows = [set(range(count)) for count in counts]
    return {group: Rows(valid, valid) for group, valid in enumerate(rows) if valid}


def round_up(x: int, y: int) -> int:
    return -(-x // y) * y


# --- random layouts -------------------------------------------------------------------------------


def random_labels(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    """Labels of blocks in any order; some have no group, and some end with padding."""
    found: list[int] = []
    unusual = [-1, INT_MAX, case["num_groups"], *range(case["num_groups"])]
    while len(found) < case["m"]:
        group = chance.choice(unusual if chance.random() < 0.3 else range(case["num_groups"]))
        if found and chance.random() < 0.4:
            group = found[-case["alignment"]]
        rows = chance.choice([case["alignment"], chance.randint(1, case["alignment"])])
        found += [group] * rows + [-1] * (case["alignment"] - rows)
    return tuple(found[: case["m"]])


def random_offsets(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    """Ends in order, some before the group's begin, some beyond M."""
    found, begin = [], 0
    for _ in range(case["num_groups"]):
        most = max(1, 2 * case["m"] // case["num_groups"])
        end = begin + chance.choice([0, 0, 1, chance.randint(0, most), chance.randint(0, most)])
        end = chance.choice([end] * 12 + [0, -3, begin - 1, begin // 2])
        found.append(end)
        begin = round_up(max(end, 0), case["alignment"])
    if chance.random() < 0.1:
        found[chance.randrange(len(found)) :] = [INT_MAX]
        found += [chance.choice([0, 5, INT_MAX])] * (case["num_groups"] - len(found))
    return tuple(found)


def random_counts(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    m = case["m"]
    unusual = [0, 0, 1, m, m + 1, INT_MAX, -1, -INT_MAX]
    return tuple(
        chance.choice(unusual) if chance.random() < 0.5 else chance.randint(0, m)
        for _ in range(case["num_groups"])
    )


def random_extents(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    extents = [0, 0, 1, 16, 127, 128, 129, 256, -5]
    return tuple(
        chance.choice([*extents, chance.randint(0, 2000)]) for _ in range(case["num_groups"])
    )


RANDOM_LAYOUTS = {
    GroupKind.LABELS: random_labels,
    GroupKind.OFFSETS: random_offsets,
    GroupKind.MASKED: random_counts,
    GroupKind.ALONG_K: random_extents,
}
