"""matmul() and its named forms on CPU tensors: values, forms of input, and every refusal."""

from __future__ import annotations

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, DeepGemmError, ScaledTensor, UnsupportedError, gemm
from deep_gemm.problem.scale_recipe import BLOCK_128X128, ROW_1X128
from deep_gemm.testing.numerics import compare, reference_and_bound
from deep_gemm.testing.problems import make_block_scaled

M, N, K = 33, 72, 208
BF16 = torch.bfloat16


def problem(m=M, n=N, k=K, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return make_block_scaled(m, n, k, "cpu", generator)


def judge(out, tensors):
    reference, bound = reference_and_bound(*tensors, BF16)
    report = compare(out, reference, bound)
    assert report.ok, str(report)


@pytest.mark.parametrize("m, n, k", [(1, 8, 16), (M, N, K), (130, 200, 640), (5, 264, 2112)])
def test_values_against_float64(m, n, k):
    tensors = a, sfa, b, sfb = problem(m, n, k)
    judge(deep_gemm.matmul((a, sfa), (b, sfb)), tensors)


def test_every_form_gives_the_same_bits():
    a, sfa, b, sfb = problem()
    wanted = deep_gemm.matmul((a, sfa), (b, sfb))
    out = torch.full((M, N + 8), float("nan"), dtype=BF16)
    assert deep_gemm.matmul([a, sfa], [b, sfb], out[:, :N]).data_ptr() == out.data_ptr()
    assert torch.equal(out[:, :N], wanted) and out[:, N:].isnan().all()
    whole = deep_gemm.matmul(ScaledTensor(a, sfa, ROW_1X128), ScaledTensor(b, sfb, BLOCK_128X128))
    assert torch.equal(whole, wanted)
    for call in (deep_gemm.fp8_gemm_nt, deep_gemm.gemm_fp8_fp8_bf16_nt):
        d = torch.full((M, N), float("nan"), dtype=BF16)
        assert call((a, sfa), [b, sfb], d) is None
        assert torch.equal(d, wanted)


@pytest.mark.parametrize("recipe", [{"recipe": (1, 128, 128)}, {"recipe": [1, 128, 128]}])
def test_all_arguments_of_the_named_form(recipe):
    a, sfa, b, sfb = problem()
    d = torch.empty(M, N, dtype=BF16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, None, **recipe, compiled_dims="mnk")
    other = {"recipe_a": (1, 128), "recipe_b": (128, 128), "disable_ue8m0_cast": True}
    again = torch.empty(M, N, dtype=BF16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), again, c=None, compiled_dims="", **other)
    assert torch.equal(d, again)


def test_static_b_is_a_word_about_b_and_changes_no_value():
    a, sfa, b, sfb = problem()
    wanted = deep_gemm.matmul((a, sfa), (b, sfb))
    assert torch.equal(deep_gemm.matmul((a, sfa), (b, sfb), static_b=True), wanted)
    d = torch.full((M, N), float("nan"), dtype=BF16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, static_b=True)
    assert torch.equal(d, wanted)


def test_static_b_is_given_by_name():
    a, sfa, b, sfb = problem()
    d = torch.full((M, N), 7.0, dtype=BF16)
    with pytest.raises(TypeError):
        deep_gemm.matmul((a, sfa), (b, sfb), d, True)
    interface = (None, None, None, None, "nk", False)
    with pytest.raises(TypeError):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, *interface, True)
    assert torch.equal(d, torch.full_like(d, 7.0))
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, *interface)
    assert torch.equal(d, deep_gemm.matmul((a, sfa), (b, sfb)))


class OnGpu(torch.Tensor):
    """A CPU tensor whose plans are kept, as those of CUDA tensors are."""

    is_cuda = True


def test_each_form_of_a_call_has_its_plan(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append(options)
        return lambda tensors, alpha, beta: tensors.d.fill_(options.static_b)

    monkeypatch.setattr(gemm, "_plan", plan)
    monkeypatch.setattr(gemm, "_plans", {})
    a, sfa, b, sfb = problem()
    a, d = a.as_subclass(OnGpu), torch.empty(M, N, dtype=BF16)
    for _ in range(2):
        for static_b in (False, True):
            deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, static_b=static_b)
            assert torch.equal(d, torch.full_like(d, static_b))
            out = deep_gemm.matmul((a, sfa), (b, sfb), d.zero_(), static_b=static_b)
            assert torch.equal(out, torch.full_like(d, static_b))
        deep_gemm.gemm_fp8_fp8_bf16_nt((a, sfa), (b, sfb), d)
        assert torch.equal(d, torch.zeros_like(d))
    wanted = [
        (scales, False, static_b, None)
        for static_b in (False, True)
        for scales in ("block", "auto")
    ]
    assert planned == wanted


