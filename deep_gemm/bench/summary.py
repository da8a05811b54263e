"""What the rows of a benchmark say: floors, ratios, geometric means by class of M and by kind.

Pure functions over rows (see `record`); times are microseconds, ratios above 1 are in our favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problem import GemmProblem
from .grouped_suite import GROUPED_SUITES, GroupedSuite
from .record import row_key
from .suite import Suite
from .suites import SUITES

Row = Mapping[str, Any]
Ratio = Callable[[Row], "float | None"]

HBM_TBS, HBM_START_US = 4.6, 1.7
# Sustained, by bytes of an operand's element.
TFLOPS, COMPUTE_START_US = {1: 1400.0, 2: 700.0}, 2.0

EVERY_M = 1 << 62
M_CLASSES: tuple[tuple[str, int, int], ...] = (
    ("M <= 16", 1, 16),
    ("M 17 to 128", 17, 128),
    ("M 129 to 1023", 129, 1023),
    ("M >= 1024", 1024, EVERY_M),
    ("all shapes", 1, EVERY_M),
)
UPSTREAM = "upstream DeepGEMM, recorded and corrected"
PADDED = "ours, the same rows padded to 128 a group"


def of_kind(rows: Iterable[Any], kind: str) -> list[Any]:
    """Return the rows of one kind."""
    return [row for row in rows if row["kind"] == kind]


def floor_us(problem: GemmProblem) -> float:
    """Return the least time an H200 was seen to allow, by memory and by tensor cores.

    1.7 us + bytes / 4.6 TB/s is a read of HBM; 2 us + FLOPs / 1400 TFLOPS a sustained
    stream of products of 8-bit operands under the power limit, at half that rate of 16-bit ones.
    """
    return _floor_us(problem.flops, problem.bytes, problem.a_dtype.bytes)


def _floor_us(flops: int, read: int, element_bytes: int) -> float:
    memory = HBM_START_US + read / (HBM_TBS * 1e6)
    compute = COMPUTE_START_US + flops / (TFLOPS[element_bytes] * 1e6)
    return max(memory, compute)


def suite_of(kind: str) -> Suite | GroupedSuite:
    """Return the suite of a kind of rows."""
    return GROUPED_SUITES[kind] if kind in GROUPED_SUITES else SUITES[kind]


def _work(row: Row) -> tuple[int, int, int]:
    """Return FLOPs and bytes that must move, of valid rows, and bytes of an operand's element."""
    suite, (m, n, k) = suite_of(row["kind"]), (row["m"], row["n"], row["k"])
    if isinstance(suite, GroupedSuite):
        return 2 * m * n * k, suite.bytes(dict(row)), 1
    problem = suite.variants(m, n, k)["ours"]
    return problem.flops, problem.bytes, problem.a_dtype.bytes


def tflops(row: Row) -> float | None:
    """Return our TFLOPS."""
    us = row.get("ours")
    return _work(row)[0] / us / 1e6 if us else None


def gbs(row: Row) -> float | None:
    """Return our GB/s over the bytes that must move."""
    us = row.get("ours")
    return _work(row)[1] / us / 1e3 if us else None


def weights_tbs(row: Row) -> float | None:
    """Return the TB/s at which we read the weights of all groups."""
    us = row.get("ours")
    return row["groups"] * row["n"] * row["k"] / us / 1e6 if us else None


def floor_share(row: Row) -> float | None:
    """Return the floor over our time: 1 is as fast as the device was seen to be."""
    us = row.get("ours")
    return _floor_us(*_work(row)) / us if us else None


def versus(name: str, variant: str = "ours") -> Ratio:
    """Return the ratio of a library's time over ours, both of this run.

    variant: the key of our time; a row without it has no ratio.
    """

    def ratio(row: Row) -> float | None:
        ours, theirs = row.get(variant), row.get(name)
        return theirs / ours if ours and theirs else None

    return ratio


def versus_recorded(peers: Iterable[Row], variant: str = "ours") -> Ratio:
    """Return the ratio of upstream's recorded time over ours, corrected for the machine.

    The recorded time is multiplied by cuBLASLt's time of the shape (Suite.corrected_by; with
    groups, of the row's `dense_shape`) in this run over its time in the recorded run, so that clock
    and power of the two runs cancel. Where a row has times that were taken first, as the recorded
    ones were, those are used.

    variant: the key of our time; `ours_plain` leaves out rows that have no such time.
    """
    timed = (row for row in peers if row.get("upstream") and "k" in row)
    recorded = {row_key(row): row for row in timed}

    def ratio(row: Row) -> float | None:
        then = recorded.get(row_key(row))
        library = suite_of(row["kind"]).corrected_by
        if not then or not library:
            return None
        names = variant, library
        first = tuple(f"{name}_first" for name in names)
        ours, now = (row.get(name) for name in (first if all(n in row for n in first) else names))
        if "dense_shape" in row:
            dense = recorded.get(("dense_fp8", *row["dense_shape"]), {})
            before = dense.get("cublas_tensor")
        else:
            before = then.get(library)
        return then["upstream"] * (now / before) / ours if ours and now and before else None

    return ratio


