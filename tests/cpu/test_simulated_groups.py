"""Kernels of groups compiled as host C++, on a simulated cluster, as in test_simulated.py.

Every row of D must have the very bits of its group's product, become zeros, or stay as it was, as
group_kit says.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import pytest

from deep_gemm.config import GemmConfig
from deep_gemm.config.legality import problem_conflicts
from deep_gemm.config.raster import raster
from deep_gemm.dtypes import FP32
from deep_gemm.kernels.gemm_sm90 import GemmParams, Operands, fill_groups, fill_params
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major

from .config_kit import H200, TEMPLATES, config_of
from .group_kit import Case, meaning, up
from .host_kit import cases_of, compile_host, launch_numbers, map_numbers

P, S = {"ping_pong": True}, {"swapped": True}
# Of a kind and a form: tiles as config_of takes them, and what else it takes.
TILES = {
    ("labels", "block"): (
        (64, 128),
        (128, 136),
        (128, 64, 1, 2, 1),
        (64, 64, 2),
        (64, 32, 1, 1, 1, S),
        (128, 16, 2, 1, 1, S),
    ),
    ("labels", "rows"): ((128, 128), (64, 96), (128, 96, 1, 2, 1)),
    ("labels", "unit_fp32"): ((128, 64), (64, 64, 1, 1, 2)),
    ("labels", "bf16"): (
        (128, 128, 1, 2, 1),
        (128, 128, 1, 1, 1, P),
        (128, 96, 1, 2, 1, P),
        (64, 192, 1, 2, 1, P),
        (64, 32, 1, 1, 2, S),
    ),
    ("labels", "fast_scaled"): ((128, 96, 1, 1, 1, P), (64, 96)),
    ("offsets", "block"): (
        (64, 136),
        (128, 144),
        (192, 96),
        (256, 128),
        (128, 64, 1, 2, 1),
        (128, 128, 1, 1, 2),
        (64, 64, 3),
        (64, 24, 1, 1, 1, S),
        (64, 32, 4, 1, 1, S),
        (128, 16, 1, 1, 1, S),
        (64, 32, 2, 1, 2, S),
    ),
    ("offsets", "rows"): ((128, 104), (128, 96, 1, 1, 2), (64, 72, 5)),
    ("offsets", "bf16"): (
        (256, 112),
        (128, 208, 1, 1, 2),
        (64, 128, 2, 2, 1),
        (128, 160, 1, 1, 1, P),
        (64, 256, 1, 1, 2, P),
    ),
    ("offsets", "bf16_b_turned"): ((128, 256, 1, 2, 1), (64, 16, 1, 1, 1, S)),
    ("offsets", "unit_fp32"): ((64, 80),),
    ("offsets", "int8_scaled_fp32"): ((256, 64), (64, 32, 2)),
    ("offsets", "fast_scaled"): ((64, 72, 5), (128, 128, 1, 2, 1, P)),
    ("masked", "block"): (
        (64, 128),
        (128, 136),
        (192, 96),
        (256, 128, 1, 2, 1),
        (64, 8, 1, 1, 1, S),
        (64, 32, 2, 1, 2, S),
    ),
    ("masked", "rows"): ((128, 128), (64, 128, 1, 1, 2)),
    ("masked", "bf16"): ((64, 128, 4), (64, 16, 1, 1, 1, S), (128, 128, 1, 2, 1, P)),
    ("masked", "unit_scaled"): ((128, 64, 1, 2, 1),),
    ("batched", "block"): ((128, 128, 1, 2, 1), (64, 16, 4, 1, 1, S)),
    ("batched", "rows"): ((128, 128), (64, 72)),
    ("batched", "int8"): ((128, 64, 2),),
    ("batched", "bf16_turned"): ((256, 128, 1, 1, 2), (128, 192, 1, 1, 1, P)),
    ("k", "rows_fp32"): ((128, 128), (64, 96), (128, 96, 1, 1, 2), (64, 64, 2)),
    ("k", "rows_fp32_reduce"): ((128, 128), (128, 96, 1, 2, 1)),
    ("k", "bf16_turned_fp32"): ((256, 112), (64, 128, 2), (128, 128, 1, 2, 1, P)),
    ("k", "bf16_turned_fp32_reduce"): ((128, 128, 1, 1, 2), (128, 192, 1, 1, 1, P)),
}
PLAIN = replace(TEMPLATES["bf16_turned_fp32_read"], c_mode=CMode.NONE)
OWN = {
    "unit_scaled": replace(TEMPLATES["unit_scaled_read"], c_mode=CMode.NONE),
    "bf16_turned": replace(PLAIN, d_dtype=TEMPLATES["bf16"].d_dtype),
    "rows_fp32": replace(TEMPLATES["rows"], d_dtype=FP32),
    "bf16_turned_fp32": PLAIN,
    "bf16_turned_fp32_reduce": replace(PLAIN, c_mode=CMode.REDUCE),
}
SLOTS = 3  # clusters at once, as far as the order of tiles goes


@dataclass(frozen=True)
class Simulated:
    """A kernel of a form of grouped problem."""

    template: GemmProblem
    config: GemmConfig
    kind: str


def simulated_of(kind: str, form: str, tile: tuple) -> Simulated:
    template = replace({**TEMPLATES, **OWN}[form], grouping=Grouping(kind, 1))
    shape, rest = tile, {}
    if isinstance(tile[-1], dict):
        *shape, rest = tile
    config = config_of(*shape, form=template.form, **rest)
    assert not violations(config, H200), (config.name, violations(config, H200))
    return Simulated(template, config, kind)


EVERY = [simulated_of(*of, tile) for of, tiles in TILES.items() for tile in tiles]
HALVES = EVERY[::2], EVERY[1::2]  # each a program, compiled at the same time
SHAPES = 3


# --- problems -----------------------------------------------------------------------------------


def labels_of(one: Simulated, chance: random.Random, alignment: int, groups: int) -> list[int]:
    """Blocks of every group, and of none; ended by padding, of which some is half a block."""
    config = one.config
    found: list[int] = []
    sharers = config.cluster_n if config.tile.swap_ab else config.cluster_m
    # Here a CTA keeps the sums, or scales, of one tile: those of a cluster are then of one group.
    alone = config.split_k > 1 or config.variant.scaled
    blocks = max(1, config.tokens * sharers // alignment) if alone else 1
    for _ in range(-(-5 // blocks)):
        group = chance.choice([-1, groups, *range(groups), *range(groups)])
        for _ in range(blocks):
            tokens = chance.choice([1, alignment // 2, alignment // 2 - 5, alignment])
            found += [group] * tokens + [-1] * (alignment - tokens)
    return found[: len(found) - chance.choice([0, 1, alignment // 2, alignment // 2 + 7])]


def ends_of(chance: random.Random, alignment: int, most: int) -> list[int]:
    found, begin = [], 0
    for _ in range(4):
        found.append(begin + chance.choice([0, 1, most // 4, chance.randint(1, most)]))
        begin = up(found[-1], alignment)
    return found


def case_of(one: Simulated, variant: int, chance: random.Random) -> Case:
    """Return groups of the kind for a kernel: few, and of a few tiles."""
    config, kind = one.config, one.kind
    sharers = config.cluster_n if config.tile.swap_ab else config.cluster_m
    together = config.tokens * sharers
    groups, rows, of = chance.choice([2, 3]), chance.randint(1, together + 9), []
    alignment = chance.choice([1, 8, 64, 100, 128])
    if kind is GroupKind.LABELS:
        alignment = 128 if config.tokens > 64 or variant else 64
        of = labels_of(one, chance, alignment, groups)
        rows = len(of)
    elif kind is GroupKind.OFFSETS:
        groups = 4
        of = ends_of(chance, alignment, together + 9)
        rows = max(1, of[-1] + chance.choice([-7, 0, 3, 70]))
    elif kind is GroupKind.MASKED:
        counts = [0, -1, 1, rows // 2, rows, rows + 3]
        of = [chance.choice(counts) for _ in range(groups)]
    elif kind is GroupKind.ALONG_K:
        groups = 4
        step = 16 if config.variant.a.bytes == 1 else chance.choice([1, 8])
        most = config.variant.block_k * min(2, config.num_stages // config.tile.at_once)
        of = [step * chance.randint(0, most // step) for _ in range(groups)]
        of[variant] = 0
    return Case(
        kind=kind,
        tile=config.tokens,
        sharers=sharers,
        swapped=config.tile.swap_ab,
        weights=1 + (variant > 0),
        band=1,
        band_on_m=False,
        grid=1,
        groups=groups,
        rows=rows,
        alignment=alignment,
        clears=chance.random() < 0.5
        if kind is not GroupKind.ALONG_K
        else config.variant.c_mode is CMode.NONE,
        of=tuple(of),
    )


STAYS, COMPUTED, ZEROS = range(3)


def fates_of(case: Case) -> list[tuple[int, int]]:
    """Return of every row of D its group, and what becomes of it."""
    stacked = case.kind in ("masked", "batched", "k")
    found = [(0, STAYS)] * (case.rows * (case.groups if stacked else 1))
    for group, rows in meaning(case).items():
        first = group * case.rows if stacked else 0
        for row in rows.stored:
            found[first + row] = group, COMPUTED if row in rows.multiplied else ZEROS
    return found


def clusters_of(one: Simulated, case: Case, blocks: int, turns: bool) -> int:
    """Return how many clusters a launch has, so that the stages hold all that a CTA multiplies."""
    config, together = one.config, case.tile * case.sharers
    if case.kind is GroupKind.LABELS:
        tiles = -(-case.rows // together)
    else:
        most = [(max(rows.stored) + 1 - min(rows.stored)) for rows in meaning(case).values()]
        tiles = sum(-(-rows // together) for rows in most)
    each = config.tile.at_once
    lone = config.variant.scaled or config.split_k > 1 or each > 1
    if turns and not lone and 2 * blocks <= config.num_stages:
        each = 2
    return max(1, -(-tiles * case.weights // each))


def line_of(one: Simulated, variant: int) -> tuple[int, ...]:
    """Return a launch as host/kernel.cpp reads it, but for the index."""
    config, form = one.config, one.config.variant
    chance = random.Random(f"{config.name} {variant}")
    case = case_of(one, variant, chance)
    across = (
        config.cluster_m * config.tile.block_m
        if config.tile.swap_ab
        else (config.cluster_n * config.tile.block_n)
    )
    n = up((case.weights - 1) * across + chance.randint(1, across), 8)
    doubled = case.kind is GroupKind.LABELS and case.sharers > 1
    parts = config.num_stages // (config.tile.at_once * (1 + doubled))
    step = form.block_k * config.split_k
    k = step * max(1, min(parts, 1 + variant)) - 16 * chance.randint(0, 3)
    k = sum(case.of) + chance.choice([0, 48]) if case.kind is GroupKind.ALONG_K else k
    grouping = Grouping(case.kind, case.groups, case.alignment, 0, case.clears)
    problem = replace(one.template, m=case.rows, n=n, k=k, grouping=grouping)
    assert not problem_conflicts(config, problem)
    operands = operands_of(case, form, n, k)
    walk = raster(problem, config, SLOTS)
    blocks = -(-k // step) * (1 + doubled)
    clusters = clusters_of(one, case, blocks, variant == 2 and case.kind is not GroupKind.ALONG_K)
    params = GemmParams()
    fill_params(params, config, operands, walk, 0)
    fill_groups(params, grouping, case.rows, form.addend)
    groups, fates = params.groups, fates_of(case)
    return (
        *launch_numbers(config, case.rows, n, k, walk, clusters),
        *(params.stage_bytes, 0, 0, variant + form.scaled),
        *map_numbers(config, operands),
        *(groups.count, groups.tokens, groups.alignment, groups.clears),
        *(len(case.of), len(fates), *case.of),
        *(x for fate in fates for x in fate),
    )


def operands_of(case: Case, form, n: int, k: int) -> Operands:
    strides = (case.rows if form.a_major is Major.MN else k), (n if form.b_major is Major.MN else k)
    of_a = case.rows * k if case.kind in ("masked", "batched") else 0
    of_b = n * k if case.kind is not GroupKind.ALONG_K else 0
    of_d = case.rows * n if case.kind in ("masked", "batched", "k") else 0
    return GemmLayout(
        case.rows, n, k, *strides, n, groups=case.groups, group_strides=(of_a, of_b, of_d)
    )


# --- what the kernels do ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Return a function: a kernel to what host/kernel.cpp found of each of its problems."""
    folders = [tmp_path_factory.mktemp("kernel") for _ in HALVES]

    def compiled(half, folder):
        options = ["-O1", "-ffp-contract=off"]
        included = {"cases.inc": cases_of(one.config for one in half)}
        return compile_host("kernel", folder, included, options)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(compiled, HALVES, folders))

    @cache
    def show(one):
        half = EVERY.index(one) % len(HALVES)
        index = HALVES[half].index(one)
        lines = [(index, *line_of(one, variant)) for variant in range(SHAPES)]
        rows = runs[half]("\n".join(" ".join(map(str, line)) for line in lines))
        assert len(rows) == len(lines)
        return rows

    return show


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.config.name)
def test_every_row_is_its_groups_product_or_zeros_or_stays(one, simulated):
    uneven = one.config.tile.block_n % one.config.reduce_mma_n
    for wrong, missing, repeated, beyond, owed, *others in simulated(one):
        *refused, spoilt, _, needless = others
        assert (wrong, missing, spoilt) == (0, 0, 0)
        assert (beyond, owed, needless) == (0, 0, 0)
        assert refused == [0, 0, 0]
        assert repeated == 0 or uneven


def test_problems_have_rows_of_every_fate():
    for kind, wanted in (
        ("labels", {STAYS, COMPUTED, ZEROS}),
        ("offsets", {STAYS, COMPUTED, ZEROS}),
        ("masked", {STAYS, COMPUTED}),
        ("batched", {COMPUTED}),
        ("k", {STAYS, COMPUTED}),
    ):
        found = set()
        for one in (one for one in EVERY if one.kind == kind):
            for variant in range(SHAPES):
                case = case_of(one, variant, random.Random(f"{one.config.name} {variant}"))
                found |= {fate for _, fate in fates_of(case)}
        assert found == wanted, kind
