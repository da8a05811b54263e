"""Random problems, with scales in every layout a caller may use.

Data are drawn on the device they are for. Every padding is NaN, or 127 where INT8 has none, so that
a kernel which reads it gives NaN or a wrong sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..dtypes import E4M3, FP16, INT32, DType
from ..errors import ArgumentError
from ..layouts import align
from ..problem import CMode, GemmProblem, Mainloop, Major
from ..problem.request import Tensors
from ..problem.scale_recipe import BLOCK_128X128, PER_TENSOR, ROW_1X128, ScaleRecipe
from . import poison

_SFA: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row_major": lambda sf: sf.contiguous(),
    "mn_major_aligned": poison.tma_pitched,
    "mn_major_unaligned": poison.transposed,
    "strided_view": poison.every_second_column,
    "expanded": lambda sf: sf[:, :1].contiguous().expand(sf.shape),
    "expanded_rows": lambda sf: sf[:1].contiguous().expand(sf.shape),
    "sliced_row_major": lambda sf: poison.pitched(sf, sf.shape[1] + 3),
    "sliced_mn_major": lambda sf: poison.transposed(sf, sf.shape[0] + 5),
}
_SFB: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda sf: sf.contiguous(),
    "transposed": poison.transposed,
    "sliced": lambda sf: poison.pitched(sf, sf.shape[1] + 3),
}
SFA_LAYOUTS = tuple(_SFA)
SFB_LAYOUTS = tuple(_SFB)
# For scales that are one of a row or one of all: "flat" is [mn] or [], "flat_strided" has stride 2.
VECTOR_LAYOUTS = (*SFA_LAYOUTS, "flat", "flat_strided")


@dataclass(frozen=True)
class Drawn:
    """The tensors of a call; `check` raises AssertionError where memory around D was written."""

    tensors: Tensors
    check: Callable[[], None]


def make(
    problem: GemmProblem,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
    *,
    scale_layouts: tuple[str, str] = ("row_major", "row_major"),
    row_pad: int = 0,
    out_pad: int = 8,
    in_place: bool = False,
    exact: bool = False,
) -> Drawn:
    """Return random tensors that fit `problem`, D poisoned and among canaries (poison.canary).

    generator: of the same device; the device's default one where None.
    scale_layouts: of sfa and sfb, of SFA_LAYOUTS or, where they are vectors, VECTOR_LAYOUTS.
    row_pad: elements behind each line of A and B, after those that fill up its last 16 bytes.
    out_pad: elements behind each row of C and D.
    in_place: C, where the problem adds one, is D; with CMode.REDUCE it always is.
    exact: small integers (full-range ones for INT8), and powers of two as scales along K: sums have
        no rounding anywhere, so GPU and CPU backend must agree bit for bit.

    FP8 is normal with standard deviation 60, INT8 uniform over its range, 16-bit types are normal;
    the first two are a sixteenth as large for an FP16 output, which ends at 65504. C is about as
    large as the product.
    """
    m, n, k = problem.m, problem.n, problem.k
    a = operand(problem, problem.a_dtype, m, exact, (device, generator))
    b = operand(problem, problem.b_dtype, n, exact, (device, generator))
    spread = max(k, 1) ** 0.5 * deviation(problem, exact) ** 2
    sfa, sfb = (
        _scales(recipe, (mn, k), layout, exact, (device, generator))
        for recipe, mn, layout in zip(
            (problem.scale_a, problem.scale_b), (m, n), scale_layouts, strict=True
        )
    )
    a, b = _in_lines(a, problem.a_major, row_pad), _in_lines(b, problem.b_major, row_pad)
    d, check = poison.canary(m, n, problem.d_dtype.torch, device, out_pad)
    c = None
    if problem.c_mode is not CMode.NONE:
        drawn = torch.randn((m, n), device=device, generator=generator).mul_(spread)
        drawn = (drawn.round_() if problem.d_dtype == INT32 else drawn).to(d.dtype)
        is_d = in_place or problem.c_mode is CMode.REDUCE
        c = d.copy_(drawn) if is_d else poison.pitched(drawn, n + out_pad)
    return Drawn(Tensors(a, sfa, b, sfb, c, d), check)


def arguments(problem: GemmProblem, t: Tensors) -> dict[str, Any]:
    """Return the arguments of matmul() for tensors that fit `problem`, but for alpha and beta.

    The layout is the one in which the last dimension of each operand is the contiguous one.
    """
    sides = ((problem.a_major, t.a, t.sfa), (problem.b_major, t.b, t.sfb))
    a, b = (
        _passed(data if major is Major.K else data.t(), scale, major)
        for major, data, scale in sides
    )
    layout = "nt"[problem.a_major is Major.MN] + "tn"[problem.b_major is Major.MN]
    options = {"fast_accum": not problem.promoted, "static_b": problem.static_b}
    return {"a": a, "b": b, "out": t.d, "c": t.c, "layout": layout, **options}


def _passed(data: torch.Tensor, scale: torch.Tensor | None, major: Major) -> Any:
    if scale is None:
        return data
    return data, scale.t() if major is Major.MN and scale.dim() == 2 else scale


Source = tuple[torch.device | str, torch.Generator | None]


def operand(
    problem: GemmProblem, dtype: DType, rows: int, exact: bool, source: Source
) -> torch.Tensor:
    """Return the values of A or B as [rows, k], contiguous; source: device and generator."""
    shape = rows, problem.k
    device, generator = source
    if dtype.torch == torch.int8:
        reach = 128 // _reduction(problem)
        drawn = torch.randint(-reach, reach, shape, device=device, generator=generator)
        return drawn.to(torch.int8)
    if exact:
        reach = _exact_reach(problem)
        drawn = torch.randint(-reach, reach + 1, shape, device=device, generator=generator)
        return drawn.to(torch.float32).to(dtype.torch)
    x = torch.randn(shape, device=device, generator=generator)
    x.mul_(deviation(problem, exact))
    return (x.clamp_(-dtype.max, dtype.max) if dtype.max else x).to(dtype.torch)


def _reduction(problem: GemmProblem) -> int:
    return 16 if problem.d_dtype == FP16 and problem.a_dtype.bytes == 1 else 1


def _exact_reach(problem: GemmProblem) -> int:
    """Return the largest integer of exact operands: 13 bits hold 8192 products of -1, 0 and 1."""
    return 1 if problem.a_dtype.is_fp8 and problem.variant.mainloop is Mainloop.DIRECT else 4


def deviation(problem: GemmProblem, exact: bool) -> float:
    """Return the standard deviation of an operand's elements."""
    if problem.a_dtype.torch == torch.int8:
        return 128 / 3**0.5 / _reduction(problem)
    if exact:
        reach = _exact_reach(problem)
        return (reach * (reach + 1) / 3) ** 0.5
    return 60.0 / _reduction(problem) if problem.a_dtype.is_fp8 else 1.0


