"""Maps of groups along K, made by a warp each that is compiled as host C++."""

from __future__ import annotations

import random

import pytest

from .host_kit import PROGRAMS, compile_host

WORDS = 16  # of a map: its address, two extents, its pitch, how often it was changed, and others
BASES = 1 << 40, 3 << 40
PATTERNS = tuple(
    [base + i * (i != 4) - base * (i == 4) for i in range(WORDS)] for base in (100, 200)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function: lines of numbers to lines of numbers."""
    beside = {"grid.h": (PROGRAMS / "grid.h").read_text()}
    program = compile_host("group_maps", tmp_path_factory.mktemp("maps"), beside, ["-pthread"])
    return lambda lines: program("\n".join(" ".join(map(str, line)) for line in lines))


def random_case(chance: random.Random) -> tuple:
    """Return a launch: whether K is contiguous, rows of A and B, K of the buffers, extents."""
    groups = chance.choice([1, 2, 31, 32, 33, 70, chance.randint(1, 100)])
    step = chance.choice([1, 16])
    extents = [
        chance.choice([0, 0, step, step * chance.randint(0, 40), -step * chance.randint(0, 3)])
        for _ in range(groups)
    ]
    total = sum(extent for extent in extents if extent > 0)
    total = max(0, total + chance.choice([0, 0, step, -step, -total // 2]))
    k_major = chance.randint(0, 1)
    rows = [chance.randint(1, 300) for _ in range(2)]
    return k_major, rows, total, extents


def wanted_of(case: tuple) -> list[list[int]]:
    """Return the maps of A and B of every group, of which one without extent is as described."""
    k_major, rows, total, extents = case
    size = 1 if k_major else 2
    maps, before = [], 0
    for extent in extents:
        own = max(0, min(extent, total - before))
        for of in range(2):
            words = list(PATTERNS[of])
            if own > 0:
                words[0] = BASES[of] + before * rows[of] * size
                words[1 if k_major else 2] = own
                words[4] = 3 if k_major else 2
                if k_major:
                    words[3] = own * size
            maps.append(words)
        before = min(total, before + max(0, extent))
    return maps


def test_every_group_has_its_address_its_extent_and_its_pitch(run):
    chance = random.Random(0)
    cases = [random_case(chance) for _ in range(120)]
    cases += [(1, [128, 64], 256, [256]), (0, [128, 64], 256, [0, 256, 0]), (1, [8, 8], 0, [0, 0])]
    lines = []
    for k_major, rows, total, extents in cases:
        size = 1 if k_major else 2
        steps = [of * size for of in rows]
        extents = [extent % (1 << 64) for extent in extents]
        lines.append((k_major, len(extents), *BASES, *steps, total, *extents))
    printed = run(lines)
    assert len(printed) == len(cases)
    for case, (*words, released) in zip(cases, printed, strict=True):
        maps = [words[i : i + WORDS] for i in range(0, len(words), WORDS)]
        assert maps == wanted_of(case), case
        # Every lane that has written releases.
        assert released == 32 * len(case[-1])


def test_a_warp_finds_the_first_group_that_holds(run):
    chance = random.Random(1)
    lines = []
    for _ in range(200):
        count = chance.choice([0, 1, 31, 32, 33, 64, 100, 200])
        holds = [int(chance.random() < chance.choice([0, 0.01, 0.3])) for _ in range(count)]
        lines.append((2, chance.randint(0, count), count, *holds))
    for (_, start, count, *holds), found in zip(lines, run(lines), strict=True):
        first = next((i for i in range(start, count) if holds[i]), count)
        assert found == [first] * 32
