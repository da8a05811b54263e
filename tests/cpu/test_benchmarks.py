"""The scripts for a GPU machine: what they make of their measurements, without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm.config import by_name, explain
from deep_gemm.problem import GemmProblem
from deep_gemm.testing.dense_suite import Operands
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


def row(chosen_us: float, best_us: float, shape: tuple[int, int, int] = (64, 576, 7168)) -> dict:
    found = explain(GemmProblem.block_scaled(*shape), by_name("h200"))
    names = {"chosen": found[0].config.name, "best": found[1].config.name}
    m, n, k = shape
    return {"m": m, "n": n, "k": k, **names, "chosen_us": chosen_us, "best_us": best_us}


def test_the_choice_is_measured_again_where_it_is_over_five_per_cent_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    near, far = row(10.4, 10.0), row(12.0, 10.0, (128, 576, 7168))
    times = {far["chosen"]: 10.1, far["best"]: 10.0}
    taken: list[str] = []

    def time(config: Any, sets: object, **rest: Any) -> float:
        taken.append(config.name)
        return times[config.name]

    monkeypatch.setattr(sweep, "_time", time)
    monkeypatch.setattr(sweep, "rotating_sets", lambda *args: [])
    monkeypatch.setattr(sweep, "from_index", lambda index: by_name("h200"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    rows = sweep.again([near, far])
    assert rows[0] == near
    assert rows[1] == {**far, "again": {"chosen_us": 10.1, "best_us": 10.0}}
    assert taken == [far["chosen"], far["best"]] * sweep.TURNS
    sweep.report("in the end", rows)
    said = capsys.readouterr().out
    assert "1 of 2 shapes" in said and "128 x 576 x 7168: 1.200, again 1.010" in said
    assert "worst 1.040 at 64 x 576 x 7168" in said
