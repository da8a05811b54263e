"""The dense FP8 benchmark: its shapes, its inputs, and the calls of every library it compares.

Row names: `ours`, `ours_plain` and `cublas_block` take 1x128 / 128x128 scales, `cublas_tensor` one
scale each, `torch_row` one scale a row and a column; the last three go through `torch._scaled_mm`.
Up to M = DECODE_M `ours` is called with static_b=True, as fixed weights allow, and `ours_plain`
without; above it `ours` is the plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import fp8_gemm_nt
from ..config import from_index, select
from ..problem import GemmProblem
from ..quant.layout import align
from ..quant.recipe import BLOCK_128X128, ROW_1X128
from .numerics import compare, reference_and_bound
from .problems import lay_out_sfa, random_e4m3, random_scales
from .timing import Call, SmClock, clock_under, host_time_us, set_count, time_calls

KIND = "dense_fp8"
NK = (
    (2112, 7168),
    (576, 7168),
    (24576, 1536),
    (32768, 512),
    (7168, 16384),
    (4096, 7168),
    (7168, 2048),
)
M = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DECODE_M = 128
HOST_SHAPE = (64, 4096, 7168)
HOST_ROUNDS = 20
# Rows checked against float64 before a shape is timed: this many at each end of M.
CHECKED_ROWS = 16

Row = dict[str, Any]
Weight = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Operands:
    """One input set: a [m,k] and b [n,k] in e4m3, sfa [m,k/128], sfb [n/128,k/128], d [m,n]."""

    a: torch.Tensor
    sfa: torch.Tensor
    b: torch.Tensor
    sfb: torch.Tensor
    d: torch.Tensor


def shapes(
    ms: Sequence[int] = (), ns: Sequence[int] = (), ks: Sequence[int] = ()
) -> list[tuple[int, int, int]]:
    """Return the suite's (m, n, k), reduced to the values given.

    `ns` and `ks` together name one product of their own, so a shape outside the suite can be
    measured as well.
    """
    if ns and ks:
        nks = [(n, k) for n in ns for k in ks]
    else:
        nks = [(n, k) for n, k in NK if (not ns or n in ns) and (not ks or k in ks)]
    return [(m, n, k) for n, k in nks for m in (ms or M)]


Maker = Callable[[Sequence[Operands]], list[Call]]


def rotating_sets(m: int, n: int, k: int, weights: list[Weight]) -> list[Operands]:
    """Return as many input sets as are together larger than L2; `weights` as in operand_sets."""
    return operand_sets(m, n, k, set_count(m * k + n * k + 2 * m * n), weights)


def operand_sets(m: int, n: int, k: int, count: int, weights: list[Weight]) -> list[Operands]:
    """Return `count` input sets; `weights` keeps the (b, sfb) pairs drawn for this n and k.

    The A scales are MN-major with a leading dimension padded to 16 bytes, as other libraries want
    them.
    """
    while len(weights) < count:
        sfb = random_scales(BLOCK_128X128.shape(n, k), "cuda")
        weights.append((random_e4m3(n, k, "cuda"), sfb))
    return [
        Operands(
            a=random_e4m3(m, k, "cuda"),
            sfa=lay_out_sfa(random_scales(ROW_1X128.shape(m, k), "cuda"), "mn_major_aligned"),
            b=b,
            sfb=sfb,
            d=torch.empty(m, n, device="cuda", dtype=torch.bfloat16),
        )
        for b, sfb in weights[:count]
    ]


def ours(sets: Sequence[Operands]) -> list[Call]:
    """Return one call of this package per input set, with static_b=True up to M = DECODE_M."""
    return _ours(sets, static_b=True) if len(sets[0].a) <= DECODE_M else ours_plain(sets)


def ours_plain(sets: Sequence[Operands]) -> list[Call]:
    """Return one call of this package per input set, with nothing said about B."""
    return _ours(sets)


def _ours(sets: Sequence[Operands], **options: Any) -> list[Call]:
    return [partial(fp8_gemm_nt, (s.a, s.sfa), (s.b, s.sfb), s.d, **options) for s in sets]


def problem(m: int, n: int, k: int) -> GemmProblem:
    """Return what `ours` asks for at this shape: with static_b up to M = DECODE_M."""
    return GemmProblem.block_scaled(m, n, k, static_b=m <= DECODE_M)


def forms(m: int) -> dict[str, Maker]:
    """Return the forms of our call that differ at this m, by row name."""
    return {"ours": ours, "ours_plain": ours_plain} if m <= DECODE_M else {"ours": ours}


def cublas_block(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's block-scaled product per input set, scales in the layouts it demands."""
    return [_scaled_mm(s, s.sfa.t().contiguous().t(), _padded_rows(s.sfb).t()) for s in sets]