def test_alpha_beta_and_c_share_plans_where_they_may(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append((tensors.c is not None, alpha, beta))
        return lambda tensors, alpha, beta: None

    monkeypatch.setattr(gemm, "_plan", plan)
    monkeypatch.setattr(gemm, "_plans", {})
    a, sfa, b, sfb = problem()
    a, c, d = a.as_subclass(OnGpu), torch.zeros(M, N, dtype=BF16), torch.empty(M, N, dtype=BF16)
    for options in (
        {}, {"alpha": 2.0}, {"alpha": 3.0}, {"beta": 0.5}, {"c": c, "beta": 0.0},
        {"c": c}, {"c": c, "beta": 0.5}, {"c": c, "beta": 0.25}, {"c": d}, {"c": d, "beta": 0.5},
    ):  # fmt: skip
        deep_gemm.matmul((a, sfa), (b, sfb), d, **options)
    assert planned == [
        (False, 1.0, 1.0),
        (False, 2.0, 1.0),
        (True, 1.0, 1.0),
        (True, 1.0, 0.5),
        (True, 1.0, 1.0),
        (True, 1.0, 0.5),
    ]


def test_empty_extents():
    a, sfa, b, sfb = problem()
    none = deep_gemm.matmul((a[:0], sfa[:0]), (b, sfb))
    assert none.shape == (0, N)
    assert deep_gemm.matmul((a, sfa), (b[:0], sfb[:0])).shape == (M, 0)
    d = torch.full((M, N), float("nan"), dtype=BF16)
    deep_gemm.fp8_gemm_nt((a[:, :0], sfa[:, :0]), (b[:, :0], sfb[:, :0]), d)
    assert torch.equal(d, torch.zeros_like(d))


def test_one_row_may_have_any_stride():
    a, sfa, b, sfb = problem(1, 8, 128)
    strange = a.as_strided((1, 128), (3, 1))
    assert torch.equal(
        deep_gemm.matmul((strange, sfa), (b, sfb)), deep_gemm.matmul((a, sfa), (b, sfb))
    )


def _swap(index, change):
    def edit(tensors):
        tensors[index] = change(tensors[index])
        return tensors

    return edit


REFUSALS = {
    "a dtype": (
        _swap(0, lambda t: t.float()),
        "a: dtype must be float8_e4m3fn, .* got torch.float32",
    ),
    "b dtype": (_swap(2, lambda t: t.bfloat16()), "b: dtype must be torch.float8_e4m3fn"),
    "a 3-D": (_swap(0, lambda t: t[None]), "a: number of dimensions must be 2, got 3"),
    "a no tensor": (_swap(0, lambda t: t.tolist), "a: type must be torch.Tensor"),
    "k differs": (_swap(2, lambda t: t[:, :192]), r"b: shape must be \(72, 208\)"),
    "a strided": (_swap(0, lambda t: t.repeat(1, 2)[:, ::2]), "a: stride of the last dimension"),
    "b overlapping": (
        _swap(2, lambda t: t.flatten().as_strided((N, K), (16, 1))),
        "b: row stride must be at least 208",
    ),
    "sfa shape": (_swap(1, lambda t: t[:, :1]), r"sfa: shape must be \(33, 2\), got \(33, 1\)"),
    "sfa int32": (_swap(1, lambda t: t.int()), "sfa: dtype must be torch.float32.*UE8M0"),
    "sfa fp16": (_swap(1, lambda t: t.half()), "sfa: dtype must be torch.float32"),
    "sfb shape": (_swap(3, lambda t: t.t()), r"sfb: shape must be \(1, 2\), got \(2, 1\)"),
    "sfb device": (_swap(3, lambda t: t.to("meta")), "sfb: device must be cpu, got meta"),
    "d dtype": (_swap(4, lambda t: t.double()), "d: dtype must be one of torch.bfloat16"),
    "d int32": (_swap(4, lambda t: t.int()), "d: dtype must be .*unscaled INT8"),
    "d shape": (_swap(4, lambda t: t[:, :64]), r"d: shape must be \(33, 72\), got \(33, 64\)"),
    "d column-major": (
        _swap(4, lambda t: t.t().contiguous().t()),
        "d: stride of the last dimension must be 1",
    ),
    "d expanded": (_swap(4, lambda t: t[:1].expand(M, N)), "d: row stride must be at least 72"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_says_what_is_wrong_and_writes_nothing(name):
    edit, message = REFUSALS[name]
    d = torch.full((M, N), 7.0, dtype=BF16)
    a, sfa, b, sfb, out = edit([*problem(), d])
    with pytest.raises(ArgumentError, match=message) as refused:
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
    assert isinstance(refused.value, RuntimeError)
    assert torch.equal(d, torch.full_like(d, 7.0))


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
def test_arguments_of_the_named_form_are_checked(arguments, error, message):
    a, sfa, b, sfb = problem()
    d = torch.full((M, N), 7.0, dtype=BF16)
    with pytest.raises(error, match=message):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, **arguments)
    assert torch.equal(d, torch.full_like(d, 7.0))


@pytest.mark.parametrize("pair", [None, 3, (torch.zeros(1),)])
def test_what_is_no_pair(pair):
    _, _, b, sfb = problem()
    with pytest.raises(ArgumentError, match="a: form must be a pair"):
        deep_gemm.matmul(pair, (b, sfb))


def test_a_tensor_is_no_pair_for_a_named_form_and_has_no_scales_for_matmul():
    a, _, b, sfb = problem()
    d = torch.empty(M, N, dtype=BF16)
    with pytest.raises(ArgumentError, match="a: form must be a pair"):
        deep_gemm.fp8_gemm_nt(a, (b, sfb), d)
    with pytest.raises(ArgumentError, match="b: form must be a pair"):
        deep_gemm.fp8_gemm_nt((a, sfb), b, d)
    assert deep_gemm.matmul(a, b).dtype == BF16


def test_other_devices_are_refused():
    tensors = [t.to("meta") for t in problem()]
    a, sfa, b, sfb = tensors
    with pytest.raises(UnsupportedError, match="meta"):
        deep_gemm.matmul((a, sfa), (b, sfb))


def test_a_refused_call_leaves_no_plan_behind():
    a, sfa, b, sfb = problem()
    d = torch.empty(M, N, dtype=torch.float64)
    for _ in range(2):
        with pytest.raises(DeepGemmError, match="d: dtype"):
            deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
