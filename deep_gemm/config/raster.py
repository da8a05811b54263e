"""The order in which tiles are walked, chosen so that a wave of them finds its operands in L2."""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import GemmProblem
from .tile import GemmConfig


@dataclass(frozen=True)
class Raster:
    """Counts of clusters along the product's rows and columns, and the bands they are walked in.

    A band is `band` clusters wide along rows (band_on_m) or columns, and as long as the other axis.
    """

    clusters_m: int
    clusters_n: int
    band: int
    band_on_m: bool

    @property
    def clusters(self) -> int:
        """Clusters of tiles in the whole problem."""
        return self.clusters_m * self.clusters_n


def raster(problem: GemmProblem, config: GemmConfig, resident: int) -> Raster:
    """Return the walk for `resident` clusters at a time.

    Of both axes and all widths it takes the one that reads least of A and B: a band along one axis
    reads its share of that operand once and all of the other, and within a wave both share L2.
    """
    rows_m = config.tile.block_m * config.cluster_m
    rows_n = config.tile.block_n * config.cluster_n
    rows, columns = config.oriented(problem.m, problem.n)
    clusters_m, clusters_n = -(-rows // rows_m), -(-columns // rows_n)

    def rows_read(band_on_m: bool, band: int) -> tuple[int, int]:
        across, along = (clusters_m, clusters_n) if band_on_m else (clusters_n, clusters_m)
        row_across, row_along = (rows_m, rows_n) if band_on_m else (rows_n, rows_m)
        bands = -(-across // band)
        in_wave = min(band, across) * row_across + -(-resident // band) * row_along
        return in_wave, across * row_across + bands * along * row_along

    choices = [(on_m, band) for on_m in (True, False) for band in (1, 2, 4, 8, 16)]
    # What one wave reads decides the L2 traffic to device memory; the total breaks ties.
    band_on_m, band = min(choices, key=lambda choice: rows_read(*choice))
    return Raster(clusters_m, clusters_n, band, band_on_m)
