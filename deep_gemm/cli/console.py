"""What every command shares: where text goes, how numbers are printed, which device is there."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def fail(message: str) -> NoReturn:
    """Print one error message and end the command with exit status 1."""
    err.print(f"error: {message}", markup=False)
    raise typer.Exit(1)


def table(title: str, left: tuple[str, ...], right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned columns, then right-aligned ones."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in left:
        made.add_column(name, overflow="fold")
    for name in right:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def percent(value: float) -> str:
    """Return a share as per cent with three significant figures."""
    return f"{100 * value:.3g} %"


def no_gpu_reason() -> str | None:
    """Return why the GPU kernels cannot run here, or None where they can."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device is visible to torch"
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        name = torch.cuda.get_device_name()
        return f"{name} has compute capability {capability[0]}.{capability[1]}, not 9.0 (Hopper)"
    return None


def device_type() -> str:
    """Return "cuda" where the GPU kernels can run, else "cpu"."""
    return "cpu" if no_gpu_reason() else "cuda"
