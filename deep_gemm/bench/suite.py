"""What a benchmark suite is, its inputs, and how its rows are measured.

A suite is a list of shapes of one kind of product, the call of ours that computes it and the calls
of other libraries on the same inputs. Its rows hold `kind, m, n, k`, the microseconds under each
name, `mhz` where the clock is read, `config`, and `errors` where a call gave no figure.

Variants of our call, each a key of a row: `ours`, which up to M = DECODE_M is made with
static_b=True, as fixed weights allow; `ours_plain`, up to there, is made without; and where `ours`
leaves FP8 sums in the tensor core over all of K, `ours_promoted` moves them to FP32 every 128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .. import matmul
from ..config import GemmConfig, from_index, select
from ..dtypes import E4M3, INT8, DType
from ..kernels import gemm_sm90
from ..problem import CMode, GemmProblem
from ..problem.request import Tensors
from ..problem.scale_recipe import BLOCK_128X128, ROW_1X128, ScaleRecipe
from ..testing.numerics import compare, reference_and_bound_of
from ..testing.problems import lay_out_sfa, random_e4m3, random_scales
from .nvml import NvmlDevice
from .timing import (
    Call,
    Captured,
    capture,
    clock_under,
    set_count,
    time_alone,
    time_interleaved,
)

DECODE_M = 128
# Rows checked against float64 before a shape is timed: this many at each end of M.
CHECKED_ROWS = 16
# Of what D holds before a product is added to it: of the order of an FP8 product.
SUM_DEVIATION = 2.0**16

Row = dict[str, Any]
Shape = tuple[int, int, int]
Weight = tuple[torch.Tensor, "torch.Tensor | None"]


@dataclass(frozen=True)
class Operands:
    """One input set: a [m, k], b [n, k], their scales if any, d [m, n], and c, which is d or None.

    Scales of each 128 of K are [rows, K / 128], one a row [rows, 1], one for all [].
    """

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None
    d: torch.Tensor
    c: torch.Tensor | None = None

    @property
    def scales(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both scales; ValueError where there are none."""
        if self.sfa is None or self.sfb is None:
            raise ValueError("operands without scales")
        return self.sfa, self.sfb


Maker = Callable[[Sequence[Operands]], list[Call]]


def product(s: Operands, problem: GemmProblem) -> Call:
    """Return the call of matmul() that computes a problem on one input set."""
    a = s.a if s.sfa is None else (s.a, s.sfa)
    b = s.b if s.sfb is None else (s.b, s.sfb)
    fast = not problem.promoted
    return partial(matmul, a, b, s.d, fast_accum=fast, static_b=problem.static_b)


def no_peers(m: int, n: int, k: int) -> dict[str, Maker]:
    """Return no library."""
    return {}


@dataclass(frozen=True)
class Suite:
    """Shapes of one kind of product, and who computes them.

    kind: of the rows. title: for people.
    shapes: (m, n, k).
    problem: what `ours` is asked for, without extents.
    call: our call on one input set, for one variant.
    peers: the libraries that accept a shape, by row name; `columns` are all these names.
    decode_m: up to which M there is a variant with static_b=True.
    clock: whether the SM clock is read for each row, a tenth of a second in all.
    corrected_by: the library, timed now and then, by which upstream's recorded time is corrected.
        Ours and this one are timed first as well, one after the other, as the recorded ones were.
    """

    kind: str
    title: str
    shapes: tuple[Shape, ...]
    problem: GemmProblem
    columns: tuple[str, ...] = ()
    peers: Callable[[int, int, int], dict[str, Maker]] = no_peers
    call: Callable[[Operands, GemmProblem], Call] = product
    decode_m: int = DECODE_M
    clock: bool = True
    corrected_by: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that tell rows of a kind apart."""
        return "m", "n", "k"

    @property
    def first(self) -> tuple[str, ...]:
        """Names of what is timed first, in order: ours in upstream's place."""
        return ("ours", self.corrected_by) if self.corrected_by else ()

    def reduced(
        self, ms: Sequence[int] = (), ns: Sequence[int] = (), ks: Sequence[int] = ()
    ) -> list[Shape]:
        """Return the shapes reduced to the values given.

        `ms` may be any; `ns` and `ks` together name products of their own, so that a shape outside
        the suite can be measured as well.
        """
        if ns and ks:
            nks = [(n, k) for n in ns for k in ks]
            ms = ms or list(dict.fromkeys(m for m, _, _ in self.shapes))
        else:
            kept = [s for s in self.shapes if (not ns or s[1] in ns) and (not ks or s[2] in ks)]
            if not ms:
                return kept
            nks = list(dict.fromkeys((n, k) for _, n, k in kept))
        return [(m, n, k) for n, k in nks for m in ms]

    def variants(self, m: int, n: int, k: int) -> dict[str, GemmProblem]:
        """Return the problems of the variants of our call that differ at this shape, by row key."""
        problem = replace(self.problem, m=m, n=n, k=k)
        decode = m <= self.decode_m
        ours = replace(problem, static_b=decode)
        found = {"ours": ours}
        if decode:
            found["ours_plain"] = problem
        if not problem.promoted:
            found["ours_promoted"] = replace(ours, promoted=True)
        return found

    def calls(self, problem: GemmProblem, sets: Iterable[Operands]) -> list[Call]:
        """Return one call of ours per input set."""
        return [self.call(s, problem) for s in sets]


