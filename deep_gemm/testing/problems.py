"""Random block-scaled problems, in every scale layout a caller may use.

Data are drawn on the device they are for. Every padding is NaN, so that a kernel which reads it
gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..errors import ArgumentError
from ..quant.recipe import BLOCK_128X128, ROW_1X128
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
    return x.mul_(60.0).clamp_(-448.0, 448.0).to(torch.float8_e4m3fn)


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
