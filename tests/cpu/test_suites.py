"""The benchmark suites on small CPU tensors: inputs, calls, checks, rows; no GPU is timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from deep_gemm.bench import dense_suite, grouped_suite, suite, summary
from deep_gemm.bench.grouped_suite import GROUPED_SUITES, Shape
from deep_gemm.bench.record import row_key
from deep_gemm.bench.suites import SUITES, WGRAD
from deep_gemm.cli import bench
from deep_gemm.config import by_name
from deep_gemm.errors import CompileError
from deep_gemm.problem import GemmProblem, GroupKind
from deep_gemm.problem.from_tensors import problem_of
from deep_gemm.problem.request import Options, Tensors

ROOT = Path(__file__).resolve().parents[2]
H200 = by_name("h200")
KINDS = list(SUITES)
SHAPE = (40, 144, 256)


def small_sets(problem: Any, weights: list[Any]) -> list[suite.Operands]:
    return suite.operand_sets(problem, 2, weights, device="cpu")


# --- shapes and variants ------------------------------------------------------------------------


def test_suites_have_their_shapes() -> None:
    counts = {kind: len(set(one.shapes)) for kind, one in SUITES.items()}
    assert counts == {
        "dense_fp8": 84,
        "dense_fp8_tensor": 84,
        "dense_fp8_row": 84,
        "dense_bf16": 56,
        "dense_int8": 12,
        "wgrad": 6,
    }


def test_shapes_can_be_reduced_and_extended() -> None:
    reduced = SUITES["dense_fp8"].reduced
    assert len(reduced()) == 84
    assert reduced(ms=[3], ns=[576]) == [(3, 576, 7168)]
    assert reduced(ms=[3], ns=[100], ks=[200]) == [(3, 100, 200)]
    assert len(reduced(ns=[100], ks=[200])) == 12
    assert reduced(ns=[100]) == []
    assert WGRAD.reduced(ks=[8192], ns=[4096]) == [
        (m, 4096, 8192) for m in dict.fromkeys(m for m, _, _ in WGRAD.shapes)
    ]
    assert WGRAD.reduced(ms=[2112], ns=[2112]) == [(2112, 2112, 4096)]


def test_variants_differ_by_static_b_and_by_promotion() -> None:
    def said(kind: str, m: int) -> dict[str, tuple[bool, bool]]:
        variants = SUITES[kind].variants(m, 144, 256)
        return {name: (one.static_b, one.promoted) for name, one in variants.items()}

    for kind in ("dense_fp8", "dense_bf16", "dense_int8"):
        assert said(kind, 128) == {"ours": (True, True), "ours_plain": (False, True)}
        assert said(kind, 129) == {"ours": (False, True)}
    for kind in ("dense_fp8_tensor", "dense_fp8_row"):
        promoted = {"ours_promoted": (True, True)}
        assert said(kind, 64) == {"ours": (True, False), "ours_plain": (False, False)} | promoted
        assert said(kind, 512) == {"ours": (False, False), "ours_promoted": (False, True)}
    assert said("wgrad", 64) == {"ours": (False, True)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_asks_for_the_problem_of_its_variant(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What select() is asked for a row is what the call asks for."""
    from deep_gemm import dispatch

    asked: list[Any] = []

    def seen(tensors: Tensors, options: Options, alpha: float, beta: float) -> Any:
        asked.append(problem_of(tensors, options, alpha, beta))
        return asked.append

    monkeypatch.setattr(dispatch, "_plan", lambda *given: lambda *rest: seen(*given))
    one = SUITES[kind]
    for problem in one.variants(*SHAPE).values():
        for call in one.calls(problem, small_sets(problem, [])):
            call()
            assert asked.pop() == problem


# --- peers --------------------------------------------------------------------------------------


def peers_of(kind: str, *shape: int) -> list[str]:
    m, n, k = shape
    return list(SUITES[kind].peers(m, n, k))


def test_peers_are_the_libraries_that_take_a_shape() -> None:
    assert peers_of("dense_fp8", 4, 128, 64) == ["cublas_block", "cublas_tensor", "torch_row"]
    assert peers_of("dense_fp8", 1, 128, 64) == ["cublas_tensor", "torch_row"]
    assert peers_of("dense_fp8", 4, 128, 40) == []
    assert peers_of("dense_fp8_tensor", 1, 16, 16) == ["cublas_tensor"]
    assert peers_of("dense_fp8_row", 1, 24, 16) == []
    assert peers_of("dense_int8", 16, 64, 64) == [] and peers_of("dense_int8", 17, 64, 64)
    assert peers_of("dense_bf16", 1, 3, 5) == ["cublas"] and peers_of("wgrad", 64, 64, 64) == []


