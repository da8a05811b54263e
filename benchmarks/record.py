"""Keep the committed record: join a test run's counts to it, or say which code it measured.

python3 benchmarks/record.py tests JUNIT.xml --results FOLDER   counts of a run of tests/gpu
python3 benchmarks/record.py check                              is it of the code at hand?
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deep_gemm.bench import record

RESULTS = Path(__file__).resolve().parent / "results"

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def tests(junit: Path, results: Annotated[Path, typer.Option()] = RESULTS) -> None:
    """Write the counts of a JUnit report into the record of this machine's GPU."""
    meta = record.environment()
    path = record.result_path(results, meta["gpu"])
    counts = record.junit_counts(junit)
    record.update(path, {"meta": meta, "tests": {**counts, "command": "make gpu-test"}})
    typer.echo(f"{path}: {counts}")


@app.command()
def check(results: Annotated[Path, typer.Option()] = RESULTS) -> None:
    """Say for every record whether it measured the code at hand."""
    now = record.digest()
    paths = sorted(results.glob("*.json"))
    if not paths:
        typer.echo(f"no record in {results}; the code at hand is {now[:12]}")
    for path in paths:
        meta = (record.read(path) or {})["meta"]
        verdict = "is of the code at hand" if meta["digest"] == now else "is of OTHER code"
        typer.echo(f"{path.name} ({meta['date']}) {verdict}: {meta['digest'][:12]}, now {now[:12]}")


if __name__ == "__main__":
    app()
