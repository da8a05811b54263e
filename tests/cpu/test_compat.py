"""The drop-in names on CPU tensors: values against float64, argument orders, layouts, refusals."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32
from deep_gemm.problem import CMode, GemmProblem, Major
from deep_gemm.problem.scale_recipe import ROW_1X128
from deep_gemm.testing import calc_diff
from deep_gemm.testing.numerics import compare, reference_and_bound_of
from deep_gemm.testing.problems import make

from .dense_kit import K, M, N, operands

LAYOUTS = ("nt", "nn", "tn", "tt")
FP8_NAMES = [f"{family}_gemm_{layout}" for family in ("fp8", "fp8_fp4") for layout in LAYOUTS]
RECIPES = {"1d2d": (1, 128, 128), "1d1d": (1, 1, 128)}


def fp8_problem(scales: str = "1d2d", **rest: Any) -> GemmProblem:
    fields = {"scale_b": ROW_1X128} if scales == "1d1d" else {}
    return replace(GemmProblem.block_scaled(M, N, K), **(fields | rest))


def bf16_problem(**rest: Any) -> GemmProblem:
    return GemmProblem(M, N, K, BF16, BF16, **{"scale_a": None, "scale_b": None, **rest})


def drawn(problem: GemmProblem, rng: torch.Generator) -> Any:
    return make(problem, generator=rng, out_pad=0).tensors


def judge(problem: GemmProblem, tensors: Any, d: torch.Tensor) -> None:
    report = compare(d, *reference_and_bound_of(problem, tensors))
    assert report.ok, str(report)


def laid_out(layout: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return A and B, or their pairs, as a call of this layout takes them."""

    def transposed(x: Any) -> Any:
        return x.t() if isinstance(x, torch.Tensor) else tuple(part.t() for part in x)

    return transposed(a) if layout[0] == "t" else a, transposed(b) if layout[1] == "n" else b


def poisoned(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((M, N), float("nan"), dtype=dtype)


# --- FP8 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FP8_NAMES)
@pytest.mark.parametrize("scales", ["1d2d", "1d1d"])
@pytest.mark.parametrize("d_type", [BF16, FP16, FP32], ids=lambda t: t.name)
def test_fp8_layouts_against_float64(name, scales, d_type, rng):
    problem = fp8_problem(scales, d_dtype=d_type)
    t = drawn(problem, rng)
    a, b = laid_out(name[-2:], (t.a, t.sfa), (t.b, t.sfb))
    d = poisoned(d_type.torch)
    assert getattr(deep_gemm, name)(a, b, d, None, RECIPES[scales]) is None
    judge(problem, t, d)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scales", ["1d2d", "1d1d"])
@pytest.mark.parametrize("d_type", [BF16, FP32], ids=lambda t: t.name)
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_fp8_adds_c(layout, scales, d_type, in_place, rng):
    problem = fp8_problem(scales, d_dtype=d_type, c_mode=CMode.READ)
    t = drawn(problem, rng)
    a, b = laid_out(layout, (t.a, t.sfa), (t.b, t.sfb))
    d = t.c.clone() if in_place else poisoned(d_type.torch)
    c = d if in_place else t.c
    getattr(deep_gemm, f"fp8_gemm_{layout}")(a, b, d, c, recipe=RECIPES[scales])
    judge(problem, t, d)


@pytest.mark.parametrize("name", FP8_NAMES)
def test_fp8_arguments_stand_in_the_interface_order(name, rng):
    call = getattr(deep_gemm, name)
    taken = inspect.signature(call).parameters
    order = ["a", "b", "d", "c", "recipe", "recipe_a", "recipe_b", "compiled_dims"]
    order += ["disable_ue8m0_cast", "static_b"]
    assert list(taken) == order and taken["static_b"].kind == inspect.Parameter.KEYWORD_ONLY
    assert taken["compiled_dims"].default == ("nk" if name[-2] == "n" else "mn")
    t = drawn(fp8_problem(), rng)
    a, b = laid_out(name[-2:], (t.a, t.sfa), (t.b, t.sfb))
    first, second, third = (poisoned(torch.bfloat16) for _ in range(3))
    call(a, b, first)
    call(a, b, second, None, None, (1, 128), (128, 128), "mnk", True)
    call(
        a=list(a), b=list(b), d=third, c=None, recipe=[1, 128, 128], compiled_dims="", static_b=True
    )
    assert torch.equal(first, second) and torch.equal(first, third)


@pytest.mark.parametrize("recipe", [{"recipe": (1, 128, 128)}, {"recipe": [1, 128, 128]}])
def test_all_arguments_of_fp8_gemm_nt(recipe):
    a, sfa, b, sfb = operands()
    d = torch.empty(M, N, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, None, **recipe, compiled_dims="mnk")
    other = {"recipe_a": (1, 128), "recipe_b": (128, 128), "disable_ue8m0_cast": True}
    again = torch.empty(M, N, dtype=torch.bfloat16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), again, c=None, compiled_dims="", **other)
    assert torch.equal(d, again)


