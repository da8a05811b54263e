"""Raster: the order of tiles, chosen so that the tiles in flight find their operands in L2."""

from __future__ import annotations

from typing import NamedTuple

from ..layouts import ceil_div
from ..problem import GemmProblem, GroupKind, Mainloop
from .gemm_config import GemmConfig

SWIZZLE_WIDTHS = (1, 2, 4, 8, 16)


class ResidueTiles(NamedTuple):
    """Tiles of the last row (in_m) or column of tiles, where half of a tile is out of bounds.

    Its other half is neither loaded nor multiplied, so it takes less time.
    head, tail: how many of them run before all other tiles, and after.
    """

    head: int = 0
    tail: int = 0
    in_m: bool = False


class Raster(NamedTuple):
    """Clusters of tiles along M and N, and the order in which they run.

    swizzle_width clusters lie side by side along one axis while the raster advances along the
    other: along N (along_n) or along M.
    """

    m_clusters: int
    n_clusters: int
    swizzle_width: int
    along_n: bool
    residue: ResidueTiles = ResidueTiles()

    @property
    def clusters(self) -> int:
        """Clusters of tiles in the whole problem."""
        return self.m_clusters * self.n_clusters


def cluster_counts(m: int, n: int, config: GemmConfig) -> tuple[int, int]:
    """Return how many clusters of tiles lie along M and along N."""
    tile = config.tile
    return (
        ceil_div(m, tile.block_m * config.cluster_m),
        ceil_div(n, tile.block_n * config.cluster_n),
    )


def max_clusters(problem: GemmProblem, config: GemmConfig) -> int:
    """Return how many clusters of tiles there are, or, with groups, can be."""
    m_clusters, n_clusters = cluster_counts(problem.m, problem.n, config)
    grouping = problem.grouping
    if grouping is None or grouping.kind is GroupKind.LABELS:
        return m_clusters * n_clusters
    if grouping.kind is GroupKind.OFFSETS:
        return (m_clusters + grouping.num_groups) * n_clusters
    return m_clusters * n_clusters * grouping.num_groups


def raster(problem: GemmProblem, config: GemmConfig, resident: int) -> Raster:
    """Return the raster for `resident` clusters at a time; with groups, of an expected group.

    Of both directions and all widths it takes the one that reads least of A and B: side by side,
    clusters read one operand once, and along the raster all of the other; a wave shares both in L2.
    """
    tile, one = config.tile, problem.expected[1]
    rows_m, rows_n = tile.block_m * config.cluster_m, tile.block_n * config.cluster_n
    m_clusters, n_clusters = cluster_counts(one.m, one.n, config)

    def rows_read(along_n: bool, width: int) -> tuple[int, int]:
        side, length = (m_clusters, n_clusters) if along_n else (n_clusters, m_clusters)
        row_side, row_length = (rows_m, rows_n) if along_n else (rows_n, rows_m)
        in_wave = min(width, side) * row_side + ceil_div(resident, width) * row_length
        return in_wave, side * row_side + ceil_div(side, width) * length * row_length

    # What one wave reads decides the L2 traffic to device memory; the total breaks ties, and then
    # the order of the choices: first with clusters side by side along mma_m.
    directions = (not tile.swap_ab, tile.swap_ab)
    choices = [(along_n, width) for along_n in directions for width in SWIZZLE_WIDTHS]
    along_n, width = min(choices, key=lambda choice: rows_read(*choice))
    residue = residue_tiles(problem, config, resident)
    return Raster(m_clusters, n_clusters, width, along_n, residue)


def residue_tiles(problem: GemmProblem, config: GemmConfig, resident: int) -> ResidueTiles:
    """Return the residue tiles that even out the last wave of `resident` clusters, or none.

    Clusters that have a tile more than others get one of them, and another at the start as far as
    there are any: 7168 x 2112 is 56 x 17 tiles of 128 x 128, 28 more than 7 waves of 132, so 28
    CTAs compute six tiles and two halves.
    """
    if config.variant.mainloop is not Mainloop.SCALED_1D1D:
        return ResidueTiles()
    if config.split_k > 1 or problem.grouping:
        return ResidueTiles()
    tile = config.tile
    m_clusters, n_clusters = cluster_counts(problem.m, problem.n, config)
    over = m_clusters * n_clusters % resident
    half_in_n = config.cluster_n == 1 and 0 < problem.n % tile.block_n <= config.half_n
    half_in_m = config.cluster_m == 1 and 0 < problem.m % tile.block_m <= config.half_m
    for exists, length, in_m in ((half_in_n, m_clusters, False), (half_in_m, n_clusters, True)):
        if exists and 0 < over <= length:
            return ResidueTiles(length - over, over, in_m)
    return ResidueTiles()
