"""GemmProblem: what is to be computed, as one frozen object without any tensor in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ..dtypes import BF16, E4M3, INT32, DType
from ..layouts import ceil_div
from .choices import CMode, GroupKind, Mainloop, Major
from .epilogue import ADD_C, ALPHA, SCALE, EpilogueOp
from .grouping import Grouping
from .scale_recipe import BLOCK_128X128, ROW_1X128, ScaleRecipe
from .variant import GemmVariant


@dataclass(frozen=True)
class GemmProblem:
    """D[m, n] = alpha * sum over k of A[m, k] * B[n, k] + beta * C[m, n], with scales on A and B.

    m, n, k: extents.
    a_dtype, b_dtype, d_dtype: element types.
    scale_a, scale_b: which elements share a scale; None for no scales.
    promoted: FP8 sums are moved to FP32 every 128 of K; scales along K ask for it anyway.
    a_major, b_major: which dimension of an operand is contiguous.
    c_mode: REDUCE where C is D, of 4-byte elements, and beta is 1; READ for any other C.
    static_b: no kernel in flight writes B or its scales.
    grouping: None for one product. Else B is [groups, n, k], but [n, k] with groups along K; m is
        all rows of A, or, where A is stacked, those of each group; k is that of each group, or of
        all groups along K.
    epilogue: ops after alpha, scales and C.
    """

    m: int
    n: int
    k: int
    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    d_dtype: DType = BF16
    scale_a: ScaleRecipe | None = ROW_1X128
    scale_b: ScaleRecipe | None = BLOCK_128X128
    promoted: bool = True
    a_major: Major = Major.K
    b_major: Major = Major.K
    c_mode: CMode = CMode.NONE
    static_b: bool = False
    grouping: Grouping | None = None
    epilogue: tuple[EpilogueOp, ...] = ()

    @classmethod
    def block_scaled(cls, m: int, n: int, k: int, static_b: bool = False) -> GemmProblem:
        """Return e4m3 x e4m3 into bf16 with 1x128 scales on A and 128x128 scales on B."""
        return cls(m, n, k, static_b=static_b)

    @cached_property
    def variant(self) -> GemmVariant:
        """What of the problem its kernels depend on."""
        transposed = self.transposed
        return GemmVariant(
            self.a_dtype,
            self.b_dtype,
            self.d_dtype,
            self._mainloop(),
            Major.K if "a" in transposed else self.a_major,
            Major.K if "b" in transposed else self.b_major,
            self._epilogue(),
            self.c_mode is CMode.REDUCE,
            self.grouping.kind if self.grouping else GroupKind.NONE,
        )

    def _mainloop(self) -> Mainloop:
        if self.scale_a == ROW_1X128:
            blocks = self.scale_b == BLOCK_128X128
            return Mainloop.SCALED_1D2D if blocks else Mainloop.SCALED_1D1D
        return Mainloop.PROMOTED if self.a_dtype.is_fp8 and self.promoted else Mainloop.DIRECT

    def _epilogue(self) -> tuple[EpilogueOp, ...]:
        ops: list[EpilogueOp] = []
        scaled = self.scale_a is not None or self.scale_b is not None
        if scaled and not self._mainloop().scales_along_k:
            ops.append(SCALE)
        elif self.d_dtype != INT32:  # exact sums have no factor
            ops.append(ALPHA)
        if self.c_mode is CMode.READ:
            ops.append(ADD_C)
        return (*ops, *self.epilogue)

    @cached_property
    def transposed(self) -> tuple[str, ...]:
        """Names of the operands that are transposed on the device before the product.

        wgmma reads 16-bit operands in either order, 8-bit ones only K-major.
        """
        majors = (("a", self.a_dtype, self.a_major), ("b", self.b_dtype, self.b_major))
        return tuple(
            name for name, dtype, major in majors if dtype.bytes == 1 and major is Major.MN
        )

    @cached_property
    def expected(self) -> tuple[int, GemmProblem]:
        """How many groups are likely to have rows, and the product of one; else (1, self).

        Choices rest on it, no result does.
        """
        grouping = self.grouping
        if grouping is None:
            return 1, self
        count, rows = grouping.num_groups, self.m
        if grouping.kind is GroupKind.ALONG_K:
            return count, replace(self, k=ceil_div(self.k, count), grouping=None)
        if grouping.kind is GroupKind.LABELS:
            count = min(count, ceil_div(self.m, grouping.alignment))
            rows = ceil_div(self.m, count)
        elif grouping.kind is GroupKind.OFFSETS:
            rows = min(grouping.expected_m or ceil_div(self.m, count), self.m)
            count = min(count, ceil_div(self.m, rows))
        elif grouping.kind is GroupKind.MASKED:
            rows = min(grouping.expected_m or self.m, self.m)
        return count, replace(self, m=rows, grouping=None)

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply and an add being two; with groups as expected."""
        if self.grouping is not None:
            count, one = self.expected
            return count * one.flops
        return 2 * self.m * self.n * self.k

    @cached_property
    def bytes(self) -> int:
        """Least bytes through device memory: A, B, C, D, scales; with groups as expected."""
        if self.grouping is not None:
            count, one = self.expected
            return count * one.bytes
        operands = self.m * self.k * self.a_dtype.bytes + self.n * self.k * self.b_dtype.bytes
        scales = 4 * (_count(self.scale_a, self.m, self.k) + _count(self.scale_b, self.n, self.k))
        outputs = 1 if self.c_mode is CMode.NONE else 2
        return operands + scales + outputs * self.m * self.n * self.d_dtype.bytes

    def describe(self) -> str:
        """Return one line for people."""
        scales = [scale.name if scale else "no" for scale in (self.scale_a, self.scale_b)]
        text = (
            f"{self.m} x {self.n} x {self.k}, {self.a_dtype.name} x {self.b_dtype.name} -> "
            f"{self.d_dtype.name}, scales {scales[0]} and {scales[1]}"
        )
        if self.scale_a is None and self.scale_b is None:
            text = text.replace(", scales no and no", "")
        if Major.MN in (self.a_major, self.b_major):
            text += f", A {self.a_major}-major, B {self.b_major}-major"
        for name in self.transposed:
            text += f", {name.upper()} transposed on the device first"
        if self.variant.mainloop is Mainloop.DIRECT and self.a_dtype.is_fp8:
            text += ", not promoted"
        if self.grouping is not None:
            text += f", {self.grouping.num_groups} groups by {self.grouping.kind}"
        return text + ("" if self.c_mode is CMode.NONE else f", C by {self.c_mode}")


def _count(recipe: ScaleRecipe | None, mn: int, k: int) -> int:
    if recipe is None:
        return 0
    rows, columns = recipe.shape(mn, k)
    return rows * columns
