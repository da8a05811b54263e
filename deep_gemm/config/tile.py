"""TileConfig and StoreConfig: the shapes that a CTA computes and stores.

Axes as in cuda/gemm/traits.cuh: m, n, k are those of the problem, mma_m and mma_n those of wgmma.
They agree, except with swap_ab.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

SLICE_M = 64  # mma_m of one wgmma
WARPGROUP_THREADS = 128


@dataclass(frozen=True)
class TileConfig:
    """BLOCK_M x BLOCK_N elements of D, by so many math warpgroups.

    ping_pong: each math warpgroup has a tile of its own, and one's MMAs run under another's
        epilogue; else they share the tile.
    swap_ab: B lies along mma_m and A along mma_n, so that few rows of A waste no part of wgmma's
        64 rows.
    """

    block_m: int
    block_n: int
    num_math_warpgroups: int
    ping_pong: bool = False
    swap_ab: bool = False

    @cached_property
    def mma_m(self) -> int:
        """The tile along mma_m, which is dealt to wgmma by 64."""
        return self.block_n if self.swap_ab else self.block_m

    @cached_property
    def mma_n(self) -> int:
        """The tile along mma_n, the n of wgmma."""
        return self.block_m if self.swap_ab else self.block_n

    @cached_property
    def tiles_in_flight(self) -> int:
        """Tiles that a CTA computes at a time."""
        return self.num_math_warpgroups if self.ping_pong else 1

    @cached_property
    def warpgroups_per_tile(self) -> int:
        """Math warpgroups that share a tile."""
        return self.num_math_warpgroups // self.tiles_in_flight

    @cached_property
    def m_slices(self) -> int:
        """64-row slices of the tile that one warpgroup computes."""
        return self.mma_m // (SLICE_M * self.warpgroups_per_tile)

    @cached_property
    def threads(self) -> int:
        """Threads of a CTA: the math warpgroups and one producer warpgroup."""
        return (self.num_math_warpgroups + 1) * WARPGROUP_THREADS


@dataclass(frozen=True)
class StoreConfig:
    """How results leave, a store stage of 64 rows of mma_m at a time.

    box_n: columns of D in one TMA box.
    stage_mma_n: columns of mma_n in a store stage.
    num_stages: store stages of a math warpgroup.
    """

    box_n: int
    stage_mma_n: int
    num_stages: int
