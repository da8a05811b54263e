"""Time the candidates of the cost model on a suite: is the chosen one near the best?

    python3 benchmarks/sweep.py [OUT.json] [--kind dense_bf16] [--variant ours] [--top 16]
                                [--m 64 128] [--n 2112] [--k 7168] [--json TIMES.json]

Kinds are those of `deep-gemm bench`, variants the keys of our call in their rows (`ours`,
`ours_plain`, `ours_promoted`). For each shape, the `top` candidates by predicted time are measured
(CUDA-graph replays over rotating inputs, interleaved, median; microseconds per call). Prints, per
shape, the chosen and the best. Where the choice is more than 5 % behind, both are measured again,
for longer, so that noise does not decide. At the end: how far the choice is behind.

OUT.json keeps a row for each shape. TIMES.json is for fitting the model: a list of objects with
kind, variant, m, n, k, config, us and predicted, one for each time. A candidate that cannot run is
named and left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from deep_gemm.bench.suite import Operands, Shape, Suite, Weight, compile_ahead, rotating_sets
from deep_gemm.bench.suites import SUITES
from deep_gemm.bench.summary import geometric_mean
from deep_gemm.bench.timing import WARM_MS, Captured, capture, keep_busy, time_interleaved
from deep_gemm.config import Candidate, DeviceSpec, GemmConfig, explain, forced, from_index
from deep_gemm.errors import DeepGemmError
from deep_gemm.problem import GemmProblem

TOLERANCE = 1.05  # how far the chosen may be behind before both are measured again
ROUNDS = 5

Row = dict[str, Any]


def main() -> None:
    """Run the sweep named on the command line."""
    args = _arguments()
    suite = SUITES[args.kind]
    rows = sweep(suite, args.variant, suite.reduced(args.m, args.n, args.k), args.top)
    _write(args, rows)
    if not rows:
        raise SystemExit("no shape of this suite has this variant, these values of n or k")
    report("measured once", rows)
    rows = again(rows)
    _write(args, rows)
    report("where over 5 % measured again", rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--json", type=Path, help="every time, for fitting the model")
    parser.add_argument("--kind", choices=SUITES, default="dense_fp8")
    parser.add_argument("--variant", default="ours", help="of our call; ours")
    parser.add_argument("--top", type=int, default=16, help="candidates timed per shape")
    for name in ("--m", "--n", "--k"):
        parser.add_argument(name, type=int, nargs="*", default=[])
    return parser.parse_args()


def _write(args: argparse.Namespace, rows: Sequence[Row]) -> None:
    if args.out:
        args.out.write_text(json.dumps(rows))
    if args.json:
        args.json.write_text("[\n" + ",\n".join(map(json.dumps, times(rows))) + "\n]\n")


def times(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield every time of the rows by itself, the later one where a candidate has two."""
    for row in rows:
        shape = {key: row[key] for key in ("kind", "variant", "m", "n", "k")}
        later = row.get("again", {})
        newer = {row[which]: later[f"{which}_us"] for which in ("chosen", "best") if later}
        for name, (predicted, us) in row["candidates"].items():
            yield {**shape, "config": name, "us": newer.get(name, us), "predicted": predicted}


def behind(row: Row) -> float:
    """Return the chosen one's time over the best one's, by their last measurement."""
    times = row.get("again", row)
    return times["chosen_us"] / times["best_us"]


def report(how: str, rows: Sequence[Row]) -> None:
    """Print how far the choice is behind: the mean, and the worst shape."""
    worst = max(rows, key=behind)
    mean = geometric_mean([behind(row) for row in rows])
    print(f"chosen over best, {how}: mean {mean:.3f}, worst {behind(worst):.3f} at {_name(worst)}")


def _name(row: Row) -> str:
    return f"{row['m']} x {row['n']} x {row['k']}"


