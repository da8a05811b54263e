"""The record of a GPU run: what its digest covers, how parts join, and what README shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.bench import record, summary, timing
from deep_gemm.bench.grouped_suite import GROUPED_SUITES
from deep_gemm.bench.suites import SUITES
from deep_gemm.problem import GemmProblem

from .script_kit import load_script

table = load_script("table")

OUTSIDE = ("bench/timing.py", "testing/numerics.py")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("matmul.py", "cuda/ptx/tma.cuh", "cli/demo.py", *OUTSIDE):
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "package"


@pytest.mark.parametrize("name", ["matmul.py", "cuda/ptx/tma.cuh"])
def test_digest_sees_every_measured_file(package: Path, name: str) -> None:
    before = record.digest(package)
    (package / name).write_text("changed")
    assert record.digest(package) != before


@pytest.mark.parametrize("name", ["cli/demo.py", *OUTSIDE, "notes.txt"])
def test_digest_ignores_what_changes_no_kernel(package: Path, name: str) -> None:
    before = record.digest(package)
    (package / name).write_text("changed")
    assert record.digest(package) == before


def test_digest_sees_a_rename(package: Path) -> None:
    before = record.digest(package)
    (package / "matmul.py").rename(package / "product.py")
    assert record.digest(package) != before


def test_digest_of_the_package_covers_kernels_and_host() -> None:
    names = {f.relative_to(record.PACKAGE).as_posix() for f in record.measured_files()}
    assert {"errors.py", "jit/cache.py", "cuda/gemm_sm90.cuh"} <= names
    assert not {name for name in names if name.startswith(("bench/", "cli/", "testing/"))}


def part(digest: str, **rest: Any) -> dict[str, Any]:
    return {"meta": {"gpu": "NVIDIA H200", "digest": digest}, **rest}


def row(m: int, ours: float, **rest: Any) -> dict[str, Any]:
    return {"kind": "dense_fp8", "m": m, "n": 256, "k": 512, "ours": ours, **rest}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_parts_of_the_same_code_join_in_either_order(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    parts = [part("a", tests={"passed": 3}), part("a", rows=[row(1, 2.0)])]
    path = tmp_path / "results" / "h200.json"
    for i in order:
        record.update(path, parts[i])
    found = record.read(path)
    assert found is not None
    assert found["tests"] == {"passed": 3} and found["rows"] == [row(1, 2.0)]
    assert [p.name for p in path.parent.iterdir()] == ["h200.json"]


def test_a_part_of_other_code_starts_afresh(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    record.update(path, part("a", tests={"passed": 3}, rows=[row(1, 2.0)]))
    assert record.update(path, part("b", tests={"passed": 1})) == part("b", tests={"passed": 1})


def test_rows_of_the_same_problem_are_replaced() -> None:
    old = part("a", rows=[row(1, 2.0), row(8, 3.0)])
    merged = record.merge(old, part("a", rows=[row(8, 1.0), row(16, 4.0)]))
    assert merged["rows"] == [row(1, 2.0), row(8, 1.0), row(16, 4.0)]


def test_kinds_can_be_measured_one_after_the_other(tmp_path: Path) -> None:
    """Rows of other kinds stay while the code is the same, and so does what was read with them."""
    path = tmp_path / "h200.json"
    first = part("a", rows=[row(1, 2.0)], host_us={"ours": 9.0})
    first["meta"] |= {"command": "bench", "clock": {"sm_max_mhz": 1980, "sm_mhz_median": 1500}}
    second = part("a", rows=[{**row(1, 5.0), "kind": "dense_bf16"}])
    second["meta"] |= {"command": "bench --kind dense_bf16", "clock": {"sm_max_mhz": 1980}}
    record.update(path, first)
    for _ in range(2):
        found = record.update(path, second)
        assert found["rows"] == [*first["rows"], *second["rows"]]
        assert found["meta"]["command"] == "bench && bench --kind dense_bf16"
        assert found["meta"]["clock"] == first["meta"]["clock"]
        assert found["host_us"] == {"ours": 9.0}
    other = {**second, "meta": {**second["meta"], "digest": "b"}}
    assert record.update(path, other) == other


@pytest.mark.parametrize("rows", [[], [row(1, 2.0)], [row(1, 2.0), row(8, 3.0)]])
def test_a_record_is_json_with_a_row_a_line(rows: list[dict[str, Any]]) -> None:
    content = part("a", rows=rows) if rows else part("a")
    text = record.dumps(content)
    assert json.loads(text) == content
    assert text.count('"kind"') == sum('"kind"' in line for line in text.splitlines())


def test_gpu_names_become_file_names() -> None:
    folder = Path("results")
    assert record.result_path(folder, "NVIDIA H200") == folder / "h200.json"
    assert record.result_path(folder, "NVIDIA H100 80GB HBM3").name == "h100-80gb-hbm3.json"
    assert record.result_path(Path("x/own.json"), "NVIDIA H200") == Path("x/own.json")


def test_junit_counts_errors_as_failures(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    assert record.junit_counts(path) == {"passed": 4, "failed": 3, "skipped": 3}


# --- what rows say ------------------------------------------------------------------------------


def test_floor_agrees_with_known_shapes() -> None:
    """Floors worked out by hand: two bound by memory, one by the tensor cores."""
    for shape, floor in (
        ((64, 576, 7168), 2.7),
        ((128, 7168, 16384), 28.1),
        ((2048, 2112, 7168), 46.3),
    ):
        problem = GemmProblem.block_scaled(*shape)
        assert summary.floor_us(problem) == pytest.approx(floor, abs=0.1)


@pytest.mark.parametrize(
    "kind, flops_us, read",
    [
        ("dense_fp8_tensor", 100.2, 2 * 4096**2 + 2 * 4096**2 + 8),
        ("dense_fp8_row", 100.2, 2 * 4096**2 + 2 * 4096**2 + 8 * 4096),
        ("dense_bf16", 198.3, 6 * 4096**2),
        ("dense_int8", 100.2, 2 * 4096**2 + 4 * 4096**2),
        ("wgrad", 100.2, 2 * 4096**2 + 8 * 4096**2 + 2 * 4 * 32 * 4096),
    ],
)
def test_rates_and_floors_of_other_kinds(kind: str, flops_us: float, read: int) -> None:
    """Half the tensor rate for 16-bit operands; bytes of operands, scales, and D once or twice."""
    found = {"kind": kind, "m": 4096, "n": 4096, "k": 4096, "ours": 100.0}
    assert summary.tflops(found) == pytest.approx(2 * 4096**3 / 1e8)
    assert summary.gbs(found) == pytest.approx(read / 1e5)
    assert summary.floor_share(found) == pytest.approx(flops_us / 100, rel=1e-3)


def test_recorded_peers_are_corrected_by_cublas_now_over_then() -> None:
    peers = [row(64, 0.0, upstream=10.0, cublas_tensor=8.0)]
    ratio = summary.versus_recorded(peers)
    # cuBLASLt is at 9 now and was at 8: upstream would be at 11.25 now.
    assert ratio(row(64, 7.5, cublas_tensor=9.0)) == pytest.approx(1.5)
    assert ratio(row(128, 7.5, cublas_tensor=9.0)) is None
    assert ratio(row(64, 7.5, cublas_tensor=None)) is None
    # Of times taken as the recorded ones were, both, or neither.
    both = {"ours_first": 5.0, "cublas_tensor_first": 6.0}
    assert ratio(row(64, 7.5, cublas_tensor=9.0, **both)) == pytest.approx(1.5)
    assert ratio(row(64, 7.5, cublas_tensor=9.0, ours_first=5.0)) == pytest.approx(1.5)
    assert ratio(row(64, 7.5, cublas_tensor=9.0, **both | {"ours_first": 3.0})) == 2.5


def test_classes_give_mean_and_worst_shape() -> None:
    rows = [row(1, 1.0, x=2.0), row(16, 1.0, x=0.5), row(17, 1.0, x=4.0), row(128, 1.0, x=1.0)]
    rows += [row(129, 1.0, x=0.25), row(1023, 1.0, x=1.0), row(4096, 1.0)]
    found = summary.by_class(rows, summary.versus("x"))
    assert [(c.label, c.count, c.mean, c.worst, c.worst_shape[0]) for c in found] == [
        ("M <= 16", 2, pytest.approx(1.0), 0.5, 16),
        ("M 17 to 128", 2, pytest.approx(2.0), 1.0, 128),
        ("M 129 to 1023", 2, pytest.approx(0.5), 0.25, 129),
        ("all shapes", 6, pytest.approx(1.0), 0.25, 129),
    ]


def test_every_m_is_of_one_class_and_of_all() -> None:
    for m in (1, 16, 17, 128, 129, 1023, 1024, 8192):
        labels = [label for label, low, high in summary.M_CLASSES if low <= m <= high]
        assert len(labels) == 2 and labels[1] == "all shapes"


def test_calls_without_static_b_are_compared_where_there_are_such() -> None:
    peers = [row(m, 0.0, upstream=10.0, cublas_tensor=8.0) for m in (64, 256)]
    rows = [row(64, 5.0, ours_plain=8.0, cublas_tensor=8.0), row(256, 5.0, cublas_tensor=8.0)]
    ratios = summary.comparisons(peers)
    assert [ratios[summary.UPSTREAM](r) for r in rows] == [2.0, 2.0]
    assert [ratios[f"{summary.UPSTREAM}, without static_b"](r) for r in rows] == [1.25, None]


@pytest.mark.parametrize(
    "kind, recorded",
    [("dense_fp8", "upstream"), ("dense_bf16", "upstream"), ("dense_int8", "cublas")],
)
def test_recorded_peers_hold_every_shape_of_the_suite(kind: str, recorded: str) -> None:
    rows = summary.of_kind(json.loads(table.PEERS.read_text())["rows"], kind)
    assert {record.row_key(r) for r in rows if r[recorded]} == {
        (kind, *shape) for shape in SUITES[kind].shapes
    }


# --- kinds beside dense_fp8 ---------------------------------------------------------------------


def row_of(kind: str, m: int, ours: float, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "m": m, "n": 4096, "k": 4096, "ours": ours, **rest}


def outcomes(rows: list[dict[str, Any]], peers: Any = ()) -> dict[str, summary.Outcome]:
    return {one.found.label: one for one in summary.outcomes(rows, peers)}


def test_every_kind_but_the_first_has_a_wish() -> None:
    wished = {one.kind for one in summary.other_comparisons() if one.wanted}
    assert wished == set(SUITES) - {"dense_fp8"} | set(GROUPED_SUITES)
    assert summary.outcomes([row(1, 2.0, cublas=1.0, cublas_tensor=1.0)]) == []


def test_bf16_is_compared_with_the_faster_of_cublas_and_upstream() -> None:
    peers = [row_of("dense_bf16", m, 0.0, upstream=10.0, cublas=8.0) for m in (64, 512)]
    rows = [
        row_of("dense_bf16", 64, 10.0, cublas=16.0),
        row_of("dense_bf16", 512, 10.0, cublas=4.0),
    ]
    found = outcomes(rows, peers)
    # Upstream, 10 when cuBLASLt was at 8, would be at 20 and at 5 now.
    assert found["cuBLASLt"].found.worst == pytest.approx(0.4)
    assert found[summary.UPSTREAM].found.mean == pytest.approx(1.0)
    both = found["the faster of the two"]
    assert both.found.mean == pytest.approx((1.6 * 0.4) ** 0.5) and both.met is False
    large = found["the faster, M >= 256"]
    assert (large.found.count, large.met) == (1, False)
    assert found["cuBLASLt"].met is None and found["cuBLASLt"].comparison.wanted == ""
    alone = outcomes(rows)  # nothing recorded: cuBLASLt is the faster one
    assert alone["the faster of the two"].found.worst == pytest.approx(0.4)
    assert summary.UPSTREAM not in alone


@pytest.mark.parametrize(
    "kind, peer, good, bad",
    [
        ("dense_int8", "cublas", (20.0, 11.5), (30.0, 10.9)),
        ("dense_fp8_tensor", "cublas_tensor", (11.9, 9.4), (20.0, 9.2)),
        ("dense_fp8_row", "torch_row", (15.0, 9.4), (20.0, 9.2)),
    ],
)
def test_wishes_are_about_the_mean_and_every_shape(
    kind: str, peer: str, good: tuple[float, float], bad: tuple[float, float]
) -> None:
    for times, met in ((good, True), (bad, False), ((10.0, 10.0), False)):
        rows = [row_of(kind, m, 10.0, **{peer: us}) for m, us in zip((64, 512), times, strict=True)]
        first = summary.outcomes(rows)[0]
        assert first.met is met, times
        assert first.title == SUITES[kind].title


def test_variants_of_fast_accumulation_are_shown_without_a_wish() -> None:
    rows = [row_of("dense_fp8_row", 64, 8.0, ours_plain=10.0, ours_promoted=16.0, torch_row=8.0)]
    found = {label: (one.found.mean, one.met) for label, one in outcomes(rows).items()}
    assert found == {
        "torch, fast accumulation": (1.0, False),
        "torch, fast accumulation; ours without static_b": (0.8, None),
        "torch, fast accumulation; ours promoted": (0.5, None),
    }


def test_weight_gradients_have_tflops() -> None:
    flops = 2 * 4096**3
    for us, met in ((flops / 1e6 / 1001, True), (flops / 1e6 / 999, False)):
        (found,) = summary.outcomes([row_of("wgrad", 4096, us)])
        assert found.met is met and found.found.label == "TFLOPS"


# --- how long and how often ---------------------------------------------------------------------


def test_input_sets_outgrow_l2_within_limits() -> None:
    assert timing.set_count(1) == timing.MAX_SETS
    assert timing.set_count(1 << 30) == timing.MIN_SETS
    middle = 20 << 20
    assert 4 * timing.L2_BYTES <= timing.set_count(middle) * middle < 4 * timing.L2_BYTES + middle


def test_a_replay_holds_every_set_and_at_most_200_calls() -> None:
    assert timing.calls_per_replay(estimate_ms=0.002, sets=48, target_ms=8.0) == timing.MAX_CALLS
    assert timing.calls_per_replay(estimate_ms=0.1, sets=2, target_ms=8.0) == 80
    assert timing.calls_per_replay(estimate_ms=4.0, sets=6, target_ms=8.0) == 6


def test_the_card_is_kept_busy_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[int] = []
    monkeypatch.setattr(timing, "_elapsed_ms", lambda work: work() or 8.0)
    for least_ms, wanted in ((60.0, 8), (8.0, 1), (0.0, 1)):
        replays.clear()
        timing.keep_busy(lambda: replays.append(1), least_ms)
        assert len(replays) == wanted


# --- README ------------------------------------------------------------------------------------


def test_readme_shows_what_the_record_gives() -> None:
    assert table.SECTION.read() == table.current()


def test_performance_section_is_rendered_from_figures() -> None:
    meta = {"gpu": "NVIDIA H200", "driver": "1", "cuda": "13.0", "torch": "2", "date": "d"}
    rows = [row(64, 8.0, cublas_tensor=9.0), row(1024, 20.0, cublas_tensor=10.0)]
    found = {
        "meta": {**meta, "digest": "0123456789abcdef"},
        "rows": rows,
        "host_us": {"ours": 11.0, "torch_mm": 12.0},
    }
    peers = {"rows": [row(64, 0.0, upstream=16.0, cublas_tensor=9.0)]}
    text = table.render(found, peers)
    assert "`0123456789ab`" in text
    assert "| 256 x 512 | 8.0 (2.00) | 20.0 |" in text
    assert (
        "| cuBLASLt, one scale a tensor | M >= 1024 | 1 | 0.50 | 0.50 | 1024 x 256 x 512 |" in text
    )
    assert "11.0 us" in text
    assert "static_b" not in text
    rows[0]["ours_plain"] = 10.0
    text = table.render(found, peers)
    assert "`static_b=True`" in text
    assert "| 256 x 512, without `static_b` | 10.0 (1.60) | - |" in text
    assert "recorded and corrected, without static_b | M 17 to 128 | 1 | 1.60 | 1.60 |" in text


def test_other_kinds_have_a_block_of_their_own() -> None:
    meta = {"gpu": "NVIDIA H200", "driver": "1", "cuda": "13.0", "torch": "2", "date": "d"}
    found: dict[str, Any] = {"meta": {**meta, "digest": "0123456789abcdef"}}
    dense = [row(64, 8.0, cublas_tensor=9.0)]
    others = [row_of("dense_int8", 64, 8.0, cublas=16.0), row_of("wgrad", 4096, 100.0)]
    block = "Other kinds of product"
    text = table.render({**found, "rows": dense + others}, {"rows": []})
    assert "| INT8 into INT32 | cuBLASLt | 1 | 2.00 | 2.00 | 64 x 4096 x 4096 |" in text
    assert "| TFLOPS | 1 | 1374 | 1374 | 4096 x 4096 x 4096 |" in text
    # The table of times by shape is of one kind alone.
    assert "| cuBLASLt, one scale a tensor | all shapes | 1 |" in text
    assert "| 256 x 512 | 8.0 |" in text and "| 4096 x 4096 |" not in text
    assert block not in table.render({**found, "rows": dense}, {"rows": []})
    alone = table.render({**found, "rows": others}, {"rows": []})
    assert block in alone and "all shapes" not in alone and "Microseconds" not in alone


def test_without_a_record_the_section_says_so() -> None:
    assert table.render(None, {"rows": []}) == table.NOTHING
