"""Advice on scales: spreads, what a scale per tensor loses, errors, and the choice they lead to."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import deep_gemm
from deep_gemm import quant
from deep_gemm.errors import ArgumentError
from deep_gemm.quant.advisor import CLOSE

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def normal(rng, *shape):
    return torch.randn(*shape, generator=rng)


def relative(found, reference):
    return float((found.double() - reference.double()).norm() / reference.double().norm())


def test_spread_is_of_the_largest_channel_over_the_median_one():
    """Median of an even number of channels: the lower one. Channels of zeros do not count."""
    weight = torch.tensor([[1.0, -2.0], [0.0, 0.0], [20.0, 1.0], [-200.0, 0.0], [2000.0, 3.0]])
    advice = quant.advise(weight, torch.tensor([[5.0, 1e-3], [-500.0, 1e-3], [0.0, 0.05]]))
    assert advice.weight.spread == pytest.approx(2.0)
    assert advice.activation.spread == pytest.approx(4.0)
    assert advice.spread == pytest.approx(4.0)
    assert (advice.weight.amax, advice.activation.amax) == (2000.0, 500.0)


def test_values_one_scale_loses_are_counted():
    # Scale 1: 448 is the largest value, 2**-9 the smallest, and half of it is rounded to zero.
    weight = torch.tensor([[448.0, 2.0**-9, 2.0**-10, -(2.0**-11), 0.0]])
    found = quant.advise(weight).weight
    assert found.flushed == 2 / 4 and found.beyond == 0
    assert quant.advise(weight * 2).weight.beyond == 1
    assert quant.advise(weight * 2, dtype=E5M2).weight.beyond == 0
    whole = torch.tensor([[127.0, 1.0, -128.0, 500.0]])
    assert quant.advise(whole, dtype=torch.int8).weight.beyond == 2


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_errors_are_those_of_the_casts(rng, dtype):
    weight, x = normal(rng, 200, 300), normal(rng, 17, 300)
    row_a, row_b = (quant.per_row_cast_to_fp8(t, dtype=dtype) for t in (x, weight))
    alone = quant.advise(weight, dtype=dtype).errors
    found = quant.advise(weight, x, dtype).errors
    assert set(alone) == set(found) == {"per_tensor", "per_channel", "block"}
    b = quant.dequantize(*row_b, quant.PER_CHANNEL)
    assert alone["per_channel"] == pytest.approx(relative(b, weight), rel=1e-6)
    a = quant.dequantize(*row_a, quant.PER_CHANNEL)
    product = x.double() @ weight.double().t()
    assert found["per_channel"] == pytest.approx(relative(a @ b.t(), product), rel=1e-4)


def test_like_channels_need_one_scale(rng):
    advice = quant.advise(normal(rng, 256, 512), normal(rng, 64, 512))
    assert advice.recommendation == "per_tensor" and advice.spread < 1


def test_outlier_columns_of_an_activation_are_seen_only_with_it(rng):
    """One column in a hundred, 30 times the others, as in transformers."""
    weight, x = normal(rng, 256, 1024), normal(rng, 64, 1024)
    x[:, ::100] *= 30
    assert quant.advise(weight).recommendation == "per_tensor"
    advice = quant.advise(weight, x)
    assert advice.recommendation != "per_tensor"
    assert 1 < advice.activation.spread < 2 and advice.weight.spread < 1


def test_unlike_rows_need_a_scale_each(rng):
    weight = (
        normal(rng, 256, 512) * torch.logspace(-4, 0, 256)[torch.randperm(256, generator=rng), None]
    )
    advice = quant.advise(weight, normal(rng, 64, 512))
    assert advice.spread > 1 and advice.recommendation == "per_channel"
    assert advice.errors["per_channel"] <= CLOSE * advice.errors["block"]


def test_magnitudes_that_differ_along_k_need_blocks(rng):
    weight, x = normal(rng, 256, 512), normal(rng, 64, 512)
    x[:, :128] *= 1e6
    weight[:, :128] *= 1e-6
    advice = quant.advise(weight, x)
    assert advice.recommendation == "block"
    assert advice.errors["block"] < 0.1 < advice.errors["per_channel"]


def test_an_error_too_large_overrules_a_small_spread(rng):
    """One outlier in every row: rows are alike, but one scale flushes all other elements."""
    weight = normal(rng, 64, 512) * 1e-6
    weight[:, 0] = 1.0
    x = normal(rng, 64, 512)
    x[:, 0] = 0.0
    advice = quant.advise(weight, x)
    assert advice.weight.spread < 1 and advice.weight.flushed > 0.9
    assert advice.recommendation == "block" and "per tensor" in str(advice)


def test_int8_has_no_blocks(rng):
    weight = normal(rng, 64, 512) * torch.logspace(-2, 0, 64)[:, None]
    advice = quant.advise(weight, normal(rng, 32, 512), torch.int8)
    assert set(advice.errors) == {"per_tensor", "per_channel"}
    assert advice.recommendation == "per_channel" and "INT8" in advice.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_floating_type_and_any_strides_are_taken(rng, dtype):
    weight, x = normal(rng, 96, 40).to(dtype).t(), normal(rng, 5, 192).to(dtype)[:, ::2]
    found, wanted = quant.advise(weight, x), quant.advise(weight.contiguous(), x.contiguous())
    assert found.errors == pytest.approx(wanted.errors)
    assert dataclasses.replace(found, errors=wanted.errors) == wanted


def test_zeros_need_nothing():
    advice = quant.advise(torch.zeros(4, 8), torch.zeros(2, 8))
    assert advice.recommendation == "per_tensor"
    assert set(advice.errors.values()) == {0.0} and advice.spread == 0.0


def test_a_report_names_all_that_was_found(rng):
    advice = quant.advise(normal(rng, 64, 256), normal(rng, 8, 256) * 1000)
    text = str(advice)
    words = advice.recommendation.replace("per_", "per ")
    assert text.splitlines()[0] == f"{words}: {advice.reason}"
    assert "weight rows: spread" in text and "activation columns: spread" in text
    assert "beyond 448" in text and "error of the product: per tensor" in text
    assert "activation" not in str(quant.advise(normal(rng, 64, 256)))
    assert all(len(line) < 160 for line in text.splitlines())


def test_advice_is_frozen_and_bound_at_the_top():
    advice = deep_gemm.advise(torch.ones(2, 2))
    assert isinstance(advice, deep_gemm.Advice) and hash(advice) == hash(advice)
    with pytest.raises(AttributeError):
        advice.reason = "because"


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ((torch.ones(4),), "weight: shape"),
        ((torch.ones(0, 4),), "weight: shape"),
        ((torch.full((2, 2), math.nan),), "weight: every value must be finite, got 4 of 4"),
        ((torch.ones(2, 3), torch.tensor([[1.0, math.inf, 0.0]])), "activation: every value"),
        ((torch.ones(2, 3), torch.ones(2, 4)), "activation: shape and device must be 3 columns"),
        ((torch.ones(2, 3), None, torch.bfloat16), "dtype: value"),
        ((torch.ones(2, 3), None, torch.complex64), "dtype: value"),
    ],
)
def test_what_cannot_be_judged_is_refused(arguments, about):
    with pytest.raises(ArgumentError, match=about):
        quant.advise(*arguments)