def test_fp4_names_are_the_fp8_functions():
    for layout in LAYOUTS:
        fp8 = getattr(deep_gemm, f"fp8_gemm_{layout}")
        assert getattr(deep_gemm, f"fp8_fp4_gemm_{layout}") is fp8


def test_fp8_formats_may_be_mixed(rng):
    problem = fp8_problem(b_dtype=E5M2)
    t = drawn(problem, rng)
    d = poisoned(torch.bfloat16)
    deep_gemm.fp8_gemm_nt((t.a, t.sfa), (t.b, t.sfb), d)
    judge(problem, t, d)


@pytest.mark.parametrize("packed", [torch.int8, torch.uint8])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["fp8_fp4_gemm_nt", "fp8_gemm_nn", "wgrad_gemm_fp8_fp8_fp32_nt"])
def test_packed_fp4_is_refused(name, which, packed, rng):
    t = drawn(fp8_problem("1d1d"), rng)
    pairs = [(t.a, t.sfa), (t.b, t.sfb)]
    pairs[which] = (torch.zeros(N, K // 2, dtype=packed), pairs[which][1])
    d = torch.full((M, N), 7.0)
    with pytest.raises(UnsupportedError, match="packed FP4"):
        getattr(deep_gemm, name)(*pairs, d)
    assert (d == 7).all()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"recipe": (1, 1, 32)}, UnsupportedError, r"recipe \(1, 1, 32\).*are served"),
        ({"recipe": (128, 128, 128)}, UnsupportedError, "are served"),
        ({"recipe_a": (1, 128)}, ArgumentError, "both or neither"),
        ({"recipe_a": (1, 128), "recipe_b": (128, 64)}, ArgumentError, "recipe_b: columns"),
        ({"recipe": (1, 1, 128)}, ArgumentError, r"sfb: shape must be \(72, 2\), got \(1, 2\)"),
        ({"compiled_dims": "xy"}, ArgumentError, "compiled_dims"),
        ({"c": torch.zeros(M, N)}, ArgumentError, "c: dtype"),
        ({"c": torch.zeros(N, M).bfloat16()}, ArgumentError, "c: shape"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fp8_refusals_write_nothing(layout, arguments, error, message, rng):
    t = drawn(fp8_problem(), rng)
    a, b = laid_out(layout, (t.a, t.sfa), (t.b, t.sfb))
    d = torch.full((M, N), 7.0, dtype=torch.bfloat16)
    with pytest.raises(error, match=message):
        getattr(deep_gemm, f"fp8_gemm_{layout}")(a, b, d, **arguments)
    assert (d == 7).all()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"c": torch.zeros(M, N)}, ArgumentError, "c: dtype must be torch.bfloat16"),
        ({"recipe": (1, 1, 128)}, ArgumentError, r"sfb: shape must be \(72, 2\)"),
        ({"recipe": (1, 1, 32)}, UnsupportedError, "1x128 with 128x128"),
        ({"recipe_a": (1, 128)}, ArgumentError, "both or neither"),
        (
            {"recipe": (1, 128, 128), "recipe_a": (1, 128), "recipe_b": (128, 128)},
            ArgumentError,
            "None beside recipe_a",
        ),
        ({"recipe_a": (1, 128), "recipe_b": (128, 64)}, ArgumentError, "recipe_b: columns"),
        ({"compiled_dims": "xy"}, ArgumentError, "compiled_dims"),
    ],
)
def test_arguments_of_fp8_gemm_nt_are_checked(arguments, error, message):
    a, sfa, b, sfb = operands()
    d = torch.full((M, N), 7.0, dtype=torch.bfloat16)
    with pytest.raises(error, match=message):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, **arguments)
    assert torch.equal(d, torch.full_like(d, 7.0))


@pytest.mark.parametrize("name", [*FP8_NAMES, "wgrad_gemm_fp8_fp8_fp32_nt", "gemm_fp8_fp8_bf16_nt"])
@pytest.mark.parametrize("pair", [None, 3, (torch.zeros(1),), torch.zeros(2, 2)])
def test_what_is_no_pair_is_refused(name, pair, rng):
    t = drawn(fp8_problem(), rng)
    with pytest.raises(ArgumentError, match="form must be a pair"):
        getattr(deep_gemm, name)(pair, (t.b, t.sfb), torch.zeros(M, N))


