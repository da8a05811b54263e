"""What the rows of a benchmark say: floors, ratios, geometric means by class of M.

Pure functions over rows (see `record`); times are microseconds, ratios above 1 are in our favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problem import GemmProblem
from .record import row_key

Row = Mapping[str, Any]
Ratio = Callable[[Row], "float | None"]

HBM_TBS, HBM_START_US = 4.6, 1.7
FP8_TFLOPS, FP8_START_US = 1400.0, 2.0

M_CLASSES: tuple[tuple[str, int, int], ...] = (
    ("M <= 16", 1, 16),
    ("M 17 to 128", 17, 128),
    ("M 129 to 1023", 129, 1023),
    ("M >= 1024", 1024, 1 << 62),
    ("all shapes", 1, 1 << 62),
)
UPSTREAM = "upstream DeepGEMM, recorded and corrected"


def floor_us(m: int, n: int, k: int) -> float:
    """Return the least time an H200 was seen to allow, by memory and by tensor cores.

    1.7 us + bytes / 4.6 TB/s is a plain read of HBM; 2 us + FLOPs / 1400 TFLOPS a sustained
    stream of FP8 products under the power limit.
    """
    problem = GemmProblem.block_scaled(m, n, k)
    memory = HBM_START_US + problem.bytes / (HBM_TBS * 1e6)
    compute = FP8_START_US + problem.flops / (FP8_TFLOPS * 1e6)
    return max(memory, compute)


def _problem(row: Row) -> GemmProblem:
    return GemmProblem.block_scaled(row["m"], row["n"], row["k"])


def tflops(row: Row) -> float | None:
    """Return our TFLOPS."""
    us = row.get("ours")
    return _problem(row).flops / us / 1e6 if us else None


def gbs(row: Row) -> float | None:
    """Return our GB/s over the bytes that must move."""
    us = row.get("ours")
    return _problem(row).bytes / us / 1e3 if us else None


def floor_share(row: Row) -> float | None:
    """Return the floor over our time: 1 is as fast as the device was seen to be."""
    us = row.get("ours")
    return floor_us(row["m"], row["n"], row["k"]) / us if us else None


def versus(name: str) -> Ratio:
    """Return the ratio of a library's time in the same run over ours."""

    def ratio(row: Row) -> float | None:
        ours, theirs = row.get("ours"), row.get(name)
        return theirs / ours if ours and theirs else None

    return ratio


def versus_recorded(peers: Iterable[Row], form: str = "ours") -> Ratio:
    """Return the ratio of upstream's recorded time over ours, corrected for the machine.

    The recorded time is multiplied by cuBLASLt's (one scale a tensor) in this run over cuBLASLt's
    in the recorded run of the same shape, so that clock and power of the two runs cancel.

    form: the key of our time; `ours_plain` leaves out the rows where the two forms are one.
    """
    timed = (row for row in peers if row.get("upstream") and "k" in row and "m" in row)
    recorded = {row_key(row): row for row in timed}

    def ratio(row: Row) -> float | None:
        then = recorded.get(row_key(row))
        ours, now = row.get(form), row.get("cublas_tensor")
        if not then or not ours or not now or not then.get("cublas_tensor"):
            return None
        return then["upstream"] * (now / then["cublas_tensor"]) / ours

    return ratio


def comparisons(peers: Sequence[Row] = ()) -> dict[str, Ratio]:
    """Return the ratio to every library by its label; `peers` are rows recorded elsewhere."""
    found = {
        "cuBLASLt, one scale a tensor": versus("cublas_tensor"),
        "cuBLASLt, block scales": versus("cublas_block"),
        "torch, one scale a row": versus("torch_row"),
    }
    if peers:
        found[UPSTREAM] = versus_recorded(peers)
        found[f"{UPSTREAM}, plain form"] = versus_recorded(peers, "ours_plain")
    return found


@dataclass(frozen=True)
class ClassSummary:
    """One class of M against one library: geometric mean and the worst shape."""

    label: str
    count: int
    mean: float
    worst: float
    worst_shape: tuple[int, int, int]


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values."""
    return math.exp(sum(map(math.log, values)) / len(values))


def by_class(rows: Iterable[Row], ratio: Ratio) -> list[ClassSummary]:
    """Return a summary per class of M that has at least one row with this ratio."""
    rows = list(rows)
    found = []
    for label, low, high in M_CLASSES:
        scored = [
            (value, (row["m"], row["n"], row["k"]))
            for row in rows
            if low <= row["m"] <= high and (value := ratio(row)) is not None
        ]
        if scored:
            worst, shape = min(scored)
            mean = geometric_mean([value for value, _ in scored])
            found.append(ClassSummary(label, len(scored), mean, worst, shape))
    return found
