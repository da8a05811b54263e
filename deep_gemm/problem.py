"""GemmProblem: what is to be computed, as one frozen object without any tensor in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from .dtypes import BF16, E4M3, DType
from .quant.recipe import BLOCK_128X128, ROW_1X128, ScaleRecipe


@dataclass(frozen=True)
class Form:
    """What a kernel computes, whatever the extents and whatever its tile.

    a, b, d: element types of the operands and the output.
    promotion: what becomes of the tensor core's sums over 128 bytes of K: they are added up in FP32
        "block": times a scale of the row of A and one of 128 x 128 of B;
        "rows": times a scale of the row of A and one of the row of B;
        "unit": as they are; or
        "none": they stay in the tensor core over all of K.
    scaled: the sum over K is multiplied by a scale of its row and one of its column.
    a_major, b_major: "k" where elements along K are neighbours, "mn" where rows are.
    addend: "none"; "read" adds beta * C; "reduce" adds to what D holds.
    grouping: "none", or the kind of Grouping by which tiles find their group.
    """

    a: DType = E4M3
    b: DType = E4M3
    d: DType = BF16
    promotion: str = "block"
    scaled: bool = False
    a_major: str = "k"
    b_major: str = "k"
    addend: str = "none"
    grouping: str = "none"

    @property
    def block_k(self) -> int:
        """Elements of A in the 128 bytes of K that a pipeline stage holds."""
        return 128 // self.a.bytes

    @property
    def integer(self) -> bool:
        """Say whether products are summed as INT32."""
        return not self.a.torch.is_floating_point

    @property
    def name(self) -> str:
        """Short name, unique among forms; part of kernel names."""
        parts = [self.a.name, self.b.name, self.d.name, self.promotion]
        parts += ["scaled"] if self.scaled else []
        parts += [f"{self.a_major}_{self.b_major}"] if "mn" in (self.a_major, self.b_major) else []
        parts += [self.addend] if self.addend != "none" else []
        parts += [self.grouping] if self.grouping != "none" else []
        return "_".join(parts)


BLOCK_SCALED = Form()

GROUPINGS = ("none", "labels", "offsets", "masked", "batched", "k")


@dataclass(frozen=True)
class Grouping:
    """How the rows of A, or K, belong to the groups, each with a B, or a D, of its own.

    kind: what a device tensor of int32 says, or that there is none:
        "labels" [M]: the group of each row of A [M, K], -1 for none. Groups have whole blocks of
            `alignment` rows, and the first row of a block speaks for it.
        "offsets" [groups]: the row of A [M, K] after each group's last; a group begins where the
            one before ends, rounded up to `alignment`.
        "masked" [groups]: how many rows of each A [m, K] of A [groups, m, K] are valid.
        "batched": all are.
        "k" [groups]: the extent of each group along K; D is [groups, M, N].
    groups: how many there are.
    alignment: in rows; see `kind`.
    rows_hint: rows to expect of a group that has any; 0 says nothing. No result depends on it.
    zero_padding: of "offsets": rows of D between groups become zeros, else they stay as they are.
    """

    kind: str
    groups: int
    alignment: int = 1
    rows_hint: int = 0
    zero_padding: bool = False

    @property
    def stacked(self) -> bool:
        """Say whether A has a matrix for each group."""
        return self.kind in ("masked", "batched")


@dataclass(frozen=True)
class GemmProblem:
    """D[m, n] = alpha * sum over k of A[m, k] * B[n, k] + beta * C[m, n], with scales on A and B.

    m, n, k: extents.
    a_dtype, b_dtype, d_dtype: element types.
    scale_a, scale_b: which elements share a scale; None for no scales.
    promoted: FP8 sums are moved to FP32 every 128 of K; scales along K ask for it anyway.
    a_major, b_major: "k" where elements along K are neighbours in memory, "mn" where rows are.
    addend: "none"; "read" for any C; "reduce" where C is D, of 4-byte elements, and beta is 1.
    static_b: no kernel still in flight writes B or its scales.
    grouping: None for one product. Else B is [groups, n, k], but for kind "k"; m is all rows of A,
        or, where A is stacked, those of each group; k is that of each group, or with kind "k" all.
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
    a_major: str = "k"
    b_major: str = "k"
    addend: str = "none"
    static_b: bool = False
    grouping: Grouping | None = None

    @classmethod
    def block_scaled(cls, m: int, n: int, k: int, static_b: bool = False) -> GemmProblem:
        """Return e4m3 x e4m3 into bf16 with 1x128 scales on A and 128x128 scales on B."""
        return cls(m, n, k, static_b=static_b)

    @cached_property
    def form(self) -> Form:
        """What of the problem its kernels depend on."""
        promotion = self._promotion()
        along_k = promotion in ("block", "rows")
        transposed = self.transposed
        return Form(
            self.a_dtype,
            self.b_dtype,
            self.d_dtype,
            promotion,
            not along_k and (self.scale_a is not None or self.scale_b is not None),
            "k" if "a" in transposed else self.a_major,
            "k" if "b" in transposed else self.b_major,
            self.addend,
            self.grouping.kind if self.grouping else "none",
        )

    def _promotion(self) -> str:
        if self.scale_a == ROW_1X128:
            return "block" if self.scale_b == BLOCK_128X128 else "rows"
        return "unit" if self.a_dtype.is_fp8 and self.promoted else "none"

    @property
    def transposed(self) -> tuple[str, ...]:
        """Names of the operands that are transposed on the device before the product.

        wgmma reads 16-bit operands in either order, 8-bit ones only with K innermost.
        """
        majors = (("a", self.a_dtype, self.a_major), ("b", self.b_dtype, self.b_major))
        return tuple(name for name, dtype, major in majors if dtype.bytes == 1 and major == "mn")

    @cached_property
    def expected(self) -> tuple[int, GemmProblem]:
        """How many groups are likely to have rows, and the product of one; (1, self) of no groups.

        Choices rest on it, no result does.
        """
        of = self.grouping
        if of is None:
            return 1, self
        if of.kind == "k":
            return of.groups, replace(self, k=-(-self.k // of.groups), grouping=None)
        count, rows = of.groups, self.m
        if of.kind == "labels":
            count = min(count, -(-self.m // of.alignment))
            rows = -(-self.m // count)
        elif of.kind == "offsets":
            rows = min(of.rows_hint or -(-self.m // count), self.m)
            count = min(count, -(-self.m // rows))
        elif of.kind == "masked":
            rows = min(of.rows_hint or self.m, self.m)
        return count, replace(self, m=rows, grouping=None)

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply and an add being two; of groups as expected."""
        if self.grouping is not None:
            count, one = self.expected
            return count * one.flops
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes that cross device memory at least: A, B, C, D, scales; of groups as expected."""
        if self.grouping is not None:
            count, one = self.expected
            return count * one.bytes
        operands = self.m * self.k * self.a_dtype.bytes + self.n * self.k * self.b_dtype.bytes
        scales = 4 * (_count(self.scale_a, self.m, self.k) + _count(self.scale_b, self.n, self.k))
        outputs = 1 if self.addend == "none" else 2
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
        if "mn" in (self.a_major, self.b_major):
            text += f", A {self.a_major}-major, B {self.b_major}-major"
        for name in self.transposed:
            text += f", {name.upper()} transposed on the device first"
        if self.form.promotion == "none" and self.a_dtype.is_fp8:
            text += ", not promoted"
        if self.grouping is not None:
            text += f", {self.grouping.groups} groups by {self.grouping.kind}"
        return text + ("" if self.addend == "none" else f", C by {self.addend}")


def _count(recipe: ScaleRecipe | None, mn: int, k: int) -> int:
    if recipe is None:
        return 0
    rows, columns = recipe.shape(mn, k)
    return rows * columns