# --- weight gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_wgrad_adds_into_its_output(transposed_a, transposed_b, rng):
    problem = fp8_problem("1d1d", d_dtype=FP32, c_mode=CMode.REDUCE)
    t = drawn(problem, rng)
    out = t.d.clone()
    wanted = reference_and_bound_of(problem, t)
    sfa = t.sfa.t().contiguous() if transposed_a else t.sfa
    sfb = t.sfb.t() if transposed_b else t.sfb
    deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt([t.a, sfa], (t.b, sfb), out)
    assert compare(out, *wanted).ok


def test_square_scales_of_wgrad_are_taken_as_rows_by_k_blocks(rng):
    generator = rng
    a, b = (torch.randn(2, 256, generator=generator).to(E4M3.torch) for _ in range(2))
    sfa, sfb = (torch.rand(2, 2, generator=generator) for _ in range(2))
    out, wanted = torch.ones(2, 2), torch.ones(2, 2)
    deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt((a, sfa), (b, sfb), out)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), wanted, wanted, (1, 1, 128))
    assert torch.equal(out, wanted)


def test_wgrad_refusals(rng):
    t = drawn(fp8_problem("1d1d", d_dtype=FP32), rng)
    call = deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt
    with pytest.raises(ArgumentError, match="out: dtype must be torch.float32"):
        call((t.a, t.sfa), (t.b, t.sfb), t.d.bfloat16())
    with pytest.raises(ArgumentError, match="out: type must be torch.Tensor"):
        call((t.a, t.sfa), (t.b, t.sfb), None)
    with pytest.raises(ArgumentError, match=r"sfa: shape must be \(33, 2\), got \(33, 1\)"):
        call((t.a, t.sfa[:, :1]), (t.b, t.sfb), torch.zeros(M, N))
    with pytest.raises(ArgumentError, match="sfb: type must be torch.Tensor"):
        call((t.a, t.sfa), (t.b, 1.0), torch.zeros(M, N))


def test_first_version_name_is_the_product_with_1x128_and_128x128_scales(rng):
    problem = fp8_problem()
    t = drawn(problem, rng)
    d = poisoned(torch.bfloat16)
    assert deep_gemm.gemm_fp8_fp8_bf16_nt([t.a, t.sfa], (t.b, t.sfb), d) is None
    judge(problem, t, d)


# --- BF16 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("majors", ["kk", "km", "mk", "mm"])
@pytest.mark.parametrize("d_type", [BF16, FP32], ids=lambda t: t.name)
def test_bf16_layouts_and_majors_against_float64(layout, majors, d_type, rng):
    a_major, b_major = (Major.K if major == "k" else Major.MN for major in majors)
    problem = bf16_problem(d_dtype=d_type, a_major=a_major, b_major=b_major)
    t = drawn(problem, rng)
    d = poisoned(d_type.torch)
    assert getattr(deep_gemm, f"bf16_gemm_{layout}")(*laid_out(layout, t.a, t.b), d) is None
    judge(problem, t, d)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d_type", [BF16, FP32], ids=lambda t: t.name)
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_bf16_adds_c_of_the_output_type(layout, d_type, in_place, rng):
    problem = bf16_problem(d_dtype=d_type, c_mode=CMode.READ)
    t = drawn(problem, rng)
    d = t.c.clone() if in_place else poisoned(d_type.torch)
    a, b = laid_out(layout, t.a, t.b)
    getattr(deep_gemm, f"bf16_gemm_{layout}")(a, b, d, d if in_place else t.c, "mn")
    judge(problem, t, d)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bf16_arguments_stand_in_the_interface_order(layout, rng):
    call = getattr(deep_gemm, f"bf16_gemm_{layout}")
    taken = inspect.signature(call).parameters
    assert list(taken) == ["a", "b", "d", "c", "compiled_dims"]
    assert taken["compiled_dims"].default == ("nk" if layout[0] == "n" else "mn")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"a": lambda t: t.half()}, "a: dtype must be torch.bfloat16, got torch.float16"),
        ({"b": lambda t: t.float()}, "b: dtype must be torch.bfloat16"),
        ({"a": lambda t: (t, None)}, "a: type must be torch.Tensor, got tuple"),
        ({"d": lambda t: t.half()}, "d: dtype must be torch.bfloat16 or torch.float32"),
        ({"d": lambda t: t[:, :8]}, "d: shape"),
        ({"c": lambda t: t.float()}, "c: dtype must be torch.bfloat16"),
        ({"c": lambda t: t[:, :8]}, "c: shape"),
        ({"compiled_dims": lambda t: "q"}, "compiled_dims"),
    ],
)
def test_bf16_refusals(change, message, rng):
    t = drawn(bf16_problem(c_mode=CMode.READ), rng)
    arguments = {"a": t.a, "b": t.b, "d": torch.zeros_like(t.d), "c": t.c, "compiled_dims": "nk"}
    written = arguments["d"]
    arguments |= {name: edit(arguments[name]) for name, edit in change.items()}
    with pytest.raises(ArgumentError, match=message):
        deep_gemm.bf16_gemm_nt(**arguments)
    assert (written == 0).all()


