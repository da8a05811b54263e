"""The order in which tiles are walked, chosen so that a wave of them finds its operands in L2."""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import GemmProblem
from .tile import GemmConfig


@dataclass(frozen=True)
class Edge:
    """The last row of tiles (on_m), or column, where half of it does not exist and costs nothing.

    first, last: of its tiles, those walked before all others, and after them.
    """

    first: int = 0
    last: int = 0
    on_m: bool = False


@dataclass(frozen=True)
class Raster:
    """Counts of clusters along the product's rows and columns, and the bands they are walked in.

    A band is `band` clusters wide along rows (band_on_m) or columns, and as long as the other axis.
    """

    clusters_m: int
    clusters_n: int
    band: int
    band_on_m: bool
    edge: Edge = Edge()

    @property
    def clusters(self) -> int:
        """Clusters of tiles in the whole problem."""
        return self.clusters_m * self.clusters_n


def cluster_counts(problem: GemmProblem, config: GemmConfig) -> tuple[int, int]:
    """Return how many clusters of tiles lie along the rows and the columns of a product."""
    tile = config.tile
    rows, columns = config.oriented(problem.m, problem.n)
    across_m, across_n = tile.block_m * config.cluster_m, tile.block_n * config.cluster_n
    return -(-rows // across_m), -(-columns // across_n)


def most_clusters(problem: GemmProblem, config: GemmConfig) -> int:
    """Return how many clusters of tiles there are, or, of groups, can be."""
    along_m, along_n = cluster_counts(problem, config)
    of = problem.grouping
    if of is None:
        return along_m * along_n
    along_tokens, along_weights = config.oriented(along_m, along_n)
    if of.kind == "offsets":
        return (along_tokens + of.groups) * along_weights
    return along_m * along_n * (1 if of.kind == "labels" else of.groups)


def raster(problem: GemmProblem, config: GemmConfig, resident: int) -> Raster:
    """Return the walk for `resident` clusters at a time; of groups, over one of the expected size.

    Of both axes and all widths it takes the one that reads least of A and B: a band along one axis
    reads its share of that operand once and all of the other, and within a wave both share L2.
    """
    rows_m = config.tile.block_m * config.cluster_m
    rows_n = config.tile.block_n * config.cluster_n
    clusters_m, clusters_n = cluster_counts(problem.expected[1], config)

    def rows_read(band_on_m: bool, band: int) -> tuple[int, int]:
        across, along = (clusters_m, clusters_n) if band_on_m else (clusters_n, clusters_m)
        row_across, row_along = (rows_m, rows_n) if band_on_m else (rows_n, rows_m)
        bands = -(-across // band)
        in_wave = min(band, across) * row_across + -(-resident // band) * row_along
        return in_wave, across * row_across + bands * along * row_along

    choices = [(on_m, band) for on_m in (True, False) for band in (1, 2, 4, 8, 16)]
    # What one wave reads decides the L2 traffic to device memory; the total breaks ties.
    band_on_m, band = min(choices, key=lambda choice: rows_read(*choice))
    edge = edge_of(problem, config, resident)
    return Raster(clusters_m, clusters_n, band, band_on_m, edge)


def edge_of(problem: GemmProblem, config: GemmConfig, resident: int) -> Edge:
    """Return the edge that evens out the last wave of `resident` clusters, or none.

    Clusters that have a tile more than others get one of the edge, and another at the start as far
    as there are any.
    """
    tile = config.tile
    if config.form.promotion != "rows" or config.split_k > 1 or problem.grouping:
        return Edge()
    clusters_m, clusters_n = cluster_counts(problem, config)
    over = clusters_m * clusters_n % resident
    half_m, half_n = config.half_tile
    narrow = config.cluster_n == 1 and 0 < problem.n % tile.block_n <= half_n
    short = config.cluster_m == 1 and 0 < problem.m % tile.block_m <= half_m
    for exists, length, on_m in ((narrow, clusters_m, False), (short, clusters_n, True)):
        if exists and 0 < over <= length:
            return Edge(length - over, over, on_m)
    return Edge()
