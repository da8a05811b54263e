"""What every command shares: where text goes, how numbers are printed, which device is there."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

# Text that goes to a file or a pipe is not folded to a terminal's 80 columns.
PIPE_WIDTH = 140


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


out = _console(stderr=False)
err = _console(stderr=True)


def fail(message: str) -> NoReturn:
    """Print one error message and end the command with exit status 1."""
    err.print(f"error: {message}", markup=False)
    raise typer.Exit(1)


def table(title: str, left: tuple[str, ...], right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with left-aligned columns, then right-aligned ones."""
    made = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
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

    from .. import is_available

    index = torch.cuda.current_device() if torch.cuda.is_available() else 0
    found = is_available(index)
    return None if found else found.reason


def device_type() -> str:
    """Return "cuda" where the GPU kernels can run, else "cpu"."""
    return "cpu" if no_gpu_reason() else "cuda"