@pytest.mark.parametrize("kind", KINDS)
def test_columns_name_every_peer(kind: str) -> None:
    one = SUITES[kind]
    assert {name for shape in one.shapes for name in one.peers(*shape)} == set(one.columns)


@pytest.mark.parametrize("kind", ["dense_bf16", "dense_int8", "dense_fp8_tensor", "dense_fp8_row"])
def test_peers_compute_what_ours_does(kind: str) -> None:
    one = SUITES[kind]
    problem = one.variants(*SHAPE)["ours"]
    sets = small_sets(problem, [])
    (make,) = one.peers(*SHAPE).values()
    theirs = [call().clone() for call in make(sets)]
    for ours, s, found in zip(one.calls(problem, sets), sets, theirs, strict=True):
        ours()
        assert torch.allclose(s.d.float(), found.float(), rtol=2e-2, atol=1.0)


# --- inputs and checks --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_input_sets_share_the_weights_of_their_n_and_k(kind: str) -> None:
    one, weights = SUITES[kind], []
    first, second = small_sets(one.variants(*SHAPE)["ours"], weights)
    other = small_sets(one.variants(7, *SHAPE[1:])["ours"], weights)
    assert other[0].b is first.b and other[1].sfb is second.sfb and first.b is not second.b
    assert other[0].a.shape == (7, 256) and other[0].d.shape == (7, 144)
    assert (first.c is first.d) == (kind == "wgrad")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [0, 39])
def test_wrong_values_in_first_and_last_rows_are_noticed(kind: str, row: int) -> None:
    one = SUITES[kind]
    for problem in one.variants(*SHAPE).values():
        sets = small_sets(problem, [])
        before = suite.spoil(sets[0])
        with pytest.raises(ValueError, match="wrong values in rows"):
            suite.check_rows(problem, before)  # nothing has been computed yet
        one.calls(problem, sets)[0]()
        suite.check_rows(problem, before)
        sets[0].d[row, 100] += 2**20
        with pytest.raises(ValueError, match="wrong values in rows"):
            suite.check_rows(problem, before)


