"""GemmConfig: one way to run a GEMM kernel, as a frozen and printable object.

Nothing in it depends on M, N or K, unless they are asked to be compiled in; so one kernel serves
every shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..layouts import align, ceil_div
from ..problem.choices import GroupKind, Mainloop, Major
from ..problem.variant import FP8_1D2D, GemmVariant
from .tile import SLICE_M, StoreConfig, TileConfig

ROW_BYTES = 128  # of K in a row of a pipeline stage: a k-block
BOX_MN = 64  # elements of an MN-major operand in the rows of a TMA box
SCALE_N = 128  # columns of a 128x128 scale of B
MAX_LOAD_BOXES = 4  # of a tile of A whose loads are predicated


@dataclass(frozen=True)
class GemmConfig:
    """A tile, its cluster, its pipeline depth and its store path.

    cluster_m: CTAs along M of a cluster; they share the tile of B by multicast.
    cluster_n: CTAs along N; they share the tile of A.
    split_k: CTAs of a cluster that compute one tile together, a part of K each.
    ctas_per_sm: CTAs that an SM holds; 2 halves registers and shared memory, so that the kernel's
        successor in the stream can start before it ends.
    compiled: M, N and K that are compiled into the kernel, which then serves no other; 0 leaves an
        extent to run time. Never chosen: see "Compile options" in docs/findings.md.
    variant: what the kernel computes.
    """

    tile: TileConfig
    cluster_m: int
    cluster_n: int
    num_stages: int
    store: StoreConfig
    split_k: int = 1
    ctas_per_sm: int = 1
    compiled: tuple[int, int, int] = (0, 0, 0)
    variant: GemmVariant = FP8_1D2D

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        parts = self.tile, self.cluster_m, self.cluster_n, self.num_stages, self.store
        return hash((*parts, self.split_k, self.ctas_per_sm, self.compiled, self.variant))

    @cached_property
    def multicast(self) -> int:
        """CTAs that share a tile of A or of B."""
        return self.cluster_m * self.cluster_n

    @cached_property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.multicast * self.split_k

    # --- the tile along N -----------------------------------------------------------------------

    @cached_property
    def n_head(self) -> int:
        """Leading N of the tile.

        With 128x128 scales of B it is the largest power of two <= min(BLOCK_N, 128), so that one
        scale covers it; otherwise BLOCK_N.
        """
        block_n = self.tile.block_n
        if self.tile.swap_ab or self.variant.mainloop is not Mainloop.SCALED_1D2D:
            return block_n
        return min(SCALE_N, 1 << block_n.bit_length() - 1)

    @cached_property
    def n_tail(self) -> int:
        """The rest of BLOCK_N: columns that lie behind the heads of all tiles."""
        return self.tile.block_n - self.n_head

    # --- the split-K reduction and the store -----------------------------------------------------

    @cached_property
    def reduce_mma_n(self) -> int:
        """Columns of mma_n that one CTA reduces and stores: all, or its part where K is split.

        Parts are equal: where they do not divide the tile evenly, the last overlaps the one before.
        Only the last one reaches the N tail, with all of it.
        """
        mma_n, least = self.tile.mma_n, ceil_div(self.tile.mma_n // 8, self.split_k) * 8
        head = mma_n - self.n_tail
        parts = range(least, mma_n, 8)
        return next((s for s in parts if (ceil_div(mma_n, s) - 1) * s <= head), mma_n)

    @cached_property
    def store_tail_n(self) -> int:
        """Columns stored by a TMA box of their own: the N tail, or what whole boxes leave over."""
        return 0 if self.tile.swap_ab else self.n_tail or self.reduce_mma_n % self.store.box_n

    # --- residue tiles ---------------------------------------------------------------------------

    @cached_property
    def half_m(self) -> int:
        """1D1D: half of BLOCK_M, where a residue tile loads and multiplies only that; else 0."""
        is_1d1d = self.variant.mainloop is Mainloop.SCALED_1D1D
        return SLICE_M if is_1d1d and self.tile.num_math_warpgroups == 2 else 0

    @cached_property
    def half_n(self) -> int:
        """1D1D: half of BLOCK_N, where a residue tile loads and multiplies only that; else 0.

        It has MMAs of its own and is stored in whole boxes.
        """
        half, box = self.tile.block_n // 2, self.store.box_n
        if self.variant.mainloop is not Mainloop.SCALED_1D1D or not box:
            return 0
        return half if half % box == 0 and not self.store_tail_n and self.split_k == 1 else 0

    @cached_property
    def load_box_m(self) -> int:
        """Rows of A in a TMA box, where boxes without valid rows are not loaded; 0: one box.

        Not with two CTAs on an SM, which both wait for the copy engine: more boxes cost them more
        than fewer rows save (docs/findings.md).
        """
        box = align(ceil_div(self.tile.block_m, MAX_LOAD_BOXES), 8)
        share = self.tile.block_m // self.cluster_n
        has_gaps = self.variant.group_kind in (GroupKind.OFFSETS, GroupKind.MASKED)
        if not has_gaps or self.ctas_per_sm > 1 or share % box:
            return self.half_m
        return box

    @cached_property
    def load_box_n(self) -> int:
        """Rows of B in a TMA box, where boxes beyond N are not loaded; 0: one box."""
        return self.half_n

    # --- operands --------------------------------------------------------------------------------

    @cached_property
    def stage_rows(self) -> tuple[int, int]:
        """Rows of 128 bytes that a stage holds of A and of B, in whole boxes if MN-major."""
        return (
            _whole_boxes(self.tile.block_m, self.variant.a_major),
            _whole_boxes(self.tile.block_n, self.variant.b_major),
        )

    # --- text ------------------------------------------------------------------------------------

    @cached_property
    def name(self) -> str:
        """Short name, unique among candidates, used in kernel names and tables."""
        t, s = self.tile, self.store
        name = (
            f"{t.block_m}x{t.block_n}_w{t.num_math_warpgroups}_c{self.cluster_m}x{self.cluster_n}"
            f"_s{self.num_stages}_o{s.stage_mma_n}x{s.num_stages}"
        )
        name += f"_k{self.split_k}" if self.split_k > 1 else ""
        name += "_swap" if t.swap_ab else ""
        name += f"_r{self.ctas_per_sm}" if self.ctas_per_sm > 1 else ""
        name += "_p" if t.ping_pong else ""
        name += "" if self.variant == FP8_1D2D else f"_{self.variant.name}"
        return name + "".join(f"_{x}{v}" for x, v in zip("mnk", self.compiled, strict=True) if v)

    def describe(self) -> str:
        """Return one sentence for people."""
        t = self.tile
        multicast = {
            (1, 1): "no multicast",
            (2, 1): "B multicast to 2",
            (1, 2): "A multicast to 2",
        }
        cluster = f"{self.cluster_m}x{self.cluster_n}"
        parts = [
            f"tile {t.block_m} x {t.block_n} x {self.variant.block_k}" + ", swap-AB" * t.swap_ab,
            f"{t.num_math_warpgroups} math warpgroups" + ", ping-pong" * t.ping_pong,
            f"split-K by {self.split_k}" if self.split_k > 1 else "",
            multicast.get((self.cluster_m, self.cluster_n), cluster),
            f"{self.num_stages} stages",
            f"{self.store.num_stages} store stages of 64 x {self.store.stage_mma_n}",
            f"{self.ctas_per_sm} CTAs an SM" if self.ctas_per_sm > 1 else "",
        ]
        return ", ".join(filter(None, parts))


def _whole_boxes(extent: int, major: Major) -> int:
    return align(extent, BOX_MN) if major is Major.MN else extent
