"""What padding would gain a product: which extents are served, and at which predicted time.

Pure functions; times are predicted microseconds of the product alone, without copies that pad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..config import DeviceSpec, GemmConfig, explain
from ..errors import ArgumentError
from ..layouts import TMA_ALIGNMENT_BYTES, align, get_tma_aligned_size, line_aligned_size
from ..problem import GemmProblem, checks

BLOCK = 128  # of N and K that share a scale
AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Choice:
    """Extents a product can be run with, the configuration for them, and its predicted time."""

    what: str
    problem: GemmProblem
    config: GemmConfig
    us: float


def refusals(problem: GemmProblem) -> list[str]:
    """Return why the CUDA path refuses these extents, in sentences."""
    try:
        checks.tma_extents(problem.n, problem.d_dtype.bytes)
    except ArgumentError as error:
        return [str(error)]
    return []


def pitch(problem: GemmProblem) -> str | None:
    """Return how rows of A and B must be laid out where K alone does not do it."""
    if get_tma_aligned_size(problem.k, problem.a_dtype.bytes) == problem.k:
        return None
    wanted = line_aligned_size(problem.k, problem.a_dtype.bytes)
    return (
        f"Rows of A and B start at multiples of {TMA_ALIGNMENT_BYTES} bytes: quant.align_rows() "
        f"lays out K = {problem.k} in rows of {wanted}, whole cache lines, which costs a copy."
    )


def served(problem: GemmProblem) -> GemmProblem:
    """Return the smallest problem that holds this one and is served: rows of D fill 16 bytes."""
    return replace(problem, n=get_tma_aligned_size(problem.n, problem.d_dtype.bytes))


def choices(problem: GemmProblem, spec: DeviceSpec, num_sms: int = 0) -> list[Choice]:
    """Return the extents worth comparing; the first is the product as it is, or least padded.

    The others go to the next multiples: N and K to 128, M to the rows of the first one's cluster
    of tiles, and all of it; none where the first has them already.
    """
    least = served(problem)
    first = _choice(AS_IT_IS if least == problem else "least padding", least, spec, num_sms)
    rows = _rows_of_a(first.config)
    m, n, k = align(least.m, rows), align(least.n, BLOCK), align(least.k, BLOCK)
    padded = {
        f"N to {BLOCK}": replace(least, n=n),
        f"K to {BLOCK}": replace(least, k=k),
        f"M to {rows}": replace(least, m=m),
        "all of it": replace(least, m=m, n=n, k=k),
    }
    found = {first.problem: first}
    for what, larger in padded.items():
        if larger not in found:
            found[larger] = _choice(what, larger, spec, num_sms)
    return list(found.values())


def _rows_of_a(config: GemmConfig) -> int:
    """Return the rows of A that one cluster of tiles takes."""
    tile = config.tile
    return tile.block_m * config.cluster_m


def _choice(what: str, problem: GemmProblem, spec: DeviceSpec, num_sms: int) -> Choice:
    best = next(row for row in explain(problem, spec, num_sms) if row.chosen)
    return Choice(what, problem, best.config, best.estimate_us)


def verdict(found: Sequence[Choice]) -> str:
    """Return in a sentence whether padding beyond the first of `choices` is predicted to gain."""
    first, *others = found
    if not others:
        return "Nothing to pad: M, N and K are whole tiles."
    padding = "Padding" if first.what == AS_IT_IS else "Padding further"
    best = min(others, key=lambda choice: choice.us)
    longer = round(100 * (best.us / first.us - 1), 1)
    to = f"{best.problem.m} x {best.problem.n} x {best.problem.k}"
    if longer < 0:
        return f"{padding}, to {to}, is predicted to save {-longer} %, less the copies it takes."
    return f"{padding} gains nothing: {to} is predicted to take {longer} % longer, copies aside."
