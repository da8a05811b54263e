"""Judge a result: NaN and infinity positions first, then every element against its own bound.

The bound is derived from the formats, K and the operands, not chosen to make tests pass. It adds up
what the sum, the scaling and the rounding of one output element may lose.

Sums promoted every 128 of K. Let P_b be the exact dot product over k-block b, Q_b the root of the
sum of the squared products in it, s_b = sfa * sfb (1 where there are no scales along K), and T_b
the running sum of s_b * P_b. Allowed is

    sum over b of |s_b| * 2**-13 * (20 * Q_b + 14 * |P_b|)      tensor core
    + sum over b of 2**-24 * (3 * |s_b * P_b| + |T_b|)          float32 scaling, accumulation

or 11 instead of 3 where both operands have scales of 1x128: their product is made by the tensor
core, from parts, within 2**-21.

Tensor core: Hopper aligns the 32 products of one FP8 instruction, and the running sum, to the
largest of them and drops what lies more than 13 bits below it, so each of the at most 136
truncations in a block costs less than 2**-13 of the largest magnitude present. Truncation is
towards zero, so for data of both signs the errors add up as a random walk over the products (at
most a few times Q_b), and for data of one sign they pull the running sum down (at most about 12
of 2**-13 of P_b). The factors were taken from a bit-level model of that rule over normal,
uniform, log-normal, one-signed and outlier-channel data, and leave a margin there: with 16 and 12
one of 20000 one-signed blocks came to 1.0013 of the bound.
Data built to keep 31 of 32 products just below the last kept bit can exceed them.

Sums that stay in the tensor core: the rule above, over all of K. Let T be the exact sum, Q the root
of the sum of the squared products, A the sum of their magnitudes, and I the products of one
instruction. No magnitude present exceeds |T| + Q by much, the running sum included if its terms
come in random order, so with u bits kept allowed is

    2**-u * (|T| + Q) * (sqrt(K) + K / (2 * I) + K / 2 * |T| / A)

for the products' truncations as a random walk, the running sum's own (one an instruction, half a
unit on average, always towards zero), and the part of the products' that their common sign, which
|T| / A of them share, makes one-sided. FP8: u = 13, I = 32. BF16 and FP16: u = 23, I = 16; their
products are exact in float32, and the sum after each instruction is truncated to it. In the
bit-level model normal data use up to 0.3 of it, one-signed 0.26 and log-normal 0.67. Sums of INT8
are exact.

Afterwards float32 rounds, each time by 2**-24 of the value: an INT32 sum as it becomes a float;
alpha and the product with it; the product with each scale; beta, the product with C and the sum.
Last the output: half a unit in its last place at |D| plus all of the above. An INT32 output is
exact.

Integer data of small magnitude has no tensor-core error at all: see problems.small_integers and
`exact_products`, which make the bound as tight as float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from .. import dtypes
from ..errors import ArgumentError
from ..problem import GemmProblem, Mainloop
from ..problem.request import Tensors
from ..problem.scale_recipe import BLOCK_128X128

BLOCK = 128
TENSOR_CORE_ULP = 2.0**-13
RANDOM_WALK_FACTOR = 20.0
PULL_FACTOR = 14.0
_FP32_HALF_ULP = 2.0**-24
_FP32_TINY = 2.0**-149
# Half a unit in the last place, relative to the power of two below the value; and among subnormals.
_OUTPUT_HALF_ULP = {
    torch.bfloat16: (2.0**-8, 2.0**-134),
    torch.float16: (2.0**-11, 2.0**-25),
    torch.float32: (2.0**-24, 2.0**-150),
}
# The last bit the tensor core keeps beside the largest magnitude, and products of an instruction.
_FP8_CORE = (TENSOR_CORE_ULP, 32)
_FP32_CORE = (2.0**-23, 16)

Judged = tuple[torch.Tensor, torch.Tensor]


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

    Costs as reference_and_bound_of.
    """
    if out_dtype not in _OUTPUT_HALF_ULP:
        raise ArgumentError("out_dtype", "value", "bfloat16, float16 or float32", out_dtype)
    request = block_scaled_request(a, sfa, b, sfb, torch.empty(0, dtype=out_dtype))
    return reference_and_bound_of(*request, exact_products=exact_products)


def block_scaled_request(
    a: torch.Tensor, sfa: torch.Tensor, b: torch.Tensor, sfb: torch.Tensor, d: torch.Tensor
) -> tuple[GemmProblem, Tensors]:
    """Return the problem and the tensors of D = A @ B^T, e4m3 with 1x128 and 128x128 scales."""
    row = dtypes.from_torch(d.dtype)
    if row is None:
        raise ArgumentError("d", "dtype", "one the package uses", d.dtype)
    problem = GemmProblem.block_scaled(a.shape[0], *b.shape)
    return replace(problem, d_dtype=row), Tensors(a, sfa, b, sfb, None, d)


