"""matmul() on CPU tensors: values, kinds of arguments, empty extents, and every refusal."""

from __future__ import annotations

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, ScaledTensor, UnsupportedError
from deep_gemm.problem.scale_recipe import BLOCK_128X128, ROW_1X128

from .dense_kit import BF16, K, M, N, judge, operands


@pytest.mark.parametrize("m, n, k", [(1, 8, 16), (M, N, K), (130, 200, 640), (5, 264, 2112)])
def test_values_against_float64(m, n, k):
    tensors = a, sfa, b, sfb = operands(m, n, k)
    judge(deep_gemm.matmul((a, sfa), (b, sfb)), tensors)


def test_every_kind_of_arguments_gives_the_same_bits():
    a, sfa, b, sfb = operands()
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


def test_static_b_changes_no_value():
    a, sfa, b, sfb = operands()
    wanted = deep_gemm.matmul((a, sfa), (b, sfb))
    assert torch.equal(deep_gemm.matmul((a, sfa), (b, sfb), static_b=True), wanted)
    d = torch.full((M, N), float("nan"), dtype=BF16)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, static_b=True)
    assert torch.equal(d, wanted)


def test_static_b_is_given_by_name():
    a, sfa, b, sfb = operands()
    d = torch.full((M, N), 7.0, dtype=BF16)
    with pytest.raises(TypeError):
        deep_gemm.matmul((a, sfa), (b, sfb), d, True)
    interface = (None, None, None, None, "nk", False)
    with pytest.raises(TypeError):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, *interface, True)
    assert torch.equal(d, torch.full_like(d, 7.0))
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, *interface)
    assert torch.equal(d, deep_gemm.matmul((a, sfa), (b, sfb)))


def test_empty_extents():
    a, sfa, b, sfb = operands()
    none = deep_gemm.matmul((a[:0], sfa[:0]), (b, sfb))
    assert none.shape == (0, N)
    assert deep_gemm.matmul((a, sfa), (b[:0], sfb[:0])).shape == (M, 0)
    d = torch.full((M, N), float("nan"), dtype=BF16)
    deep_gemm.fp8_gemm_nt((a[:, :0], sfa[:, :0]), (b[:, :0], sfb[:, :0]), d)
    assert torch.equal(d, torch.zeros_like(d))


def test_one_row_may_have_any_stride():
    a, sfa, b, sfb = operands(1, 8, 128)
    strange = a.as_strided((1, 128), (3, 1))
    assert torch.equal(
        deep_gemm.matmul((strange, sfa), (b, sfb)), deep_gemm.matmul((a, sfa), (b, sfb))
    )


def _changed(index, change):
    def edit(tensors):
        tensors[index] = change(tensors[index])
        return tensors

    return edit


REFUSALS = {
    "a dtype": (
        _changed(0, lambda t: t.float()),
        "a: dtype must be float8_e4m3fn, .* got torch.float32",
    ),
    "b dtype": (_changed(2, lambda t: t.bfloat16()), "b: dtype must be torch.float8_e4m3fn"),
    "a 3-D": (_changed(0, lambda t: t[None]), "a: number of dimensions must be 2, got 3"),
    "a no tensor": (_changed(0, lambda t: t.tolist), "a: type must be torch.Tensor"),
    "k differs": (_changed(2, lambda t: t[:, :192]), r"b: shape must be \(72, 208\)"),
    "a strided": (_changed(0, lambda t: t.repeat(1, 2)[:, ::2]), "a: stride of the last dimension"),
    "b overlapping": (
        _changed(2, lambda t: t.flatten().as_strided((N, K), (16, 1))),
        "b: row stride must be at least 208",
    ),
    "sfa shape": (_changed(1, lambda t: t[:, :1]), r"sfa: shape must be \(33, 2\), got \(33, 1\)"),
    "sfa int32": (_changed(1, lambda t: t.int()), "sfa: dtype must be torch.float32.*UE8M0"),
    "sfa fp16": (_changed(1, lambda t: t.half()), "sfa: dtype must be torch.float32"),
    "sfb shape": (_changed(3, lambda t: t.t()), r"sfb: shape must be \(1, 2\), got \(2, 1\)"),
    "sfb device": (_changed(3, lambda t: t.to("meta")), "sfb: device must be cpu, got meta"),
    "d dtype": (_changed(4, lambda t: t.double()), "d: dtype must be one of torch.bfloat16"),
    "d int32": (_changed(4, lambda t: t.int()), "d: dtype must be .*unscaled INT8"),
    "d shape": (_changed(4, lambda t: t[:, :64]), r"d: shape must be \(33, 72\), got \(33, 64\)"),
    "d column-major": (
        _changed(4, lambda t: t.t().contiguous().t()),
        "d: stride of the last dimension must be 1",
    ),
    "d expanded": (_changed(4, lambda t: t[:1].expand(M, N)), "d: row stride must be at least 72"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_says_what_is_wrong_and_writes_nothing(name):
    edit, message = REFUSALS[name]
    d = torch.full((M, N), 7.0, dtype=BF16)
    a, sfa, b, sfb, out = edit([*operands(), d])
    with pytest.raises(ArgumentError, match=message) as refused:
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
    assert isinstance(refused.value, RuntimeError)
    assert torch.equal(d, torch.full_like(d, 7.0))


def test_other_devices_are_refused():
    tensors = [t.to("meta") for t in operands()]
    a, sfa, b, sfb = tensors
    with pytest.raises(UnsupportedError, match="meta"):
        deep_gemm.matmul((a, sfa), (b, sfb))
