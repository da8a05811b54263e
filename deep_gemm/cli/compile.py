"""deep-gemm compile: fill the kernel cache ahead of time, without a GPU."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from rich.progress import track

from . import console
from .products import FastAccum, Layout, Operands, Output, Scales, product


def compile_ahead(
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Rows of B (outputs).")],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Columns of A and B.")],
    max_m: Annotated[int, typer.Option(min=1, help="Kernels for every M from 1 to this.")] = 8192,
    device: Annotated[str, typer.Option(help="GPU the kernels are for, by name.")] = "h200",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Compilations at a time.")
    ] = os.cpu_count() or 1,
    operands: Operands = "e4m3",
    scales: Scales = None,
    output: Output = "bf16",
    layout: Layout = "nt",
    fast_accum: FastAccum = False,
) -> None:
    """Compile every kernel that a product with this N and K can use for M up to --max-m.

    One kernel serves many shapes, so the list is short. Exit status 1 where a kernel spills
    registers.
    """
    from .. import config
    from ..jit import cache
    from . import kernels

    problem = product((1, n, k), operands, scales, output, layout, fast_accum)
    start = time.perf_counter()
    with console.out.status("choosing configurations"):
        wanted = config.choices(problem, range(1, max_m + 1), config.by_name(device))
    made = console.table(
        f"kernels for N = {n}, K = {k}, M = 1 to {max_m} on {device}",
        ("configuration", "M"),
        kernels.COLUMNS,
    )
    done = list(
        track(
            kernels.build_all(wanted, jobs),
            description=f"compiling, {jobs} at a time",
            total=len(wanted),
            console=console.out,
            transient=True,
        )
    )
    for ahead in sorted(done, key=lambda a: wanted[a.config][0]):
        made.add_row(ahead.config.name, ranges(wanted[ahead.config]), *ahead.cells())
    console.out.print(made)
    seconds = time.perf_counter() - start
    console.out.print(
        f"{len(done)} kernels in {seconds:.1f} s, kept in {cache.cache_root()}", soft_wrap=True
    )
    if spilled := [ahead.config.name for ahead in done if ahead.spill_bytes != 0]:
        console.fail(f"{len(spilled)} kernels spill registers: {', '.join(spilled)}")


def ranges(ms: list[int], limit: int = 3) -> str:
    """Return ascending numbers as ranges, the first `limit` of them: "1-64, 129-256"."""
    spans: list[list[int]] = []
    for m in ms:
        if spans and m == spans[-1][1] + 1:
            spans[-1][1] = m
        else:
            spans.append([m, m])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:limit])
    return text + (f", {len(spans) - limit} more" if len(spans) > limit else "")
