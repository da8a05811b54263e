"""What device tensors of groups mean, written apart from the kernels, and random ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from deep_gemm.problem import GROUPINGS, GroupKind

LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class Case:
    """A launch: a tile's tokens, CTAs of a cluster along them, and what the device tensor says."""

    kind: str
    tile: int
    sharers: int
    swapped: bool
    weights: int  # clusters along them
    band: int
    band_on_m: bool
    grid: int
    groups: int
    rows: int
    alignment: int
    clears: bool
    of: tuple[int, ...]

    def line(self) -> str:
        """Return the case as the program reads it; clusters along tokens are of no use to it."""
        along = (self.weights, 77) if self.tile.swap_ab else (77, self.weights)
        walk = *along, self.band, int(self.band_on_m), self.grid
        groups = self.groups, self.rows, self.alignment, int(self.clears), len(self.of), *self.of
        shape = GROUPINGS.index(self.kind), self.tile, self.sharers, int(self.tile.swap_ab)
        return " ".join(map(str, (*shape, *walk, *groups)))


class Rows(NamedTuple):
    """Of a group: rows of D to be stored, and those of A that are multiplied."""

    stored: set[int]
    multiplied: set[int]


# --- what device tensors mean -------------------------------------------------------------------


def meaning(case: Case) -> dict[int, Rows]:
    """Return the rows of every group that has any."""
    of_kind = {"labels": labelled, "offsets": between, "masked": counted}
    if case.kind in of_kind:
        return of_kind[case.kind](case)
    every = set(range(case.rows))
    having = [
        i
        for i in range(case.groups)
        if case.kind is not GroupKind.ALONG_K or case.of[i] > 0 or case.clears
    ]
    return {i: Rows(every, every) for i in having} if every else {}


def labelled(case: Case) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    for start in range(0, case.rows, case.alignment):
        label = case.of[start]
        if not 0 <= label < case.groups:
            continue
        rows = found.setdefault(label, Rows(set(), set()))
        for row in range(start, min(start + case.alignment, case.rows)):
            rows.stored.add(row)
            if case.of[row // 64 * 64] >= 0:
                rows.multiplied.add(row)
    return found


def between(case: Case) -> dict[int, Rows]:
    found = {}
    begin = 0
    for group, end in enumerate(case.of):
        if end > begin:
            behind = up(end, case.alignment) if case.clears else end
            stored = set(range(begin, min(behind, case.rows)))
            found[group] = Rows(stored, set(range(begin, min(end, case.rows))))
        begin = up(max(end, 0), case.alignment)
    return {group: rows for group, rows in found.items() if rows.stored}


def counted(case: Case) -> dict[int, Rows]:
    counts = [max(0, min(count, case.rows)) for count in case.of]
    rows = [set(range(count)) for count in counts]
    return {group: Rows(of, of) for group, of in enumerate(rows) if of}


def up(x: int, y: int) -> int:
    return -(-x // y) * y


# --- random cases -------------------------------------------------------------------------------


def of_labels(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    """Labels of blocks in any order, some of none, and padding at the end of some."""
    found: list[int] = []
    few = [-1, LARGEST, case["groups"], *range(case["groups"])]
    while len(found) < case["rows"]:
        group = chance.choice(few if chance.random() < 0.3 else range(case["groups"]))
        if found and chance.random() < 0.4:
            group = found[-case["alignment"]]
        tokens = chance.choice([case["alignment"], chance.randint(1, case["alignment"])])
        found += [group] * tokens + [-1] * (case["alignment"] - tokens)
    return tuple(found[: case["rows"]])


def of_offsets(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    """Ends in order, some before the group's begin, some beyond all rows."""
    found, begin = [], 0
    for _ in range(case["groups"]):
        room = max(1, 2 * case["rows"] // case["groups"])
        end = begin + chance.choice([0, 0, 1, chance.randint(0, room), chance.randint(0, room)])
        end = chance.choice([end] * 12 + [0, -3, begin - 1, begin // 2])
        found.append(end)
        begin = up(max(end, 0), case["alignment"])
    if chance.random() < 0.1:
        found[chance.randrange(len(found)) :] = [LARGEST]
        found += [chance.choice([0, 5, LARGEST])] * (case["groups"] - len(found))
    return tuple(found)


def of_counts(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    rows = case["rows"]
    odd = [0, 0, 1, rows, rows + 1, LARGEST, -1, -LARGEST]
    return tuple(
        chance.choice(odd) if chance.random() < 0.5 else chance.randint(0, rows)
        for _ in range(case["groups"])
    )


def of_extents(chance: random.Random, case: dict[str, Any]) -> tuple[int, ...]:
    extents = [0, 0, 1, 16, 127, 128, 129, 256, -5]
    return tuple(chance.choice([*extents, chance.randint(0, 2000)]) for _ in range(case["groups"]))


FILL = {"labels": of_labels, "offsets": of_offsets, "masked": of_counts, "k": of_extents}
