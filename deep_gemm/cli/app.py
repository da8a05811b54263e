"""The typer application: every command, registered under its name."""

from __future__ import annotations

import typer

from . import accuracy, bench, cache, compile, demo, diagnose

app = typer.Typer(
    name="deep-gemm",
    help="FP8 block-scaled matrix products for NVIDIA Hopper.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command("demo")(demo.demo)
app.command("accuracy")(accuracy.accuracy)
app.command("bench")(bench.bench)
app.command("diagnose")(diagnose.diagnose)
app.command("compile")(compile.compile_ahead)
app.add_typer(cache.app, name="cache")
