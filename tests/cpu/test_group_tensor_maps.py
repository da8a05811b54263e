"""Tensor maps of groups along K, made by a warp each that is compiled as host C++."""

from __future__ import annotations

import random

import pytest

from .host_kit import Source, compile_host

WORDS = 16  # of a map; host/group_tensor_maps.cpp says what the first five are
ADDRESSES = 1 << 40, 3 << 40  # of A and B
# The maps of the whole buffers: each word has a value of its own, and word 4 counts from 0.
TEMPLATES = tuple([0 if i == 4 else first + i for i in range(WORDS)] for first in (100, 200))


@pytest.fixture(scope="module")
def run():
    """Return a function: lines of integers to lines of integers."""
    program = compile_host(Source("group_tensor_maps", ("tensor_map",)))
    return lambda lines: program("\n".join(" ".join(map(str, line)) for line in lines))


def random_case(chance: random.Random) -> tuple:
    """Return a launch: whether operands are K-major, rows of A and B, K of the buffers, extents."""
    num_groups = chance.choice([1, 2, 31, 32, 33, 70, chance.randint(1, 100)])
    step = chance.choice([1, 16])
    extents = [
        chance.choice([0, 0, step, step * chance.randint(0, 40), -step * chance.randint(0, 3)])
        for _ in range(num_groups)
    ]
    total = sum(extent for extent in extents if extent > 0)
    total = max(0, total + chance.choice([0, 0, step, -step, -total // 2]))
    k_major = chance.randint(0, 1)
    rows = [chance.randint(1, 300) for _ in range(2)]
    return k_major, rows, total, extents


def expected_maps(case: tuple) -> list[list[int]]:
    """Return the maps of A and B of every group; without an extent they are the templates."""
    k_major, rows, total, extents = case
    size = 1 if k_major else 2
    maps, begin = [], 0
    for extent in extents:
        own = max(0, min(extent, total - begin))
        for operand in range(2):
            words = list(TEMPLATES[operand])
            if own > 0:
                words[0] = ADDRESSES[operand] + begin * rows[operand] * size
                words[1 if k_major else 2] = own
                words[4] = 3 if k_major else 2
                if k_major:
                    words[3] = own * size
            maps.append(words)
        begin = min(total, begin + max(0, extent))
    return maps


def test_every_group_has_its_address_its_extent_and_its_pitch(run):
    chance = random.Random(0)
    cases = [random_case(chance) for _ in range(120)]
    cases += [(1, [128, 64], 256, [256]), (0, [128, 64], 256, [0, 256, 0]), (1, [8, 8], 0, [0, 0])]
    lines = []
    for k_major, rows, total, extents in cases:
        size = 1 if k_major else 2
        bytes_per_k = [count * size for count in rows]
        lines.append((k_major, len(extents), *ADDRESSES, *bytes_per_k, total, *extents))
    printed = run(lines)
    assert len(printed) == len(cases)
    for case, (*words, num_releases) in zip(cases, printed, strict=True):
        maps = [words[i : i + WORDS] for i in range(0, len(words), WORDS)]
        assert maps == expected_maps(case), case
        # Every lane releases what it wrote.
        assert num_releases == 32 * len(case[-1])


def test_a_warp_finds_the_first_index_that_satisfies_a_predicate(run):
    chance = random.Random(1)
    lines = []
    for _ in range(200):
        end = chance.choice([0, 1, 31, 32, 33, 64, 100, 200])
        probability = chance.choice([0, 0.01, 0.3])
        satisfies = [int(chance.random() < probability) for _ in range(end)]
        lines.append((2, chance.randint(0, end), end, *satisfies))
    for begin in (0, 5):  # one index at a time, so that none is skipped
        lines += [(2, begin, 100, *(int(i == one) for i in range(100))) for one in range(100)]
    found = run(lines)
    assert len(found) == len(lines)
    for (_, begin, end, *satisfies), lanes in zip(lines, found, strict=True):
        first = next((i for i in range(begin, end) if satisfies[i]), end)
        assert lanes == [first] * 32