# --- rows ---------------------------------------------------------------------------------------


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Measure on the CPU, in no time; return a list that grows by what is captured, timed, read."""
    timed: list[int] = []

    def capture(calls: list[Callable[[], Any]]) -> int:
        timed.append(len(calls))
        calls[0]()
        return len(timed)

    def time_interleaved(captured: dict[str, int]) -> dict[str, float]:
        timed.append(0)
        return {name: 2.0 + place for name, place in captured.items()}

    monkeypatch.setattr(suite, "capture", capture)

    def time_alone(captured: int) -> float:
        timed.append(1)
        return 1.0 + captured

    monkeypatch.setattr(suite, "time_interleaved", time_interleaved)
    monkeypatch.setattr(suite, "time_alone", time_alone)
    monkeypatch.setattr(suite, "clock_under", lambda captured, clock: timed.append(-1) or clock)
    monkeypatch.setattr(suite, "rotating_sets", small_sets)
    monkeypatch.setattr(suite, "compile_ahead", list)
    monkeypatch.setattr(suite, "from_index", lambda index: H200)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return timed


def without_peers(kind: str) -> suite.Suite:
    return replace(SUITES[kind], peers=suite.no_peers)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_all_variants_and_the_keys_of_a_record(kind: str, on_cpu: list[int]) -> None:
    clock: Any = 1980
    one = without_peers(kind)
    (row,) = suite.measure(one, [SHAPE], clock)
    assert {key: row[key] for key in ("kind", "m", "n", "k")} == {
        "kind": kind, "m": 40, "n": 144, "k": 256,
    }  # fmt: skip
    first = ["ours_first"] if "ours" in one.first else []
    assert [n for n in row if n.startswith("ours")] == [*one.variants(*SHAPE), *first]
    assert bench.failures(row) == [] and "errors" not in row
    assert row.get("mhz") == (1980 if one.clock else None)
    assert row["config"]


def test_the_clock_is_read_when_all_has_been_timed(on_cpu: list[int]) -> None:
    clock: Any = 1980
    peers = {"peer": lambda sets: [lambda: None] * 5}
    one = replace(SUITES["dense_fp8"], peers=lambda m, n, k: peers)
    (row,) = suite.measure(one, [(128, 136, 256)], clock)
    # Ours with static_b, without, and the peer captured; ours timed first, then all; the clock.
    assert on_cpu == [2, 2, 5, 1, 0, -1]
    assert row["ours_first"] == 2.0
    assert row["peer"] == 5.0


def test_one_variant_of_two_above_128_rows(on_cpu: list[int]) -> None:
    decode, larger = suite.measure(without_peers("dense_fp8"), [(128, 136, 256), (129, 136, 256)])
    assert (decode["ours"], decode["ours_plain"]) == (3.0, 4.0)
    assert larger["ours"] == 7.0 and "ours_plain" not in larger


def test_a_variant_that_gives_wrong_values_has_no_time(on_cpu: list[int]) -> None:
    def wrong_with_static_b(s: suite.Operands, problem: Any) -> Any:
        return (lambda: None) if problem.static_b else suite.product(s, problem)

    one = replace(without_peers("dense_bf16"), call=wrong_with_static_b)
    (row,) = suite.measure(one, [SHAPE])
    assert row["ours"] is None and row["ours_plain"] == 3.0
    (failure,) = bench.failures(row)
    assert failure.startswith("dense_bf16 40 x 144 x 256, ours: wrong values in rows")


def test_a_refusal_of_a_library_is_recorded(on_cpu: list[int]) -> None:
    def refuse(sets: Any) -> Any:
        raise RuntimeError("not this shape\nand a trace")

    one = replace(SUITES["dense_int8"], peers=lambda m, n, k: {"cublas": refuse})
    (row,) = suite.measure(one, [SHAPE])
    assert row["cublas"] is None and row["errors"] == {"cublas": "not this shape"}


def test_every_configuration_is_compiled_ahead_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(config: Any) -> None:
        built.append(config)
        raise CompileError("it", "log", None)  # left to the call that needs it

    monkeypatch.setattr(suite, "_build", build)
    suite.compile_ahead(iter(["one", "two", "one"]))  # type: ignore[list-item]
    assert sorted(built) == ["one", "two"]


def test_scripts_find_the_dense_suite_by_its_functions() -> None:
    problem = dense_suite.problem(*SHAPE)
    assert problem.static_b and not dense_suite.problem(129, *SHAPE[1:]).static_b
    sets = small_sets(problem, [])
    for make in (dense_suite.ours, dense_suite.ours_without_static_b):
        suite.spoil(sets[0])
        make(sets)[0]()
        suite.check_rows(problem, sets[0])


# --- grouped products ---------------------------------------------------------------------------

SMALL = {
    "grouped_contiguous": Shape(3, 256, 144, 256),
    "grouped_masked": Shape(3, 20, 144, 256),
    "grouped_offsets": Shape(5, 20, 144, 256),
    "k_grouped": Shape(3, 40, 144, 256),
}
GROUPED_KINDS = list(GROUPED_SUITES)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let masked groups have room for few rows."""
    monkeypatch.setattr(grouped_suite, "MAX_M", 32)


def grouped_sets(kind: str, variant: str) -> tuple[GemmProblem, list[Tensors]]:
    problem = GROUPED_SUITES[kind].variants(*SMALL[kind])[variant]
    rows = grouped_suite.rows_of(GROUPED_SUITES[kind].grouping, SMALL[kind])
    weights = grouped_suite.weights_of(SMALL[kind], "cpu")
    return problem, grouped_suite.operand_sets(problem, rows, weights, "cpu")


def test_grouped_suites_have_the_shapes_of_the_recorded_peers() -> None:
    assert {kind: len(set(one.shapes)) for kind, one in GROUPED_SUITES.items()} == {
        "grouped_contiguous": 6, "grouped_masked": 16, "grouped_offsets": 2, "k_grouped": 6,
    }  # fmt: skip
    peers = json.loads((ROOT / "benchmarks" / "peers" / "h200.json").read_text())["rows"]
    for kind in ("grouped_contiguous", "grouped_masked"):
        one = GROUPED_SUITES[kind]
        then = {row_key(row): row for row in peers if row["kind"] == kind}
        now = {row_key(row): row for row in map(one.row, one.shapes)}
        assert now.keys() == then.keys()
        for key, row in then.items():  # the same rows were drawn
            assert {name: now[key][name] for name in row if name != "upstream"} == {
                name: value for name, value in row.items() if name != "upstream"
            }
    dense = {(r["m"], r["n"], r["k"]) for r in peers if r.get("cublas_tensor")}
    assert {grouped_suite.DENSE_LARGE, grouped_suite.DENSE_SMALL} <= dense