def _padded_rows(sfb: torch.Tensor) -> torch.Tensor:
    """Return [rows, kb] scales whose rows start at multiples of 16 bytes."""
    kb = sfb.shape[1]
    return torch.nn.functional.pad(sfb, (0, align(kb, 4) - kb))[:, :kb] if kb % 4 else sfb


def cublas_tensor(sets: Sequence[Operands]) -> list[Call]:
    """Return cuBLASLt's product with one scale a tensor, fast accumulation, per input set."""
    one = torch.ones((), device="cuda")
    return [_scaled_mm(s, one, one, use_fast_accum=True) for s in sets]


def torch_row(sets: Sequence[Operands]) -> list[Call]:
    """Return torch's row-wise scaled product, fast accumulation, per input set."""
    m, n = sets[0].d.shape
    x, y = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
    return [_scaled_mm(s, x, y, use_fast_accum=True) for s in sets]


def _scaled_mm(s: Operands, scale_a: torch.Tensor, scale_b: torch.Tensor, **options: Any) -> Call:
    options |= {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": torch.bfloat16}
    return partial(torch._scaled_mm, s.a, s.b.t(), **options)


def peer_calls(m: int, n: int, k: int) -> dict[str, Maker]:
    """Return the libraries that accept this shape: cuBLASLt wants multiples of 16 for n and k."""
    peers: dict[str, Maker] = {}
    if k % 16:
        return peers
    if m % 4 == 0 and n % 128 == 0:
        peers["cublas_block"] = cublas_block
    if n % 16 == 0:
        peers["cublas_tensor"] = cublas_tensor
        peers["torch_row"] = torch_row
    return peers


def measure(wanted: Sequence[tuple[int, int, int]], clock: SmClock | None = None) -> Iterator[Row]:
    """Yield one measured row per (m, n, k), all libraries on the same inputs in the same run.

    Both forms of our call are checked before they are timed. What fails has None in its column and
    its message under `errors`.
    """
    spec = from_index(torch.cuda.current_device())
    weights: dict[tuple[int, int], list[Weight]] = {}
    for m, n, k in wanted:
        if (n, k) not in weights:
            weights = {(n, k): []}
        sets = rotating_sets(m, n, k, weights[n, k])
        row: Row = {"kind": KIND, "m": m, "n": n, "k": k}
        for name, make in forms(m).items():
            _attempt(row, name, partial(time_checked, make, sets))
        for name, make in peer_calls(m, n, k).items():
            _attempt(row, name, partial(_time_peer, make, sets))
        if clock and row["ours"]:
            row["mhz"] = clock_under(ours(sets), clock)  # last: it heats the card
        row["config"] = select(problem(m, n, k), spec).name
        yield row


def _time_peer(make: Maker, sets: Sequence[Operands]) -> float:
    return time_calls(make(sets))


def time_checked(make: Maker, sets: Sequence[Operands]) -> float:
    """Return the microseconds of our calls on `sets`; ValueError where the first is wrong."""
    calls = make(sets)
    sets[0].d.fill_(torch.nan)  # another form may have left right values there
    torch.cuda.synchronize()  # B is static from here on
    calls[0]()
    check_rows(sets[0])
    return time_calls(calls)


def check_rows(s: Operands) -> None:
    """Raise ValueError where the first or last rows of `s.d` differ from the float64 product."""
    m = s.d.shape[0]
    for rows in {(0, min(m, CHECKED_ROWS)), (max(0, m - CHECKED_ROWS), m)}:
        part = slice(*rows)
        judged = reference_and_bound(s.a[part], s.sfa[part], s.b, s.sfb, torch.bfloat16)
        report = compare(s.d[part], *judged)
        if not report.ok:
            raise ValueError(f"wrong values in rows {rows[0]} to {rows[1]}: {report}")


def _attempt(row: Row, name: str, work: Callable[[], float]) -> None:
    try:
        row[name] = round(work(), 3)
    except Exception as error:  # a peer's refusal, of whatever class, is a result to record
        row[name] = None
        row.setdefault("errors", {})[name] = str(error).split("\n")[0][:200]
        torch.cuda.synchronize()


def host_times() -> dict[str, float]:
    """Return the host microseconds of one warm call at 64 x 4096 x 7168, by library.

    The libraries take turns, and each has its best of HOST_ROUNDS runs: a run is over in a
    millisecond, so a few in a row can all fall into one disturbance of the machine.
    """
    m, n, k = HOST_SHAPE
    s = operand_sets(m, n, k, 1, [])[0]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    calls: dict[str, Call] = {
        "ours": ours_plain([s])[0],
        "torch_mm": lambda: torch.mm(x, w.t(), out=s.d),
        "torch_scaled_mm": cublas_tensor([s])[0],
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(HOST_ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], host_time_us(call, repeats=1))
    return {name: round(us, 2) for name, us in best.items()}