def again(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, with both times measured again under `again` where over TOLERANCE."""
    over = [row for row in rows if behind(row) > TOLERANCE]
    print(f"more than {TOLERANCE - 1:.0%} behind: {len(over)} of {len(rows)} shapes", flush=True)
    device = from_index(torch.cuda.current_device())
    return [_again(row, device) if row in over else row for row in rows]


def _again(row: Row, device: DeviceSpec) -> Row:
    suite = SUITES[row["kind"]]
    problem = suite.variants(row["m"], row["n"], row["k"])[row["variant"]]
    configs = {c.config.name: c.config for c in explain(problem, device)}
    calls = Timed(suite, problem, rotating_sets(problem, []))
    which = "chosen", "best"
    two = {f"{name}_us": calls.captured(configs[row[name]], 10.0) for name in which}
    medians = interleaved(two)
    result = {**row, "again": medians}
    print(f"{_name(row)}: {behind(row):.3f}, again {behind(result):.3f}  "
          f"chosen {row['chosen']} {medians['chosen_us']:.2f}  "
          f"best {row['best']} {medians['best_us']:.2f}", flush=True)  # fmt: skip
    return result


def sweep(suite: Suite, variant: str, wanted: Sequence[Shape], top: int) -> list[Row]:
    """Return one row per shape that has the variant: predicted and measured microseconds of its
    best candidates."""
    device = from_index(torch.cuda.current_device())
    variants = [suite.variants(*shape) for shape in wanted]
    problems = [found[variant] for found in variants if variant in found]
    ranked = [(problem, explain(problem, device)[:top]) for problem in problems]
    compile_ahead(candidate.config for _, found in ranked for candidate in found)
    rows: list[Row] = []
    weights: dict[tuple[int, int], list[Weight]] = {}
    for problem, found in ranked:
        if (problem.n, problem.k) not in weights:
            weights = {(problem.n, problem.k): []}
        calls = Timed(suite, problem, rotating_sets(problem, weights[problem.n, problem.k]))
        if row := _row(calls, found):
            rows.append({"kind": suite.kind, "variant": variant, **row})
    return rows


class Timed:
    """The calls of one problem, to be timed with one configuration after another."""

    def __init__(self, suite: Suite, problem: GemmProblem, sets: list[Operands]):
        self.suite, self.problem, self.sets = suite, problem, sets

    def captured(self, config: GemmConfig, target_ms: float) -> Captured:
        """Return a graph of so many milliseconds."""
        with forced(config):
            return capture(self.suite.calls(self.problem, self.sets), target_ms)


def interleaved(captured: Mapping[str, Captured]) -> dict[str, float]:
    """Return microseconds per call, once the card's clock no longer depends on what ran before.

    Timed one after the other, the first would be timed at another clock.
    """
    keep_busy(next(iter(captured.values())).replay, WARM_MS)
    return {name: round(us, 3) for name, us in time_interleaved(captured, ROUNDS).items()}


def _row(calls: Timed, found: Sequence[Candidate]) -> Row | None:
    """Return what was measured of one problem; None where the chosen candidate cannot run."""
    shape = {"m": calls.problem.m, "n": calls.problem.n, "k": calls.problem.k}
    captured: dict[str, Captured] = {}
    for candidate in found:
        name = candidate.config.name
        try:
            captured[name] = calls.captured(candidate.config, 2.0)
        except DeepGemmError as error:
            print(f"{_name(shape)}: {name} left out: {str(error).splitlines()[0]}", flush=True)
    chosen = next(c.config.name for c in found if c.chosen)
    if chosen not in captured:
        return None
    predicted = {c.config.name: round(c.estimate_us, 2) for c in found}
    measured = {name: (predicted[name], us) for name, us in interleaved(captured).items()}
    best = min(measured, key=lambda name: measured[name][1])
    row = {
        **shape,
        "chosen": chosen, "chosen_us": measured[chosen][1],
        "best": best, "best_us": measured[best][1],
        "candidates": measured,
    }  # fmt: skip
    m, n, k = shape.values()
    print(f"{m:5d} {n:5d} {k:5d}  chosen {chosen} {row['chosen_us']:.2f} (predicted "
          f"{measured[chosen][0]})  best {best} {row['best_us']:.2f}  "
          f"ratio {behind(row):.3f}", flush=True)  # fmt: skip
    return row


if __name__ == "__main__":
    main()
