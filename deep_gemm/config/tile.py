"""GemmConfig: one way to run a GEMM kernel, as a frozen and printable object.

Nothing in it depends on M, N or K, so one compiled kernel serves every shape.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_K = 128
WAVE_M = 64  # rows of one wgmma
WARPGROUP_THREADS = 128
# Registers of a math thread left for sums, by the number of math warpgroups; the rest holds
# addresses, scales and loop state. Every candidate compiles without spills (NVRTC 13.0).
MAX_ACCUMULATORS = {1: 208, 2: 192, 3: 128}


@dataclass(frozen=True)
class TileConfig:
    """What one CTA computes: BLOCK_M x BLOCK_N outputs, by so many math warpgroups."""

    block_m: int
    block_n: int
    num_math_warpgroups: int

    @property
    def waves(self) -> int:
        """64-row slices of the tile that one warpgroup works through in turn."""
        return self.block_m // (WAVE_M * self.num_math_warpgroups)

    @property
    def threads(self) -> int:
        """Threads of a CTA: the math warpgroups and one producer warpgroup."""
        return (self.num_math_warpgroups + 1) * WARPGROUP_THREADS

    @property
    def partials(self) -> int:
        """Partial sums in turn: 2 where registers allow, so that promotion overlaps MMAs."""
        fits = 3 * self.block_n // 2 <= MAX_ACCUMULATORS[self.num_math_warpgroups]
        return 2 if self.waves == 1 and fits else 1

    @property
    def accumulators(self) -> int:
        """Registers a math thread holds for sums: every wave's total, and the partial sums."""
        return (self.waves + self.partials) * self.block_n // 2

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a producer and of a math thread after setmaxnreg; (0, 0) leaves them alone.

        Warpgroups together may not exceed what a CTA is launched with:
        2 x 224 + 56 = 3 x 168 and 3 x 152 + 56 = 4 x 128.
        """
        return {1: (0, 0), 2: (56, 224), 3: (56, 152)}[self.num_math_warpgroups]


@dataclass(frozen=True)
class StoreConfig:
    """How results leave: boxes of box_columns, slab_columns staged at a time, num_buffers slabs."""

    box_columns: int
    slab_columns: int
    num_buffers: int


@dataclass(frozen=True)
class GemmConfig:
    """A tile, its cluster, its pipeline depth and its store path.

    cluster_m: CTAs along M that share, by multicast, the rows of B.
    cluster_n: CTAs along N that share the rows of A.
    """

    tile: TileConfig
    cluster_m: int
    cluster_n: int
    num_stages: int
    store: StoreConfig

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def name(self) -> str:
        """Short name, unique among configurations, used in kernel names and tables."""
        t, s = self.tile, self.store
        return (
            f"{t.block_m}x{t.block_n}_w{t.num_math_warpgroups}_c{self.cluster_m}x{self.cluster_n}"
            f"_s{self.num_stages}_o{s.slab_columns}x{s.num_buffers}"
        )

    def describe(self) -> str:
        """Return one sentence for people."""
        t = self.tile
        shared = {(1, 1): "no multicast", (2, 1): "B multicast to 2", (1, 2): "A multicast to 2"}
        cluster = shared.get((self.cluster_m, self.cluster_n), f"{self.cluster_m}x{self.cluster_n}")
        return (
            f"tile {t.block_m} x {t.block_n} x {BLOCK_K}, {t.num_math_warpgroups} math warpgroups, "
            f"{cluster}, {self.num_stages} stages, output by {self.store.num_buffers} slabs of "
            f"64 x {self.store.slab_columns}"
        )
