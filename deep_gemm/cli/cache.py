"""deep-gemm cache: look at the disk cache of compiled kernels, check it, empty it."""

from __future__ import annotations

import typer

from ..jit import cache
from . import console

app = typer.Typer(help="The disk cache of compiled kernels.", no_args_is_help=True)


@app.command("list")
def list_entries() -> None:
    """Print every compiled kernel with its size, registers, spills and compile time."""
    rows = console.table(
        "", ("kernel",), ("KiB", "registers", "spill bytes", "NVRTC s", "made (UTC)")
    )
    entries = cache.entries()
    for entry in entries:
        manifest, resources = entry.manifest, entry.resources
        rows.add_row(
            manifest["name"],
            f"{manifest['cubin_bytes'] / 1024:.1f}",
            str(resources.registers),
            str(resources.spill_store_bytes + resources.spill_load_bytes),
            f"{manifest['compile_seconds']:.2f}",
            manifest["created"],
        )
    if entries:
        console.out.print(rows)
    console.out.print(f"{len(entries)} kernels in {cache.cache_root()}", soft_wrap=True)


@app.command()
def verify() -> None:
    """Check every entry against its manifest; exit status 1 where one cannot be trusted.

    A bad entry does no harm: it counts as missing and is compiled again when it is needed.
    """
    problems = cache.verify()
    for folder, problem in problems.items():
        console.out.print(f"bad: {folder.name}: {problem}", markup=False, soft_wrap=True)
    good = len(cache.entries())
    console.out.print(f"{good} good, {len(problems)} bad in {cache.cache_root()}", soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@app.command()
def clear() -> None:
    """Remove every compiled kernel; each is compiled again when it is needed."""
    root = cache.cache_root()
    console.out.print(f"{cache.clear()} folders removed from {root}", soft_wrap=True)
