"""Converted layers on the GPU: any widths, every recipe, moves, capture."""

from __future__ import annotations

import copy

import pytest
import torch

from deep_gemm import nn

RECIPES = sorted(nn.RECIPES)
# Relative error of a product of normal data, with a margin of two over what the formats give.
ERROR = {"bf16": 0.01, "int8_row": 0.03}


def linear(width: int, outputs: int, bias: bool = True) -> torch.nn.Linear:
    return torch.nn.Linear(width, outputs, bias=bias, device="cuda")


def relative(actual: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((actual.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("width", "outputs"), [(512, 384), (100, 10), (257, 1001)])
def test_widths_that_kernels_do_not_take_are_padded(recipe, width, outputs):
    original = linear(width, outputs)
    for rows in (1, 33, 200):
        x = torch.randn(rows, width, device="cuda")
        layer = nn.QuantLinear.from_linear(original, nn.RECIPES[recipe]).eval()
        with torch.no_grad():
            assert relative(layer(x), original(x)) < ERROR.get(recipe, 0.08), (recipe, rows)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_layer_moved_to_the_gpu_computes_as_one_made_there(recipe):
    original = torch.nn.Linear(300, 200)
    moved = nn.QuantLinear.from_linear(original, nn.RECIPES[recipe]).eval().to("cuda")
    on_gpu = copy.deepcopy(original).to("cuda")
    made = nn.QuantLinear.from_linear(on_gpu, nn.RECIPES[recipe]).eval()
    x = torch.randn(40, 300, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(moved)(x), made(x))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_converted_model_can_be_captured(recipe):
    model = torch.nn.Sequential(linear(256, 512), torch.nn.GELU(), linear(512, 64, bias=False))
    model = nn.convert(model.eval(), recipe)
    x = torch.randn(16, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        x.normal_()
        graph.replay()
        assert torch.equal(y, model(x))
