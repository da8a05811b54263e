"""GemmConfig: one way to run a GEMM kernel, as a frozen and printable object.

Nothing in it depends on M, N or K, unless they are asked to be compiled in; so one kernel serves
every shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import BLOCK_SCALED, Form

ROW_BYTES = 128  # of K that a pipeline stage holds of each row of A and B: a k-block
WAVE_M = 64  # rows of one wgmma
BOX_MN = 64  # elements of an operand whose rows, not K, are contiguous in one TMA box
SCALE_N = 128  # weights that share a scale
WARPGROUP_THREADS = 128
SWIZZLED_BYTES = (32, 64, 128)  # rows of an output box that TMA swizzles
# Registers of a math thread left for sums, by math warpgroups and CTAs an SM holds; the rest holds
# addresses, scales and loop state. Every candidate compiles without spills (NVRTC 13.0).
MAX_ACCUMULATORS = {(1, 1): 216, (2, 1): 216, (3, 1): 144, (1, 2): 96, (2, 2): 48}
# Registers of a producer and of a math thread after setmaxnreg; (0, 0) leaves them alone. Together
# warpgroups may not exceed what a CTA is launched with: 2 x 232 + 40 = 3 x 168, 3 x 160 + 32 =
# 4 x 128, 2 x 88 + 56 < 3 x 80.
REGISTERS = {(1, 1): (0, 0), (2, 1): (40, 232), (3, 1): (32, 160), (1, 2): (0, 0), (2, 2): (56, 88)}
# The same where the producer carries scales of both operands: 2 x 224 + 56 = 3 x 168.
ROWS_REGISTERS = {(2, 1): (56, 224)}
ROWS_MAX_ACCUMULATORS = {(1, 1): 204, (2, 1): 204}
READ_REGISTERS, TURN_REGISTERS = 20, 8  # for where C is read, and for whose turn it is
# For which group it is; and for rows that are stored one by one, of these groups.
GROUP_REGISTERS, RAGGED_REGISTERS = 8, 16
RAGGED = ("labels", "offsets", "masked")
TOKEN_BOXES = 4  # at most, of which those with tokens of a group are loaded


@dataclass(frozen=True)
class TileConfig:
    """What one CTA computes: BLOCK_M x BLOCK_N outputs, by so many math warpgroups.

    BLOCK_M rows are dealt to wgmma by 64, BLOCK_N columns are its n.

    ping_pong: the warpgroups do not share a tile, but work on tiles of their own and take turns at
        the tensor core, so that one's MMAs run while another's results leave.
    """

    block_m: int
    block_n: int
    num_math_warpgroups: int
    ping_pong: bool = False

    @property
    def at_once(self) -> int:
        """Tiles that a CTA works on at once."""
        return self.num_math_warpgroups if self.ping_pong else 1

    @property
    def sharing(self) -> int:
        """Math warpgroups that work on one tile."""
        return self.num_math_warpgroups // self.at_once

    @property
    def waves(self) -> int:
        """64-row slices of the tile that one warpgroup works through in turn."""
        return self.block_m // (WAVE_M * self.sharing)

    @property
    def threads(self) -> int:
        """Threads of a CTA: the math warpgroups and one producer warpgroup."""
        return (self.num_math_warpgroups + 1) * WARPGROUP_THREADS


@dataclass(frozen=True)
class StoreConfig:
    """How results leave: slab_columns staged at a time, in num_buffers slabs.

    A slab is boxes of box_columns; a tile's extra columns are one more box after them.
    """

    box_columns: int
    slab_columns: int
    num_buffers: int


@dataclass(frozen=True)
class GemmConfig:
    """A tile, its cluster, its pipeline depth and its store path.

    cluster_m: CTAs along the tile's rows that share, by multicast, its columns.
    cluster_n: CTAs along its columns that share the rows.
    split_k: CTAs of a cluster that compute one tile together, a part of K each.
    swapped: rows of the tile are rows of B and its columns rows of A, so that few tokens do not
        leave most of wgmma's 64 rows empty; plain, rows are of A and columns of B.
    ctas_per_sm: CTAs that an SM is to hold; 2 caps registers and shared memory at half, so that
        the kernel's successor in the stream can start before it ends.
    compiled: M, N and K that are compiled into the kernel, which then serves no other; 0 leaves an
        extent to run time. Never chosen: see "Compile options" in docs/findings.md.
    form: what the kernel computes: element types, scales, orders in memory.
    """

    tile: TileConfig
    cluster_m: int
    cluster_n: int
    num_stages: int
    store: StoreConfig
    split_k: int = 1
    swapped: bool = False
    ctas_per_sm: int = 1
    compiled: tuple[int, int, int] = (0, 0, 0)
    form: Form = BLOCK_SCALED

    @property
    def multicast(self) -> int:
        """CTAs that share rows or columns of an operand."""
        return self.cluster_m * self.cluster_n

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.multicast * self.split_k

    @property
    def tokens(self) -> int:
        """Rows of A in a tile."""
        return self.tile.block_n if self.swapped else self.tile.block_m

    @property
    def main_n(self) -> int:
        """Contiguous columns of a tile: all, but of weights with a scale for each 128 x 128 a power
        of two up to 128, which then share it."""
        block_n = self.tile.block_n
        if self.swapped or self.form.promotion != "block":
            return block_n
        return min(SCALE_N, 1 << block_n.bit_length() - 1)

    @property
    def extra_n(self) -> int:
        """Its other columns, which share another: they lie beyond all tiles' first main_n."""
        return self.tile.block_n - self.main_n

    @property
    def piece_n(self) -> int:
        """Columns of a tile that one CTA stores: all, or its share where K is split.

        Shares are equal: where they do not come out even, the last overlaps the one before. Only
        the last one reaches the extra columns, with all of them.
        """
        block_n, least = self.tile.block_n, -(-self.tile.block_n // 8 // self.split_k) * 8
        shares = range(least, block_n, 8)
        return next((s for s in shares if (-(-block_n // s) - 1) * s <= self.main_n), block_n)

    @property
    def rest_n(self) -> int:
        """Columns of a piece that are stored by a box of their own: the tile's extra ones, or what
        whole boxes leave over."""
        return 0 if self.swapped else self.extra_n or self.piece_n % self.store.box_columns

    @property
    def half_tile(self) -> tuple[int, int]:
        """Rows and columns, half of a tile's, that alone are loaded and multiplied where it has no
        others; 0: all.

        Tiles with scales of rows and columns are costly, and few: there the half that does not
        exist counts. Half the rows are one warpgroup's; half the columns have code of their own,
        and are whole boxes of output.
        """
        if self.form.promotion != "rows":
            return 0, 0
        half, box = self.tile.block_n // 2, self.store.box_columns
        whole = box and half % box == 0 and not self.rest_n and self.split_k == 1
        return WAVE_M * (self.tile.num_math_warpgroups == 2), half * bool(whole)

    @property
    def some_boxes(self) -> tuple[int, int]:
        """Rows and columns of a TMA box where a tile's come in several, and those are left out of
        which none exist; 0: one box for each CTA that shares them.

        Not with two CTAs on an SM, which both wait for the copy engine: more boxes cost them more
        than fewer rows save (docs/findings.md).
        """
        rows, columns = self.half_tile
        some = -(-self.tokens // TOKEN_BOXES // 8) * 8
        share = self.tokens // (self.cluster_m if self.swapped else self.cluster_n)
        whole = self.form.grouping not in ("offsets", "masked") or self.ctas_per_sm > 1
        if whole or share % some:
            return rows, columns
        return (0, some) if self.swapped else (some, columns)

    @property
    def partials(self) -> int:
        """Partial sums in turn: 2 where registers allow, so that promotion overlaps MMAs; 0 where
        sums stay in the tensor core."""
        if self.form.promotion in ("none", "rows"):
            return int(self.form.promotion == "rows")
        return 2 if self.tile.waves == 1 and self._sums(2) <= self.max_accumulators else 1

    @property
    def accumulators(self) -> int:
        """Registers a math thread holds for sums: every wave's total, the partial sums, and column
        scales."""
        return self._sums(self.partials)

    @property
    def max_accumulators(self) -> int:
        """Registers there are for sums; 0 where no such kernel is built."""
        key = self.tile.num_math_warpgroups, self.ctas_per_sm
        if self.form.promotion == "rows":
            return ROWS_MAX_ACCUMULATORS.get(key, 0)
        reads = self.form.addend == "read" and self.ctas_per_sm == 1
        others = READ_REGISTERS * reads + TURN_REGISTERS * self.tile.ping_pong
        if self.form.grouping != "none":
            others += RAGGED_REGISTERS if self.form.grouping in RAGGED else GROUP_REGISTERS
        return max(0, MAX_ACCUMULATORS.get(key, 0) - others)

    @property
    def reads_ahead(self) -> bool:
        """Whether registers allow to read C for the next output slab while one is being stored.

        Beside the tile's sums there are then those of a slab, and C for it and for the next one.
        """
        sums = self.tile.waves * self.tile.block_n // 2 + 3 * self.store.slab_columns // 2
        return self.form.addend == "read" and sums <= self.max_accumulators - READ_REGISTERS

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a producer and a math thread after setmaxnreg; (0, 0) leaves them alone."""
        key = self.tile.num_math_warpgroups, self.ctas_per_sm
        of_rows = ROWS_REGISTERS if self.form.promotion == "rows" else {}
        return of_rows.get(key, REGISTERS[key])

    def _sums(self, partials: int) -> int:
        promotion, columns = self.form.promotion, self.tile.block_n
        scales = 0  # of elements or columns
        if promotion == "rows":
            scales = columns // 2
        elif promotion == "block" and self.swapped:
            scales = partials * columns // 4
        return (self.tile.waves + partials) * columns // 2 + scales

    def oriented(self, m: int, n: int) -> tuple[int, int]:
        """Return the rows and columns of the tensor core's product for a problem's M and N."""
        return (n, m) if self.swapped else (m, n)

    @property
    def majors(self) -> tuple[str, str]:
        """Orders in memory, "k" or "mn", of the operands that are the tile's rows and columns."""
        a, b = self.form.a_major, self.form.b_major
        return (b, a) if self.swapped else (a, b)

    @property
    def stage_rows(self) -> int:
        """Rows of 128 bytes that a stage has room for: of both operands, in whole boxes."""
        extents = (self.tile.block_m, self.tile.block_n)
        return sum(
            -(-extent // BOX_MN) * BOX_MN if major == "mn" else extent
            for extent, major in zip(extents, self.majors, strict=True)
        )

    @property
    def name(self) -> str:
        """Short name, unique among candidates, used in kernel names and tables."""
        t, s = self.tile, self.store
        name = (
            f"{t.block_m}x{t.block_n}_w{t.num_math_warpgroups}_c{self.cluster_m}x{self.cluster_n}"
            f"_s{self.num_stages}_o{s.slab_columns}x{s.num_buffers}"
        )
        name += f"_k{self.split_k}" if self.split_k > 1 else ""
        name += "_t" if self.swapped else ""
        name += f"_r{self.ctas_per_sm}" if self.ctas_per_sm > 1 else ""
        name += "_p" if t.ping_pong else ""
        name += "" if self.form == BLOCK_SCALED else f"_{self.form.name}"
        return name + "".join(f"_{x}{v}" for x, v in zip("mnk", self.compiled, strict=True) if v)

    def describe(self) -> str:
        """Return one sentence for people."""
        t = self.tile
        rows, columns = ("B", "A") if self.swapped else ("A", "B")
        shared = {
            (1, 1): "no multicast",
            (2, 1): f"{columns} multicast to 2",
            (1, 2): f"{rows} multicast to 2",
        }
        cluster = shared.get((self.cluster_m, self.cluster_n), f"{self.cluster_m}x{self.cluster_n}")
        parts = [
            f"tile {t.block_m} rows of {rows} x {t.block_n} of {columns} x {self.form.block_k}",
            f"{t.num_math_warpgroups} math warpgroups" + ", a tile each by turns" * t.ping_pong,
            f"K split over {self.split_k}" if self.split_k > 1 else "",
            cluster,
            f"{self.num_stages} stages",
            f"output by {self.store.num_buffers} slabs of 64 x {self.store.slab_columns}",
            f"{self.ctas_per_sm} CTAs an SM" if self.ctas_per_sm > 1 else "",
        ]
        return ", ".join(filter(None, parts))