def reference_and_bound_of(
    problem: GemmProblem,
    tensors: Tensors,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    exact_products: bool = False,
) -> Judged:
    """Return D in float64 and the allowed |error| of each element; the module text derives it.

    tensors: as in a call, of any strides. D is not looked at; C must hold what is to be added, so a
        call with C in place is to be judged by what this returned before it.
    exact_products: leave out the tensor-core term, for operands whose sums fit into the bits kept
        (problems.small_integers).

    Scales along K that are NaN or infinite act on the block's dot product, as in the kernel. Costs
    two float64 products of m * n * k (one with exact_products, three where sums are not promoted),
    six float64 [m, n] tensors, and A and B in float64 where sums are not promoted.
    """
    if problem.variant.mainloop is Mainloop.DIRECT:
        total, bound = _in_one_sum(problem, tensors, exact_products)
    else:
        total, bound = _by_k_blocks(problem, tensors, exact_products)
    if problem.d_dtype == dtypes.INT32:
        return (total if tensors.c is None else total.add_(tensors.c)), bound.zero_()
    _scale_(problem, tensors, alpha, (total, bound))
    if tensors.c is not None and beta != 0:
        scaled_c = tensors.c.to(torch.float64) * beta
        bound.add_(scaled_c.abs(), alpha=2 * (beta != 1) * _FP32_HALF_ULP)
        bound.add_(total.add_(scaled_c).abs(), alpha=_FP32_HALF_ULP)
    relative, tiny = _OUTPUT_HALF_ULP[problem.d_dtype.torch]
    bound.add_(_power_of_two_below(total.abs().add_(bound)).mul_(relative).clamp_min_(tiny))
    return total, bound


def _by_k_blocks(problem: GemmProblem, t: Tensors, exact: bool) -> Judged:
    """Return the sum promoted every 128 of K and its bound, float64 [m, n]."""
    total = torch.zeros((problem.m, problem.n), dtype=torch.float64, device=t.a.device)
    bound = torch.full_like(total, _FP32_TINY)
    roundings = 11 if problem.variant.mainloop is Mainloop.SCALED_1D1D else 3
    for a_block, b_block, scale in _k_blocks(problem, t):
        term = a_block @ b_block.T
        if not exact:
            lost = (a_block.square() @ b_block.square().T).sqrt_().mul_(RANDOM_WALK_FACTOR)
            lost.add_(term.abs(), alpha=PULL_FACTOR)
            bound.addcmul_(lost, scale.abs(), value=TENSOR_CORE_ULP)
        term.mul_(scale)
        total.add_(term)
        bound.add_(term.abs_(), alpha=roundings * _FP32_HALF_ULP)
        bound.add_(total.abs(), alpha=_FP32_HALF_ULP).add_(_FP32_TINY)
    return total, bound


def _in_one_sum(problem: GemmProblem, t: Tensors, exact: bool) -> Judged:
    """Return the sum over all of K in the tensor core and its bound, float64 [m, n]."""
    a, b, k = t.a.to(torch.float64), t.b.to(torch.float64), problem.k
    total = a @ b.T
    if exact or problem.variant.is_integer:
        return total, torch.zeros_like(total)
    ulp, depth = _FP8_CORE if problem.a_dtype.is_fp8 else _FP32_CORE
    largest = (a.square() @ b.square().T).sqrt_().add_(total.abs())
    magnitudes = (a.abs() @ b.abs().T).clamp_min_(torch.finfo(torch.float64).tiny)
    truncations = total.abs().div_(magnitudes).mul_(k / 2).add_(k**0.5 + k / (2 * depth))
    return total, largest.mul_(truncations).mul_(ulp)


def _scale_(problem: GemmProblem, t: Tensors, alpha: float, judged: Judged) -> None:
    """Multiply a sum and its bound by alpha and the scales of rows and columns, in place."""
    total, bound = judged
    roundings = problem.variant.is_integer + 2 * (alpha != 1)
    rows = total.new_full((1,), alpha)
    columns = total.new_ones(1)
    if problem.variant.has_epilogue_scales:
        roundings += (t.sfa is not None) + (t.sfb is not None)
        rows = rows if t.sfa is None else rows * t.sfa.reshape(-1)
        columns = columns if t.sfb is None else t.sfb.reshape(-1).to(torch.float64)
    total.mul_(rows[:, None]).mul_(columns)
    bound.mul_(rows.abs()[:, None]).mul_(columns.abs())
    bound.add_(total.abs(), alpha=roundings * _FP32_HALF_ULP).add_(roundings * _FP32_TINY)


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
    problem: GemmProblem, t: Tensors
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield for each k-block A and B in float64, and the scale of their product: [m, n] or one."""
    scale = torch.ones((), dtype=torch.float64, device=t.a.device)
    along_k = problem.variant.mainloop.scales_along_k
    sfa, sfb = (t.sfa, t.sfb) if along_k else (None, None)
    if sfb is not None and problem.scale_b == BLOCK_128X128:
        sfb = sfb[torch.arange(problem.n, device=sfb.device) // BLOCK]
    for kb, k0 in enumerate(range(0, problem.k, BLOCK)):
        columns = slice(k0, min(k0 + BLOCK, problem.k))
        if sfa is not None and sfb is not None:
            scale = sfa[:, kb, None].to(torch.float64) * sfb[None, :, kb].to(torch.float64)
        yield t.a[:, columns].to(torch.float64), t.b[:, columns].to(torch.float64), scale


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
    # Both the largest value and infinity are right.
    at_the_limit = reference.isfinite() & high & ~low
    infinite = (actual.isinf() | wanted.isinf()) & ~nan_bad
    same_sign = (actual > 0) == (reference > 0)
    inf_bad = infinite & (actual != wanted) & ~(at_the_limit & same_sign)
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
