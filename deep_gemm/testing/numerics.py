"""Judge a result: NaN and infinity positions first, then every element against its own bound.

The bound is derived from the formats, K and the operands, not chosen to make tests pass. For one
output element let P_b be the exact dot product over k-block b of 128, Q_b the root of the sum of
the squared products in it, s_b = sfa * sfb, and T_b the running sum of s_b * P_b. Allowed is

    sum over b of |s_b| * 2**-13 * (20 * Q_b + 14 * |P_b|)      tensor core
    + sum over b of 2**-24 * (3 * |s_b * P_b| + |T_b|)          float32 scaling, accumulation
    + half a unit in the last place of the output, at |T| plus the two sums above

Tensor core: Hopper aligns the 32 products of one FP8 instruction, and the running sum, to the
largest of them and drops what lies more than 13 bits below it, so each of the at most 136
truncations in a block costs less than 2**-13 of the largest magnitude present. Truncation is
towards zero, so for data of both signs the errors add up as a random walk over the products (at
most a few times Q_b), and for data of one sign they pull the running sum down (at most about 12
of 2**-13 of P_b). The factors were taken from a bit-level model of that rule over normal,
uniform, log-normal, one-signed and outlier-channel data, and leave a margin there: with 16 and 12
one of 20000 one-signed blocks came to 1.0013 of the bound.
Data built to keep 31 of 32 products just below the last kept bit can exceed them.

Integer data of small magnitude has no tensor-core error at all: see problems.small_integers and
`exact_products`, which make the bound as tight as float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..errors import ArgumentError

BLOCK = 128
TENSOR_CORE_ULP = 2.0**-13
WALK_FACTOR = 20.0
PULL_FACTOR = 14.0
_FP32_HALF_ULP = 2.0**-24
_FP32_TINY = 2.0**-149
# Half a unit in the last place, relative to the power of two below the value; and among subnormals.
_OUTPUT_HALF_ULP = {torch.bfloat16: (2.0**-8, 2.0**-134), torch.float32: (2.0**-24, 2.0**-150)}


@dataclass(frozen=True)
class Report:
    """Outcome of `compare`; true in a condition when the result is right.

    nan_mismatches, inf_mismatches: elements where only one side is NaN / where the infinities
        differ. over_bound: finite elements off by more than allowed.
    rows, columns: first and last row and column that hold a wrong element.
    worst: coordinate of the worst element (a NaN mismatch, else an infinity, else the largest
        error over its bound), with `actual`, `expected` and the `allowed` error there.
    max_ratio: largest error over bound among finite elements; at most 1 when right.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    max_ratio: float
    nan_mismatches: int = 0
    inf_mismatches: int = 0
    over_bound: int = 0
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    worst: tuple[int, int] | None = None
    actual: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no element is wrong."""
        return not (self.nan_mismatches or self.inf_mismatches or self.over_bound)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        head = f"{list(self.shape)} {self.dtype}: max error / bound {self.max_ratio:.3g}"
        if self.ok or self.rows is None or self.columns is None:
            return f"right, {head}"
        return (
            f"WRONG, {head}\n"
            f"  {self.nan_mismatches} NaN and {self.inf_mismatches} infinity mismatches, "
            f"{self.over_bound} elements over their bound\n"
            f"  in rows {self.rows[0]}..{self.rows[1]}, "
            f"columns {self.columns[0]}..{self.columns[1]}\n"
            f"  worst at {self.worst}: got {self.actual:.8g}, wanted {self.expected:.8g} "
            f"+- {self.allowed:.3g}"
        )


def compare(actual: torch.Tensor, reference64: torch.Tensor, bound: torch.Tensor) -> Report:
    """Compare a result [m, n] with its float64 reference, element by element.

    NaN must stand exactly where the reference has NaN, and infinities where the reference is
    infinite or beyond the range of actual's dtype; all else within `bound`. A NaN in the bound
    of a finite element counts as wrong.

    Costs one synchronization when the result is right, a few more when it is not.
    """
    for name, tensor in (("reference64", reference64), ("bound", bound)):
        if tensor.shape != actual.shape or actual.dim() != 2:
            raise ArgumentError(
                name, "shape", f"[m, n] as actual {list(actual.shape)}", tensor.shape
            )
    shape, dtype = tuple(actual.shape), actual.dtype
    if actual.numel() == 0:
        return Report(shape, dtype, 0.0)
    ratio = _ratio(actual.to(torch.float64), reference64, bound)
    max_ratio = float(ratio.max())
    if max_ratio <= 1.0:
        return Report(shape, dtype, max_ratio)
    return _diagnose(actual, reference64, bound, ratio)


def block_scaled_bound(
    a: torch.Tensor,
    sfa: torch.Tensor,
    b: torch.Tensor,
    sfb: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    exact_products: bool = False,
) -> torch.Tensor:
    """Return the allowed |error| of each element, float64 [m, n]; the module text derives it.

    exact_products: leave out the tensor-core term, for operands whose partial sums fit into 13
        bits (problems.small_integers).
    """
    return reference_and_bound(a, sfa, b, sfb, out_dtype, exact_products=exact_products)[1]


def reference_and_bound(
    a: torch.Tensor,
    sfa: torch.Tensor,
    b: torch.Tensor,
    sfb: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    exact_products: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float64 result and its bound, as block_scaled_bound, in one pass over K.

    Scales that are NaN or infinite act on the block's dot product, as in the kernel. Costs two
    float64 products of m * n * k (one with exact_products) and six float64 [m, n] tensors.
    """
    if out_dtype not in _OUTPUT_HALF_ULP:
        raise ArgumentError("out_dtype", "value", "bfloat16 or float32", out_dtype)
    total = torch.zeros((a.shape[0], b.shape[0]), dtype=torch.float64, device=a.device)
    bound = torch.full_like(total, _FP32_TINY)
    for a_block, b_block, scale in _k_blocks(a, sfa, b, sfb):
        term = a_block @ b_block.T
        if not exact_products:
            walk = (a_block.square() @ b_block.square().T).sqrt_().mul_(WALK_FACTOR)
            walk.add_(term.abs(), alpha=PULL_FACTOR)
            bound.addcmul_(walk, scale.abs(), value=TENSOR_CORE_ULP)
        term.mul_(scale)
        total.add_(term)
        bound.add_(term.abs_(), alpha=3 * _FP32_HALF_ULP).add_(total.abs(), alpha=_FP32_HALF_ULP)
        bound.add_(_FP32_TINY)
    relative, tiny = _OUTPUT_HALF_ULP[out_dtype]
    bound.add_(_power_of_two_below(total.abs().add_(bound)).mul_(relative).clamp_min_(tiny))
    return total, bound


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return 1 - 2 * sum(x * y) / sum(x * x + y * y), in float64; 0 when both are all zero.

    A single figure for progress lines. It hides single wrong elements: judge with `compare`.
    """
    x, y = x.to(torch.float64), y.to(torch.float64)
    denominator = float((x * x + y * y).sum())
    if denominator == 0:
        return 0.0
    return 1.0 - 2.0 * float((x * y).sum()) / denominator


def assert_bitwise_equal(x: torch.Tensor, y: torch.Tensor, what: str = "tensors") -> None:
    """Raise AssertionError unless x and y hold the same bits; NaN equals NaN of the same bits."""
    if x.shape != y.shape or x.dtype != y.dtype:
        got = f"{list(x.shape)} {x.dtype} and {list(y.shape)} {y.dtype}"
        raise AssertionError(f"{what}: shapes and dtypes must agree, got {got}")
    different = bits(x) != bits(y)
    count = int(different.sum())
    if count:
        where = tuple(int(i) for i in different.nonzero()[0])
        values = f"{float(x[where])!r} and {float(y[where])!r}"
        raise AssertionError(f"{what}: {count} of {x.numel()} differ, first at {where}: {values}")


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the elements of x as integers of the same size."""
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.contiguous().view(sizes[x.element_size()])


