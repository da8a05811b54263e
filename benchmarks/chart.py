"""Draw docs/speed.svg from the committed record: speed over other libraries by M.

python3 benchmarks/chart.py           print the SVG
python3 benchmarks/chart.py --write   write it

A point is the geometric mean, over the shapes N x K of the record, of the other library's time over
ours. Times of both are of one run, taken in turns, except upstream's: see docs/performance.md.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep_gemm.bench import record, summary

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "h200.json"
PEERS = ROOT / "benchmarks" / "peers" / "h200.json"
CHART = ROOT / "docs" / "speed.svg"

WIDTH, HEIGHT = 860, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 834, 52, 232  # the plot area
FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass(frozen=True)
class Series:
    """One line of the chart: a kind of rows, and the ratio that it shows."""

    label: str
    kind: str
    ratio: summary.Ratio
    color: str
    dash: str = ""

    def points(self, rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
        """Return the geometric mean of the ratio by M."""
        found: dict[int, list[float]] = {}
        for row in summary.of_kind(rows, self.kind):
            value = self.ratio(row)
            if value:
                found.setdefault(row["m"], []).append(value)
        return {m: summary.geometric_mean(values) for m, values in sorted(found.items())}


def series(peers: Sequence[Mapping[str, Any]]) -> tuple[Series, ...]:
    """Return the lines of the chart."""
    return (
        Series(
            "FP8 with block scales / cuBLASLt with block scales",
            "dense_fp8",
            summary.versus("cublas_block"),
            "#1f6feb",
        ),
        Series(
            "FP8 with block scales / upstream DeepGEMM (recorded)",
            "dense_fp8",
            summary.versus_recorded(peers),
            "#8250df",
            "6 4",
        ),
        Series(
            "FP8 with a scale per tensor / cuBLASLt",
            "dense_fp8_tensor",
            summary.versus("cublas_tensor"),
            "#bc4c00",
        ),
        Series("BF16 / cuBLASLt", "dense_bf16", summary.versus("cublas"), "#1a7f37"),
    )


def render(found: Mapping[str, Any], peers: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    lines = [(one, one.points(found["rows"])) for one in series(peers["rows"])]
    ms = sorted({m for _, points in lines for m in points})
    top = math.ceil(max(v for _, points in lines for v in points.values()) * 2) / 2
    meta = found["meta"]
    title = f"Speed over other libraries, {meta['gpu']}, CUDA {meta['cuda']}, {meta['date']}"
    note = "Time of the other over ours; geometric mean over the shapes N x K. Above 1: faster."
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>",
        f"<title>{title}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
        _text(LEFT, 22, title, 15, weight="bold"),
        _text(LEFT, 40, note, 12, color="#57606a"),
        *_axes(ms, top),
    ]
    for index, (one, points) in enumerate(lines):
        parts += _line(one, points, ms, top)
        parts += _legend(one, index)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(m: int, ms: Sequence[int]) -> float:
    return LEFT + (RIGHT - LEFT) * (ms.index(m) + 0.5) / len(ms)


def _y(value: float, top: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * value / top


def _text(
    x: float, y: float, text: str, size: int, *, color: str = "#24292f", weight: str = "normal"
) -> str:
    style = f"{FONT} font-size='{size}' font-weight='{weight}' fill='{color}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{text}</text>"


def _axes(ms: Sequence[int], top: float) -> list[str]:
    """Return the grid, its numbers, and a stronger line where both are equally fast."""
    parts = []
    for half in range(int(top * 2) + 1):
        value = half / 2
        y, color = _y(value, top), "#24292f" if value == 1 else "#d0d7de"
        parts.append(f"<line x1='{LEFT}' y1='{y:.1f}' x2='{RIGHT}' y2='{y:.1f}' stroke='{color}'/>")
        parts.append(_text(LEFT - 30, y + 4, f"{value:.1f}", 12))
    parts += [_text(_x(m, ms) - 4 * len(str(m)), BOTTOM + 18, str(m), 12) for m in ms]
    return [*parts, _text(LEFT - 30, BOTTOM + 18, "M", 12, weight="bold")]


def _line(one: Series, points: Mapping[int, float], ms: Sequence[int], top: float) -> list[str]:
    places = [(_x(m, ms), _y(value, top)) for m, value in points.items()]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = f" stroke-dasharray='{one.dash}'" if one.dash else ""
    style = f"fill='none' stroke='{one.color}' stroke-width='2'{dash}"
    dots = [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{one.color}'/>" for x, y in places]
    return [f"<polyline points='{path}' {style}/>", *dots]


def _legend(one: Series, index: int) -> list[str]:
    x, y = LEFT + 400 * (index % 2), BOTTOM + 48 + 22 * (index // 2)
    dash = f" stroke-dasharray='{one.dash}'" if one.dash else ""
    ends = f"x1='{x}' y1='{y - 4}' x2='{x + 26}' y2='{y - 4}'"
    return [
        f"<line {ends} stroke='{one.color}' stroke-width='2'{dash}/>",
        _text(x + 32, y, one.label, 12),
    ]


def current() -> str:
    """Return the chart as the committed record gives it."""
    found = record.read(RECORD)
    if found is None:
        raise SystemExit("no record is committed: make gpu-bench on a Hopper GPU writes one")
    return render(found, json.loads(PEERS.read_text()))


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        CHART.write_text(current())
    else:
        print(current(), end="")
