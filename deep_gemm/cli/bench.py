"""deep-gemm bench: our times beside cuBLASLt's in the same run, and beside recorded ones."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from . import console

Row = dict[str, Any]
Ints = list[int]


def bench(
    suite: Annotated[str, typer.Option(help="Which suite; there is one: dense.")] = "dense",
    m: Annotated[Ints | None, typer.Option("-m", help="Only this M; may repeat.")] = None,
    n: Annotated[Ints | None, typer.Option("-n", help="Only this N; may repeat.")] = None,
    k: Annotated[Ints | None, typer.Option("-k", help="Only this K; may repeat.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Recorded peers, e.g. benchmarks/peers/h200.json.")
    ] = None,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", help="Merge into this record; a folder means FOLDER/<gpu>.json."),
    ] = None,
) -> None:
    """Time the dense FP8 shapes on this GPU beside cuBLASLt and torch on the same inputs.

    Each figure is the median replay of a CUDA graph whose calls rotate over inputs larger together
    than L2. Up to M = 128, as in decoding with fixed weights, ours is called with static_b=True and
    timed in its plain form as well. With -n and -k both given, any shape can be measured. Exit
    status 1 where one of our own calls failed or gave wrong values.
    """
    if suite != "dense":
        raise typer.BadParameter(f"no suite {suite!r}; there is one: dense", param_hint="--suite")
    peers = read_peers(against) if against else []
    if reason := console.no_gpu_reason():
        console.fail(f"bench needs a Hopper GPU: {reason}")
    rows, whole_suite = measure(m or [], n or [], k or []), not (m or n or k)
    show_summary(rows, peers)
    part: Row = {"rows": rows}
    if whole_suite:
        part |= host_and_first_call()
    if json_path:
        write_record(json_path, part, command(against, m or [], n or [], k or []))
    if failed := [text for row in rows for text in failures(row)]:
        console.fail("\n".join(failed))


def read_peers(path: Path) -> list[Row]:
    """Return the rows of a file of recorded peers."""
    try:
        return json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{path}: {error!r}", param_hint="--against") from None


def measure(ms: Ints, ns: Ints, ks: Ints) -> list[Row]:
    """Measure the suite reduced to these values, printing each row as it is done."""
    from ..testing import dense_suite
    from ..testing.timing import SmClock

    wanted = dense_suite.shapes(ms, ns, ks)
    if not wanted:
        console.fail("no shape of the suite has these values of n or k; give both to add one")
    console.out.print(HEADER, markup=False, soft_wrap=True)
    rows = []
    for row in dense_suite.measure(wanted, SmClock()):
        console.out.print(line(row), markup=False, soft_wrap=True)
        rows.append(row)
    return rows


COLUMNS = (
    ("m", 5), ("n", 6), ("k", 6), ("ours us", 9), ("plain us", 9), ("TFLOPS", 7), ("GB/s", 6),
    ("floor", 6), ("MHz", 5), ("tensor us", 10), ("ratio", 6), ("block us", 10), ("ratio", 6),
    ("row us", 10),
)  # fmt: skip
HEADER = " ".join(f"{name:>{width}}" for name, width in COLUMNS) + "  config"


def line(row: Row) -> str:
    """Return one row as text: our times, rates, share of the floor, and the others' times.

    The plain form has a time of its own up to M = 128; rates, floor and ratios are of `ours`.
    """
    from ..testing import summary

    tensor, block = summary.versus("cublas_tensor")(row), summary.versus("cublas_block")(row)
    share = summary.floor_share(row)
    cells = (
        row["m"], row["n"], row["k"],
        _fixed(row.get("ours"), 2), _fixed(row.get("ours_plain"), 2),
        _fixed(summary.tflops(row), 0), _fixed(summary.gbs(row), 0),
        "-" if share is None else f"{100 * share:.0f}%", row.get("mhz") or "-",
        _fixed(row.get("cublas_tensor"), 2), _fixed(tensor, 2),
        _fixed(row.get("cublas_block"), 2), _fixed(block, 2), _fixed(row.get("torch_row"), 2),
    )  # fmt: skip
    aligned = (f"{cell!s:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))
    return " ".join(aligned) + f"  {row['config']}"


def _fixed(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def show_summary(rows: Sequence[Row], peers: Sequence[Row]) -> None:
    """Print the ratios by class of M against every library there are figures of."""
    from ..testing import summary

    made = console.table(
        "time of the other over ours (above 1: ours is faster)",
        ("against", "M"),
        ("shapes", "geometric mean", "worst", "at m x n x k"),
    )
    for label, ratio in summary.comparisons(peers).items():
        for found in summary.by_class(rows, ratio):
            shape = " x ".join(map(str, found.worst_shape))
            made.add_row(
                label,
                found.label,
                str(found.count),
                f"{found.mean:.3f}",
                f"{found.worst:.3f}",
                shape,
            )
    console.out.print(made)


def host_and_first_call() -> Row:
    """Measure and print the host time of a warm call and the first call of a new shape."""
    from ..testing import dense_suite, first_call

    host, first = dense_suite.host_times(), first_call.measure()
    console.out.print("host us per warm call: " + ", ".join(f"{k} {v}" for k, v in host.items()))
    console.out.print(
        f"first call of a new shape: {first['empty']} s with an empty kernel cache, "
        f"{first['kept']} s with a kept kernel"
    )
    return {"host_us": host, "first_call_s": first["empty"], "first_call_kept_s": first["kept"]}


def command(against: Path | None, ms: Ints, ns: Ints, ks: Ints) -> str:
    """Return the command that repeats a measurement, without the folders of this machine."""
    words = ["deep-gemm", "bench", "--suite", "dense"]
    for option, values in (("-m", ms), ("-n", ns), ("-k", ks)):
        words += [word for value in values for word in (option, str(value))]
    if against:
        words += ["--against", against.name if against.is_absolute() else against.as_posix()]
    return shlex.join(words)


def write_record(target: Path, part: Row, command: str) -> None:
    """Merge the figures of this run into the record at `target`."""
    from ..testing import record

    meta = record.environment()
    clocks = [row["mhz"] for row in part["rows"] if row.get("mhz")]
    if clocks:
        meta["clock"]["sm_mhz_median"] = round(statistics.median(clocks))
    meta["command"] = command
    path = record.result_path(target, meta["gpu"])
    record.update(path, {"meta": meta, **part})
    console.out.print(f"record: {path}", markup=False, soft_wrap=True)


def failures(row: Row) -> list[str]:
    """Return a sentence for each form of our call that gave no figure."""
    forms = [form for form in ("ours", "ours_plain") if form == "ours" or form in row]
    shape, errors = f"{row['m']} x {row['n']} x {row['k']}", row.get("errors", {})
    return [
        f"{shape}, {form}: {errors.get(form, 'no figure')}" for form in forms if not row.get(form)
    ]