def _k_blocks(
    a: torch.Tensor, sfa: torch.Tensor, b: torch.Tensor, sfb: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield for each k-block A and B in float64, and the scale [m, n] of their product."""
    n, k = b.shape
    sfb_rows = sfb[torch.arange(n, device=sfb.device) // BLOCK].to(torch.float64)
    for kb, k0 in enumerate(range(0, k, BLOCK)):
        columns = slice(k0, min(k0 + BLOCK, k))
        scale = sfa[:, kb, None].to(torch.float64) * sfb_rows[None, :, kb]
        yield a[:, columns].to(torch.float64), b[:, columns].to(torch.float64), scale


def _power_of_two_below(x: torch.Tensor) -> torch.Tensor:
    """Return the largest power of two at most x, for float64 x >= 0; infinity where x is NaN."""
    return (x.view(torch.int64) & 0x7FF0000000000000).view(torch.float64)


def _ratio(actual: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Return |actual - reference| / bound in float64; NaN where either is not finite."""
    return (actual - reference).abs_().div_(bound.clamp_min(torch.finfo(torch.float64).tiny))


def _diagnose(
    actual: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor, ratio: torch.Tensor
) -> Report:
    """Sort the elements that failed the quick test; some NaN and infinities may be right."""
    wanted = reference.to(actual.dtype)
    nan_bad = actual.isnan() != reference.isnan()
    low = (reference.abs() - bound).to(actual.dtype).isinf()
    high = (reference.abs() + bound).to(actual.dtype).isinf()
    at_the_edge = (
        reference.isfinite() & high & ~low
    )  # both the largest value and infinity are right
    infinite = (actual.isinf() | wanted.isinf()) & ~nan_bad
    same_sign = (actual > 0) == (reference > 0)
    inf_bad = infinite & (actual != wanted) & ~(at_the_edge & same_sign)
    finite = actual.isfinite() & wanted.isfinite()
    over = finite & ~(ratio <= 1.0)
    ratio = torch.where(finite, ratio.nan_to_num(torch.inf), 0.0)
    max_ratio = float(ratio.max())
    bad = nan_bad | inf_bad | over
    if not bad.any():
        return Report(tuple(actual.shape), actual.dtype, max_ratio)
    badness = torch.where(nan_bad, 3.0, torch.where(inf_bad, 2.0, 0.0)).to(torch.float64)
    badness += over * (ratio / (1.0 + ratio)).nan_to_num(1.0)
    row, column = divmod(int(badness.argmax()), actual.shape[1])
    return Report(
        tuple(actual.shape),
        actual.dtype,
        max_ratio,
        nan_mismatches=int(nan_bad.sum()),
        inf_mismatches=int(inf_bad.sum()),
        over_bound=int(over.sum()),
        rows=_extent(bad.any(dim=1)),
        columns=_extent(bad.any(dim=0)),
        worst=(row, column),
        actual=float(actual[row, column]),
        expected=float(reference[row, column]),
        allowed=float(bound[row, column]),
    )


def _extent(flags: torch.Tensor) -> tuple[int, int]:
    places = flags.nonzero()
    return int(places[0]), int(places[-1])
