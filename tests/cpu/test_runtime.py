"""Availability, the SM budget and scoped settings, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, UnsupportedError, runtime, settings
from deep_gemm.dtypes import FP32
from deep_gemm.kernels import gemm_sm90, group_tensor_maps, transpose
from deep_gemm.kernels.spec import KernelSpec
from deep_gemm.problem import CMode, GemmProblem, Grouping, GroupKind, Major
from deep_gemm.problem.scale_recipe import ROW_1X128

from .config_kit import H200


@pytest.fixture(autouse=True)
def unchanged():
    before = settings.current()
    yield
    settings._install(before)


def test_availability_has_a_reason():
    found = deep_gemm.is_available()
    assert bool(found) == found.available
    assert found.reason
    if not torch.cuda.is_available():
        assert not found and "no CUDA device" in found.reason


def test_any_sm_budget_can_be_set_and_lifted():
    for cap in (1, 131, 7, 132):
        deep_gemm.set_num_sms(cap)
        assert deep_gemm.get_num_sms() == cap
    deep_gemm.set_num_sms(0)
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="no cap is set"):
            deep_gemm.get_num_sms()


@pytest.mark.parametrize("bad", [-1, 1.5, None])
def test_other_budgets_are_refused(bad):
    with pytest.raises(ArgumentError, match="num_sms"):
        deep_gemm.set_num_sms(bad)


def test_override_ends_even_by_an_error():
    version = settings.version()
    with pytest.raises(ZeroDivisionError), deep_gemm.override(num_sms=5, pdl=False):
        assert deep_gemm.get_num_sms() == 5 and not deep_gemm.get_pdl()
        raise ZeroDivisionError
    assert settings.current() == settings.Settings()
    assert settings.version() > version, "plans made inside must not outlive the block"


def test_pdl_can_be_set():
    deep_gemm.set_pdl(False)
    assert not deep_gemm.get_pdl()
    deep_gemm.set_pdl(True)
    assert deep_gemm.get_pdl()


def test_warmup_loads_what_groups_along_k_need_besides(monkeypatch):
    loaded = []
    monkeypatch.setattr(runtime, "from_index", lambda index: H200)
    monkeypatch.setattr(KernelSpec, "load", lambda kernel, index: loaded.append(kernel))
    monkeypatch.setattr(group_tensor_maps, "load", lambda problem, index: loaded.append(problem))
    scaled_1d1d = GemmProblem.block_scaled(0, 0, 0)
    scaled_1d1d = replace(scaled_1d1d, d_dtype=FP32, scale_b=ROW_1X128, c_mode=CMode.REDUCE)
    for grouping, others in ((Grouping(GroupKind.ALONG_K, 4), 1), (None, 0)):
        like = replace(scaled_1d1d, grouping=grouping)
        configs = deep_gemm.warmup([512], 1024, 4096, 0, like=like)
        assert [gemm_sm90.spec(config) for config in configs] == loaded[: len(configs)]
        assert configs and len(loaded) == len(configs) + others
        loaded.clear()


def test_warmup_loads_the_transpose_of_operands_that_need_it(monkeypatch):
    loaded = []
    monkeypatch.setattr(runtime, "from_index", lambda index: H200)
    monkeypatch.setattr(KernelSpec, "load", lambda kernel, index: loaded.append(kernel))
    monkeypatch.setattr(transpose, "load", lambda index: loaded.append("transpose"))
    problem = GemmProblem.block_scaled(0, 0, 0)
    for major, others in ((Major.MN, ["transpose"]), (Major.K, [])):
        configs = deep_gemm.warmup([512], 1024, 4096, 0, like=replace(problem, b_major=major))
        assert loaded[len(configs) :] == others
        loaded.clear()
