"""gemm(): which calls share a plan, and what leaves none."""

from __future__ import annotations

import pytest
import torch

import deep_gemm
from deep_gemm import DeepGemmError, dispatch
from deep_gemm.problem import ScaleChoice
from deep_gemm.problem.epilogue import EpilogueOp, TensorOperand
from deep_gemm.problem.request import Options, Tensors

from .dense_kit import BF16, CudaLike, M, N, operands


def test_each_set_of_options_has_its_plan(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append(options)
        return lambda tensors, alpha, beta: tensors.d.fill_(options.static_b)

    monkeypatch.setattr(dispatch, "_plan", plan)
    monkeypatch.setattr(dispatch, "_plans", {})
    a, sfa, b, sfb = operands()
    a, d = a.as_subclass(CudaLike), torch.empty(M, N, dtype=BF16)
    for _ in range(2):
        for static_b in (False, True):
            deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d, static_b=static_b)
            assert torch.equal(d, torch.full_like(d, static_b))
            out = deep_gemm.matmul((a, sfa), (b, sfb), d.zero_(), static_b=static_b)
            assert torch.equal(out, torch.full_like(d, static_b))
        deep_gemm.gemm_fp8_fp8_bf16_nt((a, sfa), (b, sfb), d)
        assert torch.equal(d, torch.zeros_like(d))
    wanted = [
        Options(scales, False, static_b, None)
        for static_b in (False, True)
        for scales in (ScaleChoice.SCALED_1D2D, ScaleChoice.AUTO)
    ]
    assert planned == wanted


def test_alpha_beta_and_c_share_plans_where_they_may(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append((tensors.c is not None, alpha, beta))
        return lambda tensors, alpha, beta: None

    monkeypatch.setattr(dispatch, "_plan", plan)
    monkeypatch.setattr(dispatch, "_plans", {})
    a, sfa, b, sfb = operands()
    a, c, d = a.as_subclass(CudaLike), torch.zeros(M, N, dtype=BF16), torch.empty(M, N, dtype=BF16)
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


def test_epilogue_ops_and_the_metadata_of_their_tensors_have_plans(monkeypatch):
    planned = []

    def plan(tensors, options, alpha, beta):
        planned.append((options.epilogue, tuple(x.stride() for x in tensors.epilogue)))
        return lambda tensors, alpha, beta: None

    monkeypatch.setattr(dispatch, "_plan", plan)
    monkeypatch.setattr(dispatch, "_plans", {})
    a, sfa, b, sfb = operands()
    a, d = a.as_subclass(CudaLike), torch.empty(M, N, dtype=BF16)
    negate = EpilogueOp("negate", "epilogue::Negate")
    bias = EpilogueOp("bias", "epilogue::Bias", (TensorOperand("bias", ("n",)),))
    calls = (
        ((), ()),
        ((negate,), ()),
        ((bias,), (torch.zeros(N),)),
        ((bias,), (torch.ones(N),)),  # other contents
        ((bias,), (torch.zeros(2 * N)[::2],)),
    )
    for ops, operand in calls:
        tensors = Tensors(a, sfa, b, sfb, None, d, epilogue=operand)
        dispatch.gemm(tensors, Options(epilogue=ops))
    assert planned == [((), ()), ((negate,), ()), ((bias,), ((1,),)), ((bias,), ((2,),))]


def test_a_refused_call_leaves_no_plan_behind():
    a, sfa, b, sfb = operands()
    d = torch.empty(M, N, dtype=torch.float64)
    for _ in range(2):
        with pytest.raises(DeepGemmError, match="d: dtype"):
            deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
