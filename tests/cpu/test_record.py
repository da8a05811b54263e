"""The record of a GPU run: what its digest covers, how parts join, and what README shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deep_gemm.testing import record, summary, timing

from .script_kit import load_script

table = load_script("table")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("matmul.py", "cuda/ptx/tma.cuh", "cli/demo.py", "testing/timing.py"):
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "package"


@pytest.mark.parametrize("name", ["matmul.py", "cuda/ptx/tma.cuh"])
def test_digest_sees_every_measured_file(package: Path, name: str) -> None:
    before = record.digest(package)
    (package / name).write_text("changed")
    assert record.digest(package) != before


@pytest.mark.parametrize("name", ["cli/demo.py", "testing/timing.py", "notes.txt"])
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
    assert {"errors.py", "jit/cache.py", "cuda/kernels/gemm_sm90.cuh"} <= names
    assert not {name for name in names if name.startswith(("cli/", "testing/"))}


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
    assert summary.floor_us(64, 576, 7168) == pytest.approx(2.7, abs=0.05)
    assert summary.floor_us(128, 7168, 16384) == pytest.approx(28.1, abs=0.1)
    assert summary.floor_us(2048, 2112, 7168) == pytest.approx(46.3, abs=0.1)


def test_recorded_peers_are_corrected_by_cublas_now_over_then() -> None:
    peers = [row(64, 0.0, upstream=10.0, cublas_tensor=8.0)]
    ratio = summary.versus_recorded(peers)
    # cuBLASLt is at 9 now and was at 8: upstream would be at 11.25 now.
    assert ratio(row(64, 7.5, cublas_tensor=9.0)) == pytest.approx(1.5)
    assert ratio(row(128, 7.5, cublas_tensor=9.0)) is None
    assert ratio(row(64, 7.5, cublas_tensor=None)) is None


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


def test_the_plain_form_is_compared_where_there_is_one() -> None:
    peers = [row(m, 0.0, upstream=10.0, cublas_tensor=8.0) for m in (64, 256)]
    rows = [row(64, 5.0, ours_plain=8.0, cublas_tensor=8.0), row(256, 5.0, cublas_tensor=8.0)]
    ratios = summary.comparisons(peers)
    assert [ratios[summary.UPSTREAM](r) for r in rows] == [2.0, 2.0]
    assert [ratios[f"{summary.UPSTREAM}, plain form"](r) for r in rows] == [1.25, None]


def test_recorded_peers_hold_every_shape_of_the_suite() -> None:
    from deep_gemm.testing import dense_suite

    peers = json.loads(table.PEERS.read_text())["rows"]
    recorded = {record.row_key(r) for r in peers if r["kind"] == "dense_fp8" and r["upstream"]}
    wanted = {(dense_suite.KIND, *shape) for shape in dense_suite.shapes()}
    assert len(wanted) == 84 and wanted == recorded


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
    assert table.section(table.README.read_text()) == table.current()


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
    assert "plain" not in text
    rows[0]["ours_plain"] = 10.0
    text = table.render(found, peers)
    assert "`static_b=True`" in text
    assert "| 256 x 512, plain | 10.0 (1.60) | - |" in text
    assert "recorded and corrected, plain form | M 17 to 128 | 1 | 1.60 | 1.60 |" in text


def test_without_a_record_the_section_says_so() -> None:
    assert table.render(None, {"rows": []}) == table.NOTHING