def test_a_row_counts_valid_rows_and_all_of_k() -> None:
    rows = {kind: one.row(one.shapes[-1]) for kind, one in GROUPED_SUITES.items()}
    assert rows["k_grouped"]["m"] == 7168 and rows["k_grouped"]["k"] == 16 * 2048
    assert rows["grouped_masked"]["m"] == rows["grouped_masked"]["masked_m_sum"] == 118
    assert 256 <= rows["grouped_offsets"]["m"] <= 256 * 40
    assert summary.tflops(rows["k_grouped"] | {"ours": 1e6}) == 2 * 7168 * 2048 * 32768 / 1e12
    assert summary.weights_tbs(rows["grouped_masked"] | {"ours": 10.0}) == pytest.approx(
        6 * 4096 * 2048 / 1e7
    )


@pytest.mark.parametrize("kind", GROUPED_KINDS)
def test_a_grouped_call_asks_for_the_problem_of_its_variant(
    kind: str, few_rows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deep_gemm import dispatch

    asked: list[GemmProblem] = []

    def seen(tensors: Tensors, options: Options, alpha: float, beta: float) -> Any:
        asked.append(problem_of(tensors, options, alpha, beta))
        return lambda *given: None

    monkeypatch.setattr(dispatch, "_plan", seen)
    for variant in GROUPED_SUITES[kind].variants(*SMALL[kind]):
        problem, sets = grouped_sets(kind, variant)
        for t in sets:
            grouped_suite.call_of(problem, t, SMALL[kind])()
            assert asked.pop() == problem


@pytest.mark.parametrize("kind", GROUPED_KINDS)
def test_grouped_calls_are_checked(kind: str, few_rows: None) -> None:
    for variant in GROUPED_SUITES[kind].variants(*SMALL[kind]):
        problem, sets = grouped_sets(kind, variant)
        call = grouped_suite.call_of(problem, sets[0], SMALL[kind])
        grouped_suite.check(problem, sets[0], call)
        with pytest.raises(ValueError, match="wrong values in rows"):
            grouped_suite.check(problem, sets[0], lambda: None)


@pytest.mark.parametrize("kind", GROUPED_KINDS)
def test_grouped_rows_are_measured(
    kind: str, few_rows: None, on_cpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("capture", "time_alone", "clock_under"):
        monkeypatch.setattr(grouped_suite, name, getattr(suite, name))
    monkeypatch.setattr(grouped_suite, "from_index", lambda index: H200)
    weights, sets = grouped_suite.weights_of, grouped_suite.operand_sets
    drawn: list[Shape] = []

    def drawn_weights(shape: Shape) -> grouped_suite.Weights:
        drawn.append(shape)
        return weights(shape, "cpu")

    monkeypatch.setattr(grouped_suite, "weights_of", drawn_weights)
    monkeypatch.setattr(grouped_suite, "operand_sets", lambda *given: sets(*given, "cpu"))
    monkeypatch.setattr(grouped_suite, "_library", lambda shape: 99)
    one, clock = GROUPED_SUITES[kind], cast(Any, 1980)
    (row,) = grouped_suite.measure(one, [SMALL[kind]], clock)
    assert "errors" not in row and bench.failures(row) == []
    # With groups along K no weights are drawn.
    assert drawn == ([] if one.grouping is GroupKind.ALONG_K else [SMALL[kind]])
    assert row["dense_cublas_tensor"] == 100.0 and row["mhz"] == 1980 and row["config"]
    assert set(one.row(SMALL[kind]).items()) <= set(row.items())
    assert [name for name in row if name.startswith("ours")] == list(one.variants(*SMALL[kind]))
    header, line = bench.header(one), bench.line(row)
    assert header.index("config") == line.index(row["config"])


def test_recorded_groups_are_corrected_by_the_dense_product_of_the_row() -> None:
    one = GROUPED_SUITES["grouped_masked"]
    dense = dict(zip("mnk", grouped_suite.DENSE_SMALL, strict=True))
    peers: list[dict[str, Any]] = [
        {"kind": "dense_fp8", **dense, "cublas_tensor": 8.0, "upstream": 9.0},
        {**one.row(one.shapes[-1]), "upstream": 20.0},
    ]
    del peers[1]["m"]
    row = one.row(one.shapes[-1]) | {"ours": 10.0, "dense_shape": list(dense.values())}
    row["dense_cublas_tensor"] = 12.0
    found = {o.found.label: o for o in summary.outcomes([row], peers)}
    assert found[summary.UPSTREAM].found.mean == pytest.approx(3.0)
    assert found["TB/s of weights"].title == one.title