# --- inputs -------------------------------------------------------------------------------------


def rotating_sets(problem: GemmProblem, weights: list[Weight]) -> list[Operands]:
    """Return as many input sets as are together larger than L2; `weights` as in operand_sets."""
    m, n, k = problem.m, problem.n, problem.k
    operands = m * k * problem.a_dtype.bytes + n * k * problem.b_dtype.bytes
    return operand_sets(problem, set_count(operands + m * n * problem.d_dtype.bytes), weights)


def operand_sets(
    problem: GemmProblem, count: int, weights: list[Weight], device: str = "cuda"
) -> list[Operands]:
    """Return `count` input sets; `weights` keeps the (b, sfb) pairs drawn for this n and k.

    Scales of 1 x 128 are MN-major with a leading dimension padded to 16 bytes, as other libraries
    want them.
    """
    while len(weights) < count:
        b = _matrix(problem.b_dtype, problem.n, problem.k, device)
        weights.append((b, _scales(problem.scale_b, problem.n, problem.k, device)))
    return [_operands(problem, weight, device) for weight in weights[:count]]


def _operands(problem: GemmProblem, weight: Weight, device: str) -> Operands:
    m, n, k = problem.m, problem.n, problem.k
    d = torch.zeros(m, n, device=device, dtype=problem.d_dtype.torch)
    return Operands(
        _matrix(problem.a_dtype, m, k, device),
        _scales(problem.scale_a, m, k, device),
        *weight,
        d,
        None if problem.c_mode is CMode.NONE else d,
    )


def _matrix(dtype: DType, rows: int, columns: int, device: str) -> torch.Tensor:
    if dtype == E4M3:
        return random_e4m3(rows, columns, device)
    if dtype == INT8:
        return torch.randint(-127, 128, (rows, columns), device=device, dtype=torch.int8)
    return torch.randn(rows, columns, device=device, dtype=dtype.torch)


def _scales(recipe: ScaleRecipe | None, mn: int, k: int, device: str) -> torch.Tensor | None:
    if recipe is None:
        return None
    scales = random_scales(recipe.shape(mn, k), device)
    if recipe in (ROW_1X128, BLOCK_128X128):
        return lay_out_sfa(scales, "mn_major_aligned") if recipe == ROW_1X128 else scales
    return scales if recipe.gran_mn else scales.reshape(())


# --- measuring ----------------------------------------------------------------------------------


def measure(
    suite: Suite, wanted: Sequence[Shape], device: NvmlDevice | None = None
) -> Iterator[Row]:
    """Yield one measured row per shape, all libraries on the same inputs in the same run.

    Every variant of our call is checked before it is timed. What fails has None in its column and
    its message under `errors`.
    """
    spec = from_index(torch.cuda.current_device())
    problems = [problem for shape in wanted for problem in suite.variants(*shape).values()]
    compile_ahead(select(problem, spec) for problem in problems)
    weights: dict[tuple[int, int], list[Weight]] = {}
    for shape in wanted:
        if shape[1:] not in weights:
            weights = {shape[1:]: []}
        ours = suite.variants(*shape)["ours"]
        row = _row(suite, shape, rotating_sets(ours, weights[shape[1:]]), device)
        row["config"] = select(ours, spec).name
        yield row


