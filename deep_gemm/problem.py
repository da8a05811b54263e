"""GemmProblem: what is to be computed, as one frozen object without any tensor in it."""

from __future__ import annotations

from dataclasses import dataclass

from .dtypes import BF16, E4M3, DType
from .quant.recipe import BLOCK_128X128, ROW_1X128, ScaleRecipe


@dataclass(frozen=True)
class GemmProblem:
    """D[m, n] = sum over k of A[m, k] * B[n, k], with scales on A and B.

    m, n, k: extents.
    a_dtype, b_dtype, d_dtype: element types.
    scale_a, scale_b: which elements share a scale.
    static_b: no kernel still in flight writes B or its scales.
    """

    m: int
    n: int
    k: int
    a_dtype: DType = E4M3
    b_dtype: DType = E4M3
    d_dtype: DType = BF16
    scale_a: ScaleRecipe = ROW_1X128
    scale_b: ScaleRecipe = BLOCK_128X128
    static_b: bool = False

    @classmethod
    def block_scaled(cls, m: int, n: int, k: int, static_b: bool = False) -> GemmProblem:
        """Return e4m3 x e4m3 into bf16 with 1x128 scales on A and 128x128 scales on B."""
        return cls(m, n, k, static_b=static_b)

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply and an add counted as two."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes that must cross device memory once: A, B, D and their scales."""
        operands = self.m * self.k * self.a_dtype.bytes + self.n * self.k * self.b_dtype.bytes
        rows_a, blocks_a = self.scale_a.shape(self.m, self.k)
        rows_b, blocks_b = self.scale_b.shape(self.n, self.k)
        scales = 4 * (rows_a * blocks_a + rows_b * blocks_b)
        return operands + scales + self.m * self.n * self.d_dtype.bytes

    def describe(self) -> str:
        """Return one line for people."""
        return (
            f"{self.m} x {self.n} x {self.k}, {self.a_dtype.name} x {self.b_dtype.name} -> "
            f"{self.d_dtype.name}, scales {self.scale_a.name} and {self.scale_b.name}"
        )
