"""Render the performance section of docs/performance.md from the committed record.

python3 benchmarks/table.py           print the section
python3 benchmarks/table.py --write   put it between the page's markers
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from deep_gemm.bench import record, summary
from deep_gemm.bench.section import Section

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "h200.json"
PEERS = ROOT / "benchmarks" / "peers" / "h200.json"
SECTION = Section(ROOT / "docs" / "performance.md", "performance")
SHOWN_M = (1, 16, 64, 128, 512, 1024, 4096, 8192)
NOTHING = "No record is committed yet; `make gpu-bench` on a Hopper GPU writes one."
# Where the record holds times of both.
STATIC_B = (
    "Up to M = 128 our call is made with `static_b=True`, as decoding with fixed weights allows, "
    "and timed without it as well. Above M = 128 it is made without."
)

Row = Mapping[str, Any]


def render(found: Mapping[str, Any] | None, peers: Mapping[str, Any]) -> str:
    """Return the section as Markdown: what was measured on, ratios by class, times by shape."""
    if not found or not found.get("rows"):
        return NOTHING
    ratios = summary.comparisons(peers["rows"])
    rows, dense = found["rows"], summary.of_kind(found["rows"], "dense_fp8")
    parts = [_header(found), *([STATIC_B] if any("ours_plain" in row for row in rows) else [])]
    if dense:
        parts += [_classes(dense, ratios), _times(dense, peers["rows"])]
    if others := summary.outcomes(rows, peers["rows"]):
        parts.append(_others(others))
    parts.append(_calls(found))
    return "\n\n".join(part for part in parts if part)


def _header(found: Mapping[str, Any]) -> str:
    meta = found["meta"]
    clock = meta.get("clock", {}).get("sm_mhz_median")
    return (
        f"Measured on {meta['gpu']}, driver {meta['driver']}, CUDA {meta['cuda']}, "
        f"torch {meta['torch']}, {meta['date']}"
        + (f", median SM clock {clock} MHz" if clock else "")
        + f", code digest `{meta['digest'][:12]}`."
    )


def _classes(rows: Sequence[Row], ratios: Mapping[str, summary.Ratio]) -> str:
    lines = [
        "Time of the other over ours, same shapes (above 1: this package is faster):",
        "",
        "| against | M | shapes | geometric mean | worst | at M x N x K |",
        "|---|---|---:|---:|---:|---|",
    ]
    for label, ratio in ratios.items():
        for c in summary.by_class(rows, ratio):
            shape = " x ".join(map(str, c.worst_shape))
            lines.append(
                f"| {label} | {c.label} | {c.count} | {c.mean:.2f} | {c.worst:.2f} | {shape} |"
            )
    return "\n".join(lines)


def _others(outcomes: Sequence[summary.Outcome]) -> str:
    lines = [
        "Other kinds of product: time of the other over ours (above 1: ours is faster), or TFLOPS:",
        "",
        "| product | against | shapes | geometric mean | worst | at M x N x K |",
        "|---|---|---:|---:|---:|---|",
    ]
    for one in outcomes:
        found, digits = one.found, 2 if one.found.mean < 100 else 0
        shape = " x ".join(map(str, found.worst_shape))
        figures = f"{found.count} | {found.mean:.{digits}f} | {found.worst:.{digits}f} | {shape}"
        lines.append(f"| {one.title} | {found.label} | {figures} |")
    return "\n".join(lines)


def _times(rows: Sequence[Row], peers: Sequence[Row]) -> str:
    by_shape = {(row["n"], row["k"], row["m"]): row for row in rows}
    nks = list(dict.fromkeys((row["n"], row["k"]) for row in rows))
    shown = [m for m in SHOWN_M if any(row["m"] == m for row in rows)]
    lines = [
        "Microseconds per call, and in parentheses upstream's recorded time, corrected, over ours:",
        "",
        "| N x K | " + " | ".join(f"M = {m}" for m in shown) + " |",
        "|---|" + "---:|" * len(shown),
    ]
    for n, k in nks:
        found = [by_shape.get((n, k, m)) for m in shown]
        lines.append(f"| {n} x {k} | " + _cells(found, peers, "ours"))
        if any(row and "ours_plain" in row for row in found):
            lines.append(f"| {n} x {k}, without `static_b` | " + _cells(found, peers, "ours_plain"))
    return "\n".join(lines)


def _cells(rows: Sequence[Row | None], peers: Sequence[Row], variant: str) -> str:
    ratio = summary.versus_recorded(peers, variant)
    return " | ".join(_cell(row, variant, ratio) for row in rows) + " |"


def _cell(row: Row | None, variant: str, ratio: summary.Ratio) -> str:
    if row is None or not row.get(variant):
        return "-"
    value = ratio(row)
    return f"{row[variant]:.1f}" + (f" ({value:.2f})" if value is not None else "")


def _calls(found: Mapping[str, Any]) -> str:
    sentences = []
    if host := found.get("host_us"):
        sentences.append(
            f"One warm call keeps the host busy for {host['ours']} us; `torch.mm` for "
            f"{host['torch_mm']} us in the same run."
        )
    if "first_call_s" in found:
        sentences.append(
            f"The first call of a new shape takes {found['first_call_s']} s with an empty kernel "
            f"cache, {found['first_call_kept_s']} s where the kernel is kept from before."
        )
    if tests := found.get("tests"):
        sentences.append(
            f"GPU tests of this code: {tests['passed']} passed, {tests['failed']} failed, "
            f"{tests['skipped']} skipped ({tests['command']})."
        )
    return " ".join(sentences)


def current() -> str:
    """Return the section as the committed record gives it."""
    return render(record.read(RECORD), json.loads(PEERS.read_text()))


def main(
    write: Annotated[bool, typer.Option(help="Put it into docs/performance.md.")] = False,
) -> None:
    """Print the performance section, or write it into docs/performance.md."""
    text = current()
    if write:
        SECTION.write(text)
    else:
        typer.echo(text)


if __name__ == "__main__":
    typer.run(main)