def versus_best(ratios: Sequence[Ratio]) -> Ratio:
    """Return the least of several ratios: against the fastest of the others."""

    def ratio(row: Row) -> float | None:
        return min((value for one in ratios if (value := one(row)) is not None), default=None)

    return ratio


def comparisons(peers: Sequence[Row] = ()) -> dict[str, Ratio]:
    """Return for "dense_fp8" the ratio to every library by its label.

    peers: rows recorded elsewhere.
    """
    found = {
        "cuBLASLt, one scale a tensor": versus("cublas_tensor"),
        "cuBLASLt, block scales": versus("cublas_block"),
        "torch, one scale a row": versus("torch_row"),
    }
    if peers:
        found[UPSTREAM] = versus_recorded(peers)
        found[f"{UPSTREAM}, without static_b"] = versus_recorded(peers, "ours_plain")
    return found


@dataclass(frozen=True)
class Comparison:
    """A figure of the rows of one kind, and what is wanted of it.

    value: a ratio above 1 in our favour, or TFLOPS.
    mean, worst: wanted of the geometric mean and of every shape; None where nothing is.
    from_m: rows of a smaller M are left out.
    """

    kind: str
    label: str
    value: Ratio
    mean: float | None = None
    worst: float | None = None
    from_m: int = 1

    @property
    def wanted(self) -> str:
        """What is wanted, for people; "" where nothing is."""
        wishes = (("mean", self.mean), ("worst", self.worst))
        return ", ".join(f"{name} >= {value:g}" for name, value in wishes if value is not None)


def other_comparisons(peers: Sequence[Row] = ()) -> list[Comparison]:
    """Return the figures of every kind but "dense_fp8"; `peers` are rows recorded elsewhere."""
    cublas, upstream = versus("cublas"), versus_recorded(peers)
    fastest = versus_best((cublas, upstream))
    tensor, row = "cuBLASLt, fast accumulation", "torch, fast accumulation"
    found = [Comparison("dense_int8", "cuBLASLt", cublas, 1.5, 1.1)]
    for kind, label, name, mean in (
        ("dense_fp8_tensor", tensor, "cublas_tensor", 1.05),
        ("dense_fp8_row", row, "torch_row", 1.15),
    ):
        found += [
            Comparison(kind, label, versus(name), mean, 0.93),
            Comparison(kind, f"{label}; ours without static_b", versus(name, "ours_plain")),
            Comparison(kind, f"{label}; ours promoted", versus(name, "ours_promoted")),
        ]
    return [
        *found,
        Comparison("dense_bf16", "cuBLASLt", cublas),
        Comparison("dense_bf16", UPSTREAM, upstream),
        Comparison("dense_bf16", "the faster of the two", fastest, 1.0),
        Comparison("dense_bf16", "the faster, M >= 256", fastest, worst=0.95, from_m=256),
        Comparison("wgrad", "TFLOPS", tflops, worst=1000.0),
        Comparison("grouped_contiguous", UPSTREAM, upstream, 1.05),
        Comparison("grouped_contiguous", "TFLOPS", tflops),
        Comparison("grouped_masked", UPSTREAM, upstream, 1.10),
        Comparison("grouped_masked", "TB/s of weights", weights_tbs),
        Comparison("grouped_offsets", PADDED, versus("ours_labels_128"), worst=2.0),
        Comparison("k_grouped", "TFLOPS", tflops, worst=1000.0),
    ]


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
    found = (_class(rows, ratio, *one) for one in M_CLASSES)
    return [one for one in found if one]


def _class(
    rows: Iterable[Row], ratio: Ratio, label: str, low: int, high: int
) -> ClassSummary | None:
    scored = [
        (value, (row["m"], row["n"], row["k"]))
        for row in rows
        if low <= row["m"] <= high and (value := ratio(row)) is not None
    ]
    if not scored:
        return None
    worst, shape = min(scored)
    mean = geometric_mean([value for value, _ in scored])
    return ClassSummary(label, len(scored), mean, worst, shape)


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison over all rows of its kind."""

    comparison: Comparison
    found: ClassSummary

    @property
    def title(self) -> str:
        """Name of the kind for people."""
        return suite_of(self.comparison.kind).title

    @property
    def met(self) -> bool | None:
        """Say whether what is wanted was reached; None where nothing is."""
        wished, found = self.comparison, self.found
        if not wished.wanted:
            return None
        return found.mean >= (wished.mean or 0.0) and found.worst >= (wished.worst or 0.0)


def outcomes(rows: Sequence[Row], peers: Sequence[Row] = ()) -> list[Outcome]:
    """Return the result of every comparison of the kinds in `rows`, "dense_fp8" left out."""
    found = []
    for one in other_comparisons(peers):
        same_kind = of_kind(rows, one.kind)
        if result := _class(same_kind, one.value, one.label, one.from_m, EVERY_M):
            found.append(Outcome(one, result))
    return found
