"""Time the candidates of the cost model on the dense suite: is the chosen one near the best?

    python3 benchmarks/sweep.py OUT.json [--top 16] [--m 64 128] [--n 2112] [--k 7168]

For each shape, the `top` candidates by predicted time are measured (CUDA-graph replay over rotating
inputs, median; microseconds per call). Prints, per shape, the chosen and the best. Where the choice
is more than 5 % behind, both are measured again, for longer and in turns, so that noise does not
decide. At the end: how far the choice is behind. OUT.json keeps every figure for refitting the
model.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from deep_gemm.config import Candidate, DeviceSpec, GemmConfig, explain, forced, from_index
from deep_gemm.jit import build
from deep_gemm.kernels.gemm_sm90 import translation_unit
from deep_gemm.testing.dense_suite import Operands, Weight, ours, problem, rotating_sets, shapes
from deep_gemm.testing.summary import geometric_mean
from deep_gemm.testing.timing import WARM_MS, time_calls

TOLERANCE = 1.05  # how far the chosen may be behind before both are measured again
TURNS = 5


def main() -> None:
    """Run the sweep named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--top", type=int, default=16, help="candidates timed per shape")
    parser.add_argument("--m", type=int, nargs="*", default=[])
    parser.add_argument("--n", type=int, nargs="*", default=[])
    parser.add_argument("--k", type=int, nargs="*", default=[])
    args = parser.parse_args()
    rows = sweep(shapes(args.m, args.n, args.k), args.top)
    args.out.write_text(json.dumps(rows))
    report("measured once", rows)
    rows = again(rows)
    args.out.write_text(json.dumps(rows))
    report("where over 5 % measured again", rows)


def behind(row: dict) -> float:
    """Return the chosen one's time over the best one's, by their last measurement."""
    times = row.get("again", row)
    return times["chosen_us"] / times["best_us"]


def report(how: str, rows: list[dict]) -> None:
    """Print how far the choice is behind: the mean, and the worst shape."""
    worst = max(rows, key=behind)
    mean = geometric_mean([behind(row) for row in rows])
    print(f"chosen over best, {how}: mean {mean:.3f}, worst {behind(worst):.3f} at {_name(worst)}")


def _name(row: dict) -> str:
    return f"{row['m']} x {row['n']} x {row['k']}"


def again(rows: list[dict]) -> list[dict]:
    """Return the rows, with both times measured again under `again` where over TOLERANCE."""
    over = [row for row in rows if behind(row) > TOLERANCE]
    print(f"more than {TOLERANCE - 1:.0%} behind: {len(over)} of {len(rows)} shapes", flush=True)
    device = from_index(torch.cuda.current_device())
    return [_again(row, device) if row in over else row for row in rows]


def _again(row: dict, device: DeviceSpec) -> dict:
    shape = row["m"], row["n"], row["k"]
    configs = {c.config.name: c.config for c in explain(problem(*shape), device)}
    sets = rotating_sets(*shape, [])
    times: dict[str, list[float]] = {"chosen": [], "best": []}
    for _ in range(TURNS):
        for which, found in times.items():
            found.append(_time(configs[row[which]], sets, target_ms=10.0, warm_ms=WARM_MS))
    medians = {f"{which}_us": statistics.median(found) for which, found in times.items()}
    result = {**row, "again": medians}
    print(f"{_name(row)}: {behind(row):.3f}, again {behind(result):.3f}  "
          f"chosen {row['chosen']} {medians['chosen_us']:.2f}  "
          f"best {row['best']} {medians['best_us']:.2f}", flush=True)  # fmt: skip
    return result


def sweep(wanted: list[tuple[int, int, int]], top: int) -> list[dict]:
    """Return one row per shape: predicted and measured microseconds of its best candidates."""
    device = from_index(torch.cuda.current_device())
    ranked = {shape: explain(problem(*shape), device)[:top] for shape in wanted}
    configs = {candidate.config for found in ranked.values() for candidate in found}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda config: build(translation_unit(config)), configs))
    rows: list[dict] = []
    weights: dict[tuple[int, int], list[Weight]] = {}
    for m, n, k in wanted:
        if (n, k) not in weights:
            weights = {(n, k): []}
        rows.append(_row((m, n, k), ranked[m, n, k], weights[n, k]))
    return rows


def _row(shape: tuple[int, int, int], found: list[Candidate], weights: list[Weight]) -> dict:
    m, n, k = shape
    sets = rotating_sets(m, n, k, weights)
    _time(found[0].config, sets, warm_ms=WARM_MS)  # the clock is up from here on
    measured = {c.config.name: (round(c.estimate_us, 2), _time(c.config, sets)) for c in found}
    chosen = next(c.config.name for c in found if c.chosen)
    best = min(measured, key=lambda name: measured[name][1])
    row = {
        "m": m, "n": n, "k": k,
        "chosen": chosen, "chosen_us": measured[chosen][1],
        "best": best, "best_us": measured[best][1],
        "candidates": measured,
    }  # fmt: skip
    print(f"{m:5d} {n:5d} {k:5d}  chosen {chosen} {row['chosen_us']:.2f} (predicted "
          f"{measured[chosen][0]})  best {best} {row['best_us']:.2f}", flush=True)  # fmt: skip
    return row


def _time(
    config: GemmConfig, sets: list[Operands], target_ms: float = 3.0, warm_ms: float = 3.0
) -> float:
    with forced(config):
        return round(time_calls(ours(sets), target_ms=target_ms, warm_ms=warm_ms), 3)


if __name__ == "__main__":
    main()