# --- cuBLASLt -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operand", [BF16, E4M3, E5M2], ids=lambda t: t.name)
@pytest.mark.parametrize("d_type", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("c_mode", ["none", "apart", "in place"])
def test_cublaslt_on_the_cpu_is_the_unscaled_product(layout, operand, d_type, c_mode, rng):
    a, b = (torch.randn(rows, K, generator=rng).to(operand.torch) for rows in (M, N))
    before = torch.randn(M, N, generator=rng).to(d_type)
    d = before.clone() if c_mode == "in place" else poisoned(d_type)
    c = {"none": None, "apart": before, "in place": d}[c_mode]
    wanted = a.double() @ b.double().t() + (0 if c_mode == "none" else before.double())
    call = getattr(deep_gemm, f"cublaslt_gemm_{layout}")
    assert list(inspect.signature(call).parameters) == ["a", "b", "d", "c"]
    assert call(*laid_out(layout, a, b), d, c) is None
    assert calc_diff(d, wanted) < (1e-12 if d_type == torch.float32 else 1e-5)


def test_cublaslt_of_nothing():
    d = torch.full((3, 8), 7.0)
    a, b = torch.zeros(3, 0).bfloat16(), torch.zeros(8, 0).bfloat16()
    deep_gemm.cublaslt_gemm_nt(a, b, d, d)
    assert (d == 7).all()
    deep_gemm.cublaslt_gemm_nt(a, b, d)
    assert (d == 0).all()
    deep_gemm.cublaslt_gemm_nt(a[:0], b, d[:0])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"a": lambda t: t.half()}, "b: dtype must be torch.float16"),
        ({"a": lambda t: t.half(), "b": lambda t: t.half()}, "a: dtype must be torch.bfloat16 or"),
        ({"a": lambda t: t.char(), "b": lambda t: t.char()}, "a: dtype must be torch.bfloat16 or"),
        ({"b": lambda t: t[:, :16]}, "b: shape"),
        ({"d": lambda t: t.half(), "c": lambda t: t.half()}, "d: dtype must be torch.bfloat16 or"),
        ({"c": lambda t: t.float()}, "c: dtype"),
        ({"a": lambda t: None}, "a: type must be torch.Tensor"),
    ],
)
def test_cublaslt_refusals(change, message, rng):
    t = drawn(bf16_problem(c_mode=CMode.READ), rng)
    arguments = {"a": t.a, "b": t.b, "d": torch.zeros_like(t.d), "c": t.c}
    arguments |= {name: edit(arguments[name]) for name, edit in change.items()}
    with pytest.raises(ArgumentError, match=message):
        deep_gemm.cublaslt_gemm_nt(**arguments)


def test_cublaslt_says_what_it_wants_of_fp8_on_a_gpu():
    from deep_gemm.compat import cublaslt

    good = GemmProblem(3, 32, 48, E4M3, E5M2, BF16, None, None)
    cublaslt._check_fp8(good)
    for change, message in (
        ({"n": 24}, "N in multiples of 16"),
        ({"k": 40}, "K in multiples of 16"),
        ({"b_major": Major.MN}, "b of FP8: cuBLASLt wants its K contiguous"),
        ({"a_dtype": E5M2}, "e5m2 with e5m2"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            cublaslt._check_fp8(replace(good, **change))


def test_cublaslt_asks_torch_for_the_wider_type_and_for_c(monkeypatch):
    """What a GPU is asked for, seen without one."""
    from deep_gemm.compat import cublaslt

    asked: list[tuple[str, int, dict[str, Any]]] = []
    for name in ("mm", "addmm", "_scaled_mm"):
        monkeypatch.setattr(
            torch,
            name,
            lambda *tensors, _name=name, **options: (
                asked.append((_name, len(tensors), options)) or torch.zeros(3, 16)
            ),
        )
    x, d = torch.zeros(3, 16).bfloat16(), torch.zeros(3, 16)
    w, c = torch.zeros(16, 16).bfloat16(), torch.ones(3, 16)
    cublaslt._mm(x, w, d, None)
    cublaslt._mm(x, w, d.bfloat16(), c.bfloat16())
    cublaslt._scaled_mm(x, w, d, None)
    cublaslt._scaled_mm(x, w, d, c)
    assert [(name, count) for name, count, _ in asked] == [
        ("mm", 2), ("addmm", 3), ("_scaled_mm", 4), ("_scaled_mm", 4),
    ]  # fmt: skip
    assert asked[0][2]["out_dtype"] == torch.float32 and "out_dtype" not in asked[1][2]
    assert asked[2][2]["out"] is d and "out" not in asked[3][2]
    assert torch.equal(d, c)