def compile_ahead(configs: Iterable[GemmConfig]) -> None:
    """Compile configurations, or find them in the cache, on as many threads as there are cores.

    Threads suffice: NVRTC works outside the interpreter lock. One that does not compile is left to
    the call that needs it.
    """
    with ThreadPoolExecutor() as pool:
        for built in [pool.submit(_build, config) for config in dict.fromkeys(configs)]:
            built.exception()


def _build(config: GemmConfig) -> None:
    gemm_sm90.spec(config).build()


def _row(suite: Suite, shape: Shape, sets: list[Operands], device: NvmlDevice | None) -> Row:
    m, n, k = shape
    row: Row = {"kind": suite.kind, "m": m, "n": n, "k": k}
    works: dict[str, Callable[[], Captured]] = {}
    for name, problem in suite.variants(m, n, k).items():
        works[name] = partial(capture_checked, suite, problem, sets)
    for name, make in suite.peers(m, n, k).items():
        works[name] = partial(_capture_peer, make, sets)
    captured = {name: attempt(row, name, work) for name, work in works.items()}
    ready = {name: one for name, one in captured.items() if one is not None}
    for name in suite.first:
        if name in ready:
            row[f"{name}_first"] = round(time_alone(ready[name]), 3)
    row.update({name: round(us, 3) for name, us in time_interleaved(ready).items()})
    if device and suite.clock and "ours" in ready:
        row["mhz"] = clock_under(ready["ours"], device)  # last: it heats the card
    return row


def _capture_peer(make: Maker, sets: Sequence[Operands]) -> Captured:
    return capture(make(sets))


def capture_checked(suite: Suite, problem: GemmProblem, sets: Sequence[Operands]) -> Captured:
    """Return our calls on `sets`, ready to be timed; ValueError where the first is wrong."""
    calls = suite.calls(problem, sets)
    before = spoil(sets[0])
    torch.cuda.synchronize()  # B is static from here on
    calls[0]()
    check_rows(problem, before)
    return capture(calls)


def spoil(s: Operands) -> Operands:
    """Overwrite D, where another variant may have left right values; return what a call then gets.

    D gets NaN or the least integer; sums to add to, where C is D, which are returned as a copy.
    """
    if s.c is not None:
        s.d.normal_(0.0, SUM_DEVIATION)
        return replace(s, c=s.d.clone())
    floating = s.d.dtype.is_floating_point
    s.d.fill_(torch.nan if floating else torch.iinfo(s.d.dtype).min)
    return s


def check_rows(problem: GemmProblem, s: Operands) -> None:
    """Raise ValueError where the first or last rows of `s.d` differ from the float64 product."""
    m = s.d.shape[0]
    for first, end in {(0, min(m, CHECKED_ROWS)), (max(0, m - CHECKED_ROWS), m)}:
        part = slice(first, end)
        t = Tensors(
            s.a[part], _rows_of(s.sfa, m, part), s.b, s.sfb, _rows_of(s.c, m, part), s.d[part]
        )
        judged = reference_and_bound_of(replace(problem, m=end - first), t, 1.0, 1.0)
        report = compare(t.d, *judged)
        if not report.ok:
            raise ValueError(f"wrong values in rows {first} to {end}: {report}")


def _rows_of(x: torch.Tensor | None, m: int, part: slice) -> torch.Tensor | None:
    """Return the part of a tensor that belongs to some rows of A; all of one that has no rows."""
    return x[part] if x is not None and x.dim() and len(x) == m else x


def attempt(row: Row, name: str, work: Callable[[], Captured]) -> Captured | None:
    """Return what is to be timed under a name of a row, or None, with the reason in the row."""
    row[name] = None
    try:
        return work()
    except Exception as error:  # a peer's refusal, of whatever class, is a result to record
        row.setdefault("errors", {})[name] = str(error).split("\n")[0][:200]
        torch.cuda.synchronize()
        return None
