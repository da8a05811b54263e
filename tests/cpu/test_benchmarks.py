"""The scripts for a GPU machine: what they make of their measurements, without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm.bench.suite import Operands
from deep_gemm.bench.suites import SUITES
from deep_gemm.config import by_name, explain
from deep_gemm.errors import CompileError
from deep_gemm.testing.problems import make_block_scaled

from .script_kit import load_script

alignment = load_script("alignment")
sweep = load_script("sweep")


# --- alignment ----------------------------------------------------------------------------------


def test_every_ragged_product_is_nearly_as_large_as_its_aligned_one() -> None:
    for aligned, ragged in alignment.PAIRS.items():
        for shape in ragged:
            assert all(0.97 < x / y < 1.0 for x, y in zip(shape, aligned, strict=True))


def test_share_is_time_per_unit_of_real_work() -> None:
    aligned = alignment.Measured((1024, 1024, 1024), 10.0, 9.0, 1980)
    ragged = alignment.Measured((1000, 1000, 1000), 10.0, None, None)
    assert alignment.share(ragged, aligned) == pytest.approx(1.024**3)
    text = alignment.line(ragged, 132, aligned)
    assert "rows of 1024" in text and "over 1024 x 1024 x 1024: 1.074" in text
    # 2.147 GFLOP in 10 us; the peak of 132 SMs at 1980 MHz is 2141 TFLOPS.
    text = alignment.line(aligned, 132)
    assert "215 TFLOPS" in text and "11% of peak,  10% at 1980 MHz" in text
    assert "cuBLASLt over ours 0.90" in text


def test_aligned_rows_change_no_product(rng: torch.Generator) -> None:
    a, sfa, b, sfb = make_block_scaled(5, 24, 200, generator=rng)
    d = deep_gemm.matmul((a, sfa), (b, sfb))
    padded = alignment.align_operands(Operands(a, sfa, b, sfb, d))
    assert padded.a.shape == (5, 200) and padded.a.stride(0) == padded.b.stride(0) == 256
    found = deep_gemm.matmul((padded.a, padded.sfa), (padded.b, padded.sfb))
    assert torch.equal(found, d)


# --- sweep --------------------------------------------------------------------------------------

SHAPE = (64, 576, 7168)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], list[str]]:
    """Let times be those of a table, 10 us by default; return it and the names that were timed."""
    table: dict[str, float] = {}
    taken: list[str] = []

    def captured(self: Any, config: Any, target_ms: float) -> Any:
        if table.get(config.name, 10.0) < 0:
            raise CompileError(config.name, "no registers left", None)
        return SimpleNamespace(us=table.get(config.name, 10.0), name=config.name)

    def interleaved(captured: dict[str, Any]) -> dict[str, float]:
        taken.extend(one.name for one in captured.values())
        return {name: one.us for name, one in captured.items()}

    monkeypatch.setattr(sweep.Timed, "captured", captured)
    monkeypatch.setattr(sweep, "interleaved", interleaved)
    monkeypatch.setattr(sweep, "rotating_sets", lambda *args: [])
    monkeypatch.setattr(sweep, "compile_ahead", list)
    monkeypatch.setattr(sweep, "from_index", lambda index: by_name("h200"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return table, taken


def names(kind: str, shape: tuple[int, int, int], variant: str = "ours") -> list[str]:
    found = explain(SUITES[kind].variants(*shape)[variant], by_name("h200"))
    return [candidate.config.name for candidate in found]


def row(chosen_us: float, best_us: float, shape: tuple[int, int, int] = SHAPE) -> dict:
    m, n, k = shape
    chosen, best = names("dense_fp8", shape)[:2]
    return {
        "kind": "dense_fp8", "variant": "ours", "m": m, "n": n, "k": k,
        "chosen": chosen, "chosen_us": chosen_us, "best": best, "best_us": best_us,
        "candidates": {chosen: (9.0, chosen_us), best: (9.5, best_us)},
    }  # fmt: skip


def test_the_choice_is_measured_again_where_it_is_over_five_per_cent_behind(
    timed: tuple[dict[str, float], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    near, far = row(10.4, 10.0), row(12.0, 10.0, (128, 576, 7168))
    table, taken = timed
    table |= {far["chosen"]: 10.1, far["best"]: 10.0}
    rows = sweep.again([near, far])
    assert rows[0] == near
    assert rows[1] == {**far, "again": {"chosen_us": 10.1, "best_us": 10.0}}
    assert taken == [far["chosen"], far["best"]]
    sweep.report("in the end", rows)
    said = capsys.readouterr().out
    assert "1 of 2 shapes" in said and "128 x 576 x 7168: 1.200, again 1.010" in said
    assert "worst 1.040 at 64 x 576 x 7168" in said
    flat = [(one["m"], one["us"], one["predicted"]) for one in sweep.times(rows)]
    assert flat == [(64, 10.4, 9.0), (64, 10.0, 9.5), (128, 10.1, 9.0), (128, 10.0, 9.5)]
    assert set(next(sweep.times(rows))) == {
        "kind", "variant", "m", "n", "k", "config", "us", "predicted",
    }  # fmt: skip


@pytest.mark.parametrize(
    "kind, variant",
    [(kind, "ours") for kind in SUITES] + [("dense_fp8_tensor", "ours_promoted")],
)
def test_a_sweep_times_the_first_candidates_of_any_kind(
    kind: str, variant: str, timed: tuple[dict[str, float], list[str]], capsys: Any
) -> None:
    table, taken = timed
    first, second, third = names(kind, SHAPE, variant)[:3]
    table |= {second: -1.0, third: 8.0}
    (found,) = sweep.sweep(SUITES[kind], variant, [SHAPE], top=3)
    assert taken == [first, third]
    assert (found["kind"], found["variant"], found["n"]) == (kind, variant, 576)
    assert (found["chosen"], found["best"]) == (first, third)
    assert list(found["candidates"]) == [first, third]
    said = capsys.readouterr().out
    assert f"{second} left out: NVRTC could not compile" in said and "ratio 1.250" in said


def test_a_sweep_leaves_out_shapes_without_the_variant(
    timed: tuple[dict[str, float], list[str]],
) -> None:
    shapes = [(128, 576, 7168), (256, 576, 7168)]
    rows = sweep.sweep(SUITES["dense_fp8"], "ours_plain", shapes, top=1)
    assert [found["m"] for found in rows] == [128]