def _scales(
    recipe: ScaleRecipe | None, extents: tuple[int, int], layout: str, exact: bool, source: Source
) -> torch.Tensor | None:
    if recipe is None:
        return None
    device, generator = source
    sf = random_scales(recipe.shape(*extents), device, generator)
    if recipe.gran_k:
        return lay_out_sfa(sf.sub_(0.5).mul_(3).floor_().sub_(1).exp2_() if exact else sf, layout)
    if layout == "flat":
        return sf.reshape(() if recipe == PER_TENSOR else -1)
    if layout == "flat_strided":
        return poison.every_second_column(sf.reshape(1, -1))[0]
    return lay_out_sfa(sf, layout)


def _in_lines(x: torch.Tensor, major: Major, row_pad: int) -> torch.Tensor:
    """Return x with lines along K, or along its rows if MN-major, each followed by poison."""
    length = x.shape[1] if major is Major.K else x.shape[0]
    pitch = align(length, 16 // x.element_size()) + row_pad
    return poison.pitched(x, pitch) if major is Major.K else poison.transposed(x, pitch)


def make_block_scaled(
    m: int,
    n: int,
    k: int,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
    sfa_layout: str = "row_major",
    sfb_layout: str = "contiguous",
    row_pad: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a random problem a [m, k] e4m3, sfa [m, kb], b [n, k] e4m3, sfb [nb, kb].

    generator: of the same device; the device's default one where None.
    sfa_layout, sfb_layout: one of SFA_LAYOUTS, SFB_LAYOUTS. The two `expanded` layouts repeat
        one column (or row) of scales, with stride 0.
    row_pad: NaN elements after each row of a and b; a multiple of 16 keeps rows loadable by TMA.
    """
    a = random_e4m3(m, k, device, generator)
    b = random_e4m3(n, k, device, generator)
    sfa = random_scales(ROW_1X128.shape(m, k), device, generator)
    sfb = random_scales(BLOCK_128X128.shape(n, k), device, generator)
    if row_pad:
        a, b = poison.pitched(a, k + row_pad), poison.pitched(b, k + row_pad)
    return a, lay_out_sfa(sfa, sfa_layout), b, lay_out_sfb(sfb, sfb_layout)


def random_e4m3(
    rows: int,
    columns: int,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return e4m3 [rows, columns]: normal with standard deviation 60, clamped to the format."""
    x = torch.randn((rows, columns), device=device, generator=generator)
    return x.mul_(60.0).clamp_(-E4M3.max, E4M3.max).to(E4M3.torch)


def small_integers(
    rows: int,
    columns: int,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return e4m3 [rows, columns] of integers from -4 to 4.

    Every partial sum over 128 products is an integer of at most 2048, so the tensor core computes
    it exactly, and a result has float32 and output rounding alone: pass exact_products=True to
    numerics. Without a promotion each 128 of k the sums outgrow its 13 bits.
    """
    x = torch.randint(-4, 5, (rows, columns), device=device, generator=generator)
    return x.to(torch.float32).to(torch.float8_e4m3fn)


def random_scales(
    shape: tuple[int, int],
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
    spread: str = "uniform",
) -> torch.Tensor:
    """Return float32 scales: uniform in [0.5, 1.5), or with spread="log" in 2**[-10, 10)."""
    x = torch.rand(shape, device=device, generator=generator)
    if spread == "uniform":
        return x.add_(0.5)
    if spread == "log":
        return x.mul_(20.0).sub_(10.0).exp2_()
    raise ArgumentError("spread", "value", '"uniform" or "log"', repr(spread))


def lay_out_sfa(sf: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the scales of A in one of SFA_LAYOUTS; the `expanded` ones change the values."""
    return _lay_out("sfa_layout", _SFA, sf, layout)


def lay_out_sfb(sf: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the scales of B in one of SFB_LAYOUTS."""
    return _lay_out("sfb_layout", _SFB, sf, layout)


def _lay_out(
    name: str,
    table: dict[str, Callable[[torch.Tensor], torch.Tensor]],
    sf: torch.Tensor,
    layout: str,
) -> torch.Tensor:
    if layout not in table:
        raise ArgumentError(name, "value", f"one of {', '.join(table)}", repr(layout))
    return table[layout](sf) if sf.numel() else sf
