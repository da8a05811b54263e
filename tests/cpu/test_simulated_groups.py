"""Grouped kernels compiled as host C++, on a simulated cluster, as in test_simulated.py.

Every row of D must have the very bits of its group's product, become zeros, or stay as it was, as
group_kit says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import pytest

from deep_gemm.config import GemmConfig, violations
from deep_gemm.config.legality import problem_conflicts
from deep_gemm.config.raster import raster
from deep_gemm.dtypes import FP32
from deep_gemm.kernels.gemm_sm90 import GemmLayout, fill_groups, fill_params, spec
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major

from .config_kit import H200, TEMPLATES, config_of
from .group_kit import Case, meaning, round_up
from .host_kit import launch_words, map_words, simulator

PP, SWAP = {"ping_pong": True}, {"swap_ab": True}
# Of a kind of groups and a variant: (BLOCK_M, BLOCK_N, split_k, cluster_m, cluster_n), and options.
TILES = {
    (GroupKind.LABELS, "1d2d"): (
        (64, 128),
        (128, 136),
        (128, 64, 1, 2, 1),
        (64, 64, 2),
        (32, 64, 1, 1, 1, SWAP),
        (16, 128, 2, 1, 1, SWAP),
    ),
    (GroupKind.LABELS, "1d1d"): ((128, 128), (64, 96), (128, 96, 1, 2, 1)),
    (GroupKind.LABELS, "promoted_fp32"): ((128, 64), (64, 64, 1, 1, 2)),
    (GroupKind.LABELS, "bf16"): (
        (128, 128, 1, 2, 1),
        (128, 128, 1, 1, 1, PP),
        (128, 96, 1, 2, 1, PP),
        (64, 192, 1, 2, 1, PP),
        (32, 64, 1, 2, 1, SWAP),
    ),
    (GroupKind.LABELS, "fast_scaled"): ((128, 96, 1, 1, 1, PP), (64, 96)),
    (GroupKind.OFFSETS, "1d2d"): (
        (64, 136),
        (128, 144),
        (192, 96),
        (256, 128),
        (128, 64, 1, 2, 1),
        (128, 128, 1, 1, 2),
        (64, 64, 3),
        (24, 64, 1, 1, 1, SWAP),
        (32, 64, 4, 1, 1, SWAP),
        (16, 128, 1, 1, 1, SWAP),
        (32, 64, 2, 2, 1, SWAP),
    ),
    (GroupKind.OFFSETS, "1d1d"): ((128, 104), (128, 96, 1, 1, 2), (64, 72, 5)),
    (GroupKind.OFFSETS, "bf16"): (
        (256, 112),
        (128, 208, 1, 1, 2),
        (64, 128, 2, 2, 1),
        (128, 160, 1, 1, 1, PP),
        (64, 256, 1, 1, 2, PP),
    ),
    (GroupKind.OFFSETS, "bf16_b_mn"): ((128, 256, 1, 2, 1), (16, 64, 1, 1, 1, SWAP)),
    (GroupKind.OFFSETS, "promoted_fp32"): ((64, 80),),
    (GroupKind.OFFSETS, "int8_scaled_fp32"): ((256, 64), (64, 32, 2)),
    (GroupKind.OFFSETS, "fast_scaled"): ((64, 72, 5), (128, 128, 1, 2, 1, PP)),
    (GroupKind.MASKED, "1d2d"): (
        (64, 128),
        (128, 136),
        (192, 96),
        (256, 128, 1, 2, 1),
        (8, 64, 1, 1, 1, SWAP),
        (32, 64, 2, 2, 1, SWAP),
    ),
    (GroupKind.MASKED, "1d1d"): ((128, 128), (64, 128, 1, 1, 2)),
    (GroupKind.MASKED, "bf16"): (
        (64, 128, 4),
        (16, 64, 1, 1, 1, SWAP),
        (128, 128, 1, 2, 1, PP),
    ),
    (GroupKind.MASKED, "promoted_scaled"): ((128, 64, 1, 2, 1),),
    (GroupKind.BATCHED, "1d2d"): ((128, 128, 1, 2, 1), (16, 64, 4, 1, 1, SWAP)),
    (GroupKind.BATCHED, "1d1d"): ((128, 128), (64, 72)),
    (GroupKind.BATCHED, "int8"): ((128, 64, 2),),
    (GroupKind.BATCHED, "bf16_mn"): ((256, 128, 1, 1, 2), (128, 192, 1, 1, 1, PP)),
    (GroupKind.ALONG_K, "1d1d_fp32"): (
        (128, 128),
        (64, 96),
        (128, 96, 1, 1, 2),
        (64, 64, 2),
    ),
    (GroupKind.ALONG_K, "1d1d_fp32_reduce"): ((128, 128), (128, 96, 1, 2, 1)),
    (GroupKind.ALONG_K, "bf16_mn_fp32"): (
        (256, 112),
        (64, 128, 2),
        (128, 128, 1, 2, 1, PP),
    ),
    (GroupKind.ALONG_K, "bf16_mn_fp32_reduce"): (
        (128, 128, 1, 1, 2),
        (128, 192, 1, 1, 1, PP),
    ),
}
MN_FP32 = replace(TEMPLATES["bf16_mn_fp32_read"], c_mode=CMode.NONE)
FURTHER_TEMPLATES = {
    "promoted_scaled": replace(TEMPLATES["promoted_scaled_read"], c_mode=CMode.NONE),
    "bf16_mn": replace(MN_FP32, d_dtype=TEMPLATES["bf16"].d_dtype),
    "1d1d_fp32": replace(TEMPLATES["1d1d"], d_dtype=FP32),
    "bf16_mn_fp32": MN_FP32,
    "bf16_mn_fp32_reduce": replace(MN_FP32, c_mode=CMode.REDUCE),
}
RESIDENT = 3  # clusters at a time, to the raster
NUM_LAUNCHES = 3  # of a kernel


@dataclass(frozen=True)
class GroupedKernel:
    """A configuration of a grouped variant, and its problems without extents."""

    template: GemmProblem
    config: GemmConfig
    kind: GroupKind


def kernel_of(kind: GroupKind, name: str, tile: tuple) -> GroupedKernel:
    template = replace({**TEMPLATES, **FURTHER_TEMPLATES}[name], grouping=Grouping(kind, 1))
    shape, options = tile, {}
    if isinstance(tile[-1], dict):
        *shape, options = tile
    config = config_of(*shape, variant=template.variant, **options)
    assert not violations(config, H200), (config.name, violations(config, H200))
    return GroupedKernel(template, config, kind)


KERNELS = [kernel_of(*key, tile) for key, tiles in TILES.items() for tile in tiles]


# --- problems -------------------------------------------------------------------------------------


def labels_of(
    kernel: GroupedKernel, chance: random.Random, alignment: int, num_groups: int
) -> list[int]:
    """Blocks of every group, and of none; they end with padding, of which some is half a block."""
    config = kernel.config
    found: list[int] = []
    # Here a CTA has room for the sums, or scales, of one tile: a cluster's blocks have one group.
    is_single = config.split_k > 1 or config.variant.has_epilogue_scales
    cluster_rows = config.tile.block_m * config.cluster_m
    blocks = max(1, cluster_rows // alignment) if is_single else 1
    for _ in range(-(-5 // blocks)):
        group = chance.choice([-1, num_groups, *range(num_groups), *range(num_groups)])
        for _ in range(blocks):
            rows = chance.choice([1, alignment // 2, alignment // 2 - 5, alignment])
            found += [group] * rows + [-1] * (alignment - rows)
    return found[: len(found) - chance.choice([0, 1, alignment // 2, alignment // 2 + 7])]


def ends_of(chance: random.Random, alignment: int, most: int) -> list[int]:
    found, begin = [], 0
    for _ in range(4):
        found.append(begin + chance.choice([0, 1, most // 4, chance.randint(1, most)]))
        begin = round_up(found[-1], alignment)
    return found


def case_of(kernel: GroupedKernel, index: int, chance: random.Random) -> Case:
    """Return groups of the kind for a kernel: few, and of a few tiles."""
    config, kind, block_m = kernel.config, kernel.kind, kernel.config.tile.block_m
    cluster_rows = block_m * config.cluster_m
    num_groups, m, layout = chance.choice([2, 3]), chance.randint(1, cluster_rows + 9), []
    alignment = chance.choice([1, 8, 64, 100, 128])
    if kind is GroupKind.LABELS:
        alignment = 128 if block_m > 64 or index else 64
        layout = labels_of(kernel, chance, alignment, num_groups)
        m = len(layout)
    elif kind is GroupKind.OFFSETS:
        num_groups = 4
        layout = ends_of(chance, alignment, cluster_rows + 9)
        m = max(1, layout[-1] + chance.choice([-7, 0, 3, 70]))
    elif kind is GroupKind.MASKED:
        counts = [0, -1, 1, m // 2, m, m + 3]
        layout = [chance.choice(counts) for _ in range(num_groups)]
    elif kind is GroupKind.ALONG_K:
        num_groups = 4
        step = 16 if config.variant.a.bytes == 1 else chance.choice([1, 8])
        most = config.variant.block_k * min(2, config.num_stages // config.tile.tiles_in_flight)
        layout = [step * chance.randint(0, most // step) for _ in range(num_groups)]
        layout[index] = 0
    zero_fill = chance.random() < 0.5 if kind is not GroupKind.ALONG_K else None
    return Case(
        kind=kind,
        block_m=block_m,
        cluster_m=config.cluster_m,
        n_clusters=1 + (index > 0),
        swizzle_width=1,
        along_n=False,
        grid=1,
        num_groups=num_groups,
        m=m,
        alignment=alignment,
        zero_fill=not config.variant.adds_c if zero_fill is None else zero_fill,
        layout=tuple(layout),
    )


STAYS, COMPUTED, ZEROS = range(3)


def is_stacked_d(kind: GroupKind) -> bool:
    return kind.is_stacked or kind is GroupKind.ALONG_K


def fates_of(case: Case) -> list[tuple[int, int]]:
    """Return of every row of D its group, and what becomes of it."""
    is_stacked = is_stacked_d(case.kind)
    found = [(0, STAYS)] * (case.m * (case.num_groups if is_stacked else 1))
    for group, rows in meaning(case).items():
        first = group * case.m if is_stacked else 0
        for row in rows.stored:
            found[first + row] = group, COMPUTED if row in rows.multiplied else ZEROS
    return found


def num_clusters(kernel: GroupedKernel, case: Case, k_blocks: int, several_tiles: bool) -> int:
    """Return the clusters of a launch, so that the stages hold all k-blocks of a CTA."""
    config, cluster_rows = kernel.config, case.block_m * case.cluster_m
    if case.kind is GroupKind.LABELS:
        m_clusters = -(-case.m // cluster_rows)
    else:
        extents = [(max(rows.stored) + 1 - min(rows.stored)) for rows in meaning(case).values()]
        m_clusters = sum(-(-rows // cluster_rows) for rows in extents)
    tiles = config.tile.tiles_in_flight
    is_single = config.variant.has_epilogue_scales or config.split_k > 1 or tiles > 1
    if several_tiles and not is_single and 2 * k_blocks <= config.num_stages:
        tiles = 2
    return max(1, -(-m_clusters * case.n_clusters // tiles))


def launch_of(kernel: GroupedKernel, index: int) -> tuple[int, ...]:
    """Return a launch as the simulator reads it, but for the configuration's index."""
    config, variant, tile = kernel.config, kernel.config.variant, kernel.config.tile
    chance = random.Random(f"{config.name} {index}")
    case = case_of(kernel, index, chance)
    cluster_columns = config.cluster_n * tile.block_n
    n = round_up((case.n_clusters - 1) * cluster_columns + chance.randint(1, cluster_columns), 8)
    # Two groups in a cluster: the pair of tiles is visited twice.
    visits = 2 if case.kind is GroupKind.LABELS and case.cluster_m > 1 else 1
    parts = config.num_stages // (tile.tiles_in_flight * visits)
    step = variant.block_k * config.split_k
    k = step * max(1, min(parts, 1 + index)) - 16 * chance.randint(0, 3)
    along_k = case.kind is GroupKind.ALONG_K
    k = sum(case.layout) + chance.choice([0, 48]) if along_k else k
    grouping = Grouping(case.kind, case.num_groups, case.alignment, 0, case.zero_fill)
    problem = replace(kernel.template, m=case.m, n=n, k=k, grouping=grouping)
    assert not problem_conflicts(config, problem)
    layout = layout_of(case, variant, n, k)
    order = raster(problem, config, RESIDENT)
    clusters = num_clusters(kernel, case, -(-k // step) * visits, index == 2 and not along_k)
    params = spec(config).params()
    fill_params(params, config, layout, order, 0)
    fill_groups(params, grouping, case.m, variant.adds_c)
    groups, fates = params.groups, fates_of(case)
    return (
        *launch_words(config, case.m, n, k, order, clusters),
        *(params.stage_bytes, 0, 0, index + variant.has_epilogue_scales),
        *map_words(config, layout),
        *(groups.num_groups, groups.m, groups.alignment, groups.zero_fill),
        *(len(case.layout), len(fates), *case.layout),
        *(word for fate in fates for word in fate),
    )


def layout_of(case: Case, variant, n: int, k: int) -> GemmLayout:
    stride_a = case.m if variant.a_major is Major.MN else k
    stride_b = n if variant.b_major is Major.MN else k
    group_a = case.m * k if case.kind.is_stacked else 0
    group_b = n * k if case.kind is not GroupKind.ALONG_K else 0
    group_d = case.m * n if is_stacked_d(case.kind) else 0
    strides = group_a, group_b, group_d
    return GemmLayout(
        case.m, n, k, stride_a, stride_b, n, num_groups=case.num_groups, group_strides=strides
    )


# --- what the kernels do --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated():
    """Return a function: a kernel to what host/simulator.cpp prints of each of its launches."""
    run = simulator([kernel.config for kernel in KERNELS])

    @cache
    def show(kernel):
        index = KERNELS.index(kernel)
        launches = [(index, *launch_of(kernel, i)) for i in range(NUM_LAUNCHES)]
        rows = run("\n".join(" ".join(map(str, launch)) for launch in launches))
        assert len(rows) == len(launches)
        return rows

    return show


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.config.name)
def test_every_row_is_its_groups_product_or_zeros_or_stays(kernel, simulated):
    parts_overlap = kernel.config.tile.mma_n % kernel.config.reduce_mma_n
    for wrong, missing, repeated, out_of_bounds, pending, *others in simulated(kernel):
        *refused, overwritten, _, needless = others
        assert (wrong, missing, overwritten) == (0, 0, 0)
        assert (out_of_bounds, pending, needless) == (0, 0, 0)
        assert refused == [0, 0, 0]
        assert repeated == 0 or parts_overlap


def test_problems_have_rows_of_every_fate():
    for kind, wanted in (
        (GroupKind.LABELS, {STAYS, COMPUTED, ZEROS}),
        (GroupKind.OFFSETS, {STAYS, COMPUTED, ZEROS}),
        (GroupKind.MASKED, {STAYS, COMPUTED}),
        (GroupKind.BATCHED, {COMPUTED}),
        (GroupKind.ALONG_K, {STAYS, COMPUTED}),
    ):
        found = set()
        for kernel in (kernel for kernel in KERNELS if kernel.kind is kind):
            for index in range(NUM_LAUNCHES):
                case = case_of(kernel, index, random.Random(f"{kernel.config.name} {index}"))
                found |= {fate for _, fate in fates_of(case)}
        assert found == wanted, kind
