"""deep-gemm bench: our times beside cuBLASLt's in the same run, and beside recorded ones."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import console

if TYPE_CHECKING:
    from ..bench.grouped_suite import GroupedSuite
    from ..bench.nvml import NvmlDevice
    from ..bench.suite import Suite

    AnySuite = Suite | GroupedSuite

Row = dict[str, Any]
Ints = list[int]
HOST_KIND = "dense_fp8"  # the kind whose call is timed on the host


def bench(
    suite: Annotated[str, typer.Option(help="Which suites: dense, grouped or all.")] = "all",
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind of product; may repeat.")
    ] = None,
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
    """Time products on this GPU beside cuBLASLt and torch on the same inputs.

    Kinds: dense_fp8 (scales along K), dense_fp8_tensor, dense_fp8_row, dense_bf16, dense_int8 and
    wgrad (FP8 weight gradients added into FP32); of FP8 groups grouped_contiguous, grouped_masked,
    grouped_offsets and k_grouped, whose -m are rows of a group. Each figure is the median replay of
    a CUDA graph whose calls rotate over inputs larger together than L2. Up to M = 128, as in
    decoding with fixed weights, ours is called with static_b=True, and timed without it as well.
    With -n and -k both given, any dense shape can be measured. Exit status 1 where one of our
    own calls failed or gave wrong values.
    """
    chosen, filters = suites_of(kind or [], suite), (m or [], n or [], k or [])
    peers = read_peers(against) if against else []
    if reason := console.no_gpu_reason():
        console.fail(f"bench needs a Hopper GPU: {reason}")
    rows = measure(chosen, *filters)
    show_summary(rows, peers)
    part: Row = {"rows": rows}
    if not any(filters) and any(one.kind == HOST_KIND for one in chosen):
        part |= host_and_first_call()
    if json_path:
        write_record(json_path, part, command(suite, against, kind or [], *filters))
    if failed := [text for row in rows for text in failures(row)]:
        console.fail("\n".join(failed))


def suites_of(kinds: Sequence[str], family: str = "all") -> list[AnySuite]:
    """Return the suites of these kinds, all of the family where none is named."""
    from ..bench.grouped_suite import GROUPED_SUITES
    from ..bench.suites import SUITES

    dense: dict[str, AnySuite] = {**SUITES}
    grouped: dict[str, AnySuite] = {**GROUPED_SUITES}
    families = {"dense": dense, "grouped": grouped, "all": dense | grouped}
    if family not in families:
        known = ", ".join(families)
        raise typer.BadParameter(f"no suite {family!r}; there are {known}", param_hint="--suite")
    found = families[family]
    for kind in kinds:
        if kind not in found:
            known = ", ".join(found)
            raise typer.BadParameter(f"no kind {kind!r}; there are {known}", param_hint="--kind")
    return [found[kind] for kind in dict.fromkeys(kinds or found)]


def read_peers(path: Path) -> list[Row]:
    """Return the rows of a file of recorded peers."""
    try:
        return json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{path}: {error!r}", param_hint="--against") from None


def measure(chosen: Sequence[AnySuite], ms: Ints, ns: Ints, ks: Ints) -> list[Row]:
    """Measure suites reduced to these values, printing each row as it is done."""
    from ..bench.nvml import NvmlDevice

    wanted: list[tuple[AnySuite, list[Any]]]
    wanted = [(one, one.reduced(ms, ns, ks)) for one in chosen]
    if not any(shapes for _, shapes in wanted):
        console.fail("no shape of the suites has these values of n or k; give both to add one")
    device, rows = NvmlDevice(), []
    for one, shapes in wanted:
        if shapes:
            console.out.print(f"{one.title} ({one.kind})", markup=False)
            console.out.print(header(one), markup=False, soft_wrap=True)
        for row in rows_of(one, shapes, device):
            console.out.print(line(row), markup=False, soft_wrap=True)
            rows.append(row)
    return rows


def rows_of(one: AnySuite, shapes: list[Any], device: NvmlDevice) -> Iterator[Row]:
    """Return the measured rows of some shapes of a suite."""
    from ..bench import grouped_suite, suite

    if isinstance(one, suite.Suite):
        return suite.measure(one, shapes, device)
    return grouped_suite.measure(one, shapes, device)


VARIANTS = {
    "ours": "ours us",
    "ours_plain": "without static_b us",
    "ours_promoted": "promoted us",
    "ours_labels_128": "padded us",
}


def header(suite: AnySuite) -> str:
    """Return what stands above the rows of a suite."""
    return " ".join(f"{name:>{width}}" for name, width in columns(suite)) + "  config"


def columns(suite: AnySuite) -> list[tuple[str, int]]:
    """Return name and width of the columns of a suite, all but the last."""
    names = [*suite.keys, *(VARIANTS[name] for name in variants(suite))]
    names += ["TFLOPS", "GB/s", "floor", "MHz"]
    names += [name for peer in suite.columns for name in (f"{peer} us", "ratio")]
    return [(name, max(len(name), 6)) for name in names]


@cache
def variants(suite: AnySuite) -> list[str]:
    """Return the variants of our call that any shape of a suite has."""
    found = {name for shape in suite.shapes for name in suite.variants(*shape)}
    return [name for name in VARIANTS if name in found]


def line(row: Row) -> str:
    """Return one row as text: our times, rates, share of the floor, and the others' times.

    Rates, floor and ratios are of `ours`.
    """
    from ..bench import summary

    suite, share = summary.suite_of(row["kind"]), summary.floor_share(row)
    cells = [*(row[key] for key in suite.keys)]
    cells += [_fixed(row.get(name), 2) for name in variants(suite)]
    cells += [_fixed(summary.tflops(row), 0), _fixed(summary.gbs(row), 0)]
    cells += ["-" if share is None else f"{100 * share:.0f}%", row.get("mhz") or "-"]
    for peer in suite.columns:
        cells += [_fixed(row.get(peer), 2), _fixed(summary.versus(peer)(row), 2)]
    widths = (width for _, width in columns(suite))
    aligned = (f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return " ".join(aligned) + f"  {row['config']}"


def _fixed(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def show_summary(rows: Sequence[Row], peers: Sequence[Row]) -> None:
    """Print the ratios against every library; those of dense_fp8 by class of M."""
    from ..bench import summary

    if dense := summary.of_kind(rows, "dense_fp8"):
        _show_classes(dense, peers)
    found = summary.outcomes(rows, peers)
    if not found:
        return
    made = console.table(
        "time of the other over ours (above 1: ours is faster), or TFLOPS",
        ("product", "against"),
        ("shapes", "geometric mean", "worst", "at m x n x k", "wanted", "met"),
    )
    verdicts = {None: "", True: "yes", False: "NO"}
    for one in found:
        cells = _figures(one.found)
        made.add_row(one.title, one.found.label, *cells, one.comparison.wanted, verdicts[one.met])
    console.out.print(made)


def _show_classes(rows: Sequence[Row], peers: Sequence[Row]) -> None:
    from ..bench import summary

    made = console.table(
        "time of the other over ours (above 1: ours is faster)",
        ("against", "M"),
        ("shapes", "geometric mean", "worst", "at m x n x k"),
    )
    for label, ratio in summary.comparisons(peers).items():
        for found in summary.by_class(rows, ratio):
            made.add_row(label, found.label, *_figures(found))
    console.out.print(made)


def _figures(found: Any) -> tuple[str, str, str, str]:
    """Return the cells of a summary: how many, mean, worst and where."""
    shape = " x ".join(map(str, found.worst_shape))
    return str(found.count), f"{found.mean:.3f}", f"{found.worst:.3f}", shape


def host_and_first_call() -> Row:
    """Measure and print the host time of a warm call and the first call of a new shape."""
    from ..bench import dense_suite, first_call

    host, first = dense_suite.host_times(), first_call.measure()
    console.out.print("host us per warm call: " + ", ".join(f"{k} {v}" for k, v in host.items()))
    console.out.print(
        f"first call of a new shape: {first['empty']} s with an empty kernel cache, "
        f"{first['kept']} s with a kept kernel"
    )
    return {"host_us": host, "first_call_s": first["empty"], "first_call_kept_s": first["kept"]}


def command(
    family: str, against: Path | None, kinds: Sequence[str], ms: Ints, ns: Ints, ks: Ints
) -> str:
    """Return the command that repeats a measurement, without the folders of this machine."""
    words = ["deep-gemm", "bench", "--suite", family]
    given: tuple[tuple[str, Sequence[object]], ...]
    given = (("--kind", kinds), ("-m", ms), ("-n", ns), ("-k", ks))
    for option, values in given:
        words += [word for value in values for word in (option, str(value))]
    if against:
        words += ["--against", against.name if against.is_absolute() else against.as_posix()]
    return shlex.join(words)


def write_record(target: Path, part: Row, command: str) -> None:
    """Merge the figures of this run into the record at `target`."""
    from ..bench import record

    meta = record.environment()
    clocks = [row["mhz"] for row in part["rows"] if row.get("mhz")]
    if clocks:
        meta["clock"]["sm_mhz_median"] = round(statistics.median(clocks))
    meta["command"] = command
    path = record.result_path(target, meta["gpu"])
    record.update(path, {"meta": meta, **part})
    console.out.print(f"record: {path}", markup=False, soft_wrap=True)


def failures(row: Row) -> list[str]:
    """Return a sentence for each variant of our call that gave no figure."""
    named = [name for name in VARIANTS if name == "ours" or name in row]
    what = f"{row['kind']} {row['m']} x {row['n']} x {row['k']}"
    errors = row.get("errors", {})
    return [f"{what}, {one}: {errors.get(one, 'no figure')}" for one in named if not row.get(one)]
