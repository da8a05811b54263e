"""Quantized layers: values by recipe, shapes, state dicts, moves, and conversion of models."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from torch import nn

import deep_gemm
from deep_gemm.errors import ArgumentError, UnsupportedError
from deep_gemm.nn import RECIPES, QuantLinear, Recipe, convert
from deep_gemm.problem import checks
from deep_gemm.quant import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128

every_recipe = pytest.mark.parametrize("recipe", RECIPES)

# Relative error of a product of normal data; INT8's is smaller, as its steps are 1/127 of amax.
LARGEST_ERROR = {
    "bf16": 4e-3, "fp8_tensor": 4.5e-2, "fp8_row": 4.5e-2, "fp8_block": 4.5e-2, "int8_row": 3e-2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def inference():
    with torch.no_grad():
        yield


def linear(rng, k, n, bias=True, dtype=torch.float32):
    made = nn.Linear(k, n, bias=bias)
    made.weight.copy_(torch.randn(n, k, generator=rng) / math.sqrt(k))
    if bias:
        made.bias.copy_(torch.randn(n, generator=rng))
    return made.to(dtype)


def relative(found, reference):
    return float((found.double() - reference.double()).norm() / reference.double().norm())


# --- values -------------------------------------------------------------------------------------


@every_recipe
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_outputs_are_near_the_floating_layers_in_its_type(rng, recipe, dtype):
    layer = linear(rng, 320, 96, bias=False)
    x = torch.randn(40, 320, generator=rng).to(dtype)
    y = QuantLinear.from_linear(layer, recipe)(x)
    assert y.dtype == dtype and y.shape == (40, 96)
    error = relative(y, x.double() @ layer.weight.double().t())
    assert error < LARGEST_ERROR[recipe] + (0 if dtype == torch.float32 else 3e-3)


@every_recipe
def test_outputs_are_the_product_of_the_quantized_operands(rng, recipe):
    layer = QuantLinear.from_linear(linear(rng, 200, 24, bias=False), recipe)
    x = torch.randn(9, 200, generator=rng)
    data, scale = layer.recipe.cast_activation(x)
    a = data if scale is None else deep_gemm.dequantize(data, scale, layer.recipe.activation)
    wanted = a.double() @ layer.dequantized_weight().double().t()
    torch.testing.assert_close(layer(x).double(), wanted, rtol=1e-5, atol=1e-5)


@every_recipe
@pytest.mark.parametrize(("k", "n"), [(1, 1), (19, 5), (333, 101), (128, 8), (130, 136)])
@pytest.mark.parametrize("bias", [True, False])
def test_any_widths_are_served_as_kernels_need_them(rng, recipe, k, n, bias):
    floating = linear(rng, k, n, bias)
    layer = QuantLinear.from_linear(floating, recipe)
    x = torch.randn(2, 3, k, generator=rng)
    y = layer(x)
    assert y.shape == (2, 3, n) and y.is_contiguous()
    weight = layer.dequantized_weight()
    assert weight.shape == (n, k)
    # Each operand is off by 2^-4 of its element at most; what INT8 is off by goes with amax.
    torch.testing.assert_close(
        weight, floating.weight, rtol=0.07, atol=0.03 * float(weight.abs().max())
    )
    rows, columns = layer.quantized_weight.shape
    assert rows % 8 == 0 and columns % 16 == 0 and layer.quantized_weight.is_contiguous()
    assert not layer.quantized_weight[n:].float().any()
    assert not layer.quantized_weight[:, k:].float().any()
    assert (layer.bias is None) == (not bias)


@every_recipe
@pytest.mark.parametrize(("k", "n"), [(19, 5), (333, 101), (136, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operands_are_laid_out_as_kernels_ask(rng, monkeypatch, recipe, k, n, dtype):
    from deep_gemm.nn import linear as module

    def check(a, b, *, out_dtype, static_b):
        a, b = (operand if isinstance(operand, torch.Tensor) else operand[0] for operand in (a, b))
        for name, operand in (("a", a), ("b", b)):
            checks.tma_rows(name, operand)
            checks.address(name, operand.data_ptr())
        checks.tma_extents(b.shape[0], out_dtype.itemsize)
        return torch.zeros(a.shape[0], b.shape[0], dtype=out_dtype)

    layer = QuantLinear.from_linear(linear(rng, k, n), recipe)
    x = torch.randn(7, 2 * k + 1, generator=rng).to(dtype)
    monkeypatch.setattr(module, "matmul", check)
    for view in (x[:, :k], x[:, 1 : k + 1], x[:, ::2][:, :k], x[:1, 1 : k + 1]):
        layer(view)


def test_padding_changes_no_value(rng):
    floating = linear(rng, 200, 5)
    x = torch.randn(6, 200, generator=rng)
    wide = linear(rng, 200, 8)
    wide.weight[:5], wide.bias[:5] = floating.weight, floating.bias
    found = [QuantLinear.from_linear(layer, "fp8_row")(x)[:, :5] for layer in (floating, wide)]
    assert torch.equal(*found)


@every_recipe
@pytest.mark.parametrize("lead", [(), (0,), (1,), (2, 0, 3), (2, 1, 3)])
def test_any_leading_dimensions_and_empty_batches(rng, recipe, lead):
    layer = QuantLinear.from_linear(linear(rng, 48, 20), recipe)
    assert layer(torch.randn(*lead, 48, generator=rng)).shape == (*lead, 20)


@every_recipe
def test_rows_do_not_depend_on_strides_or_on_the_batch(rng, recipe):
    layer = QuantLinear.from_linear(linear(rng, 64, 16), recipe)
    x = torch.randn(64, 12, generator=rng).t()
    assert torch.equal(layer(x), layer(x.contiguous()))
    if recipe != "fp8_tensor":
        assert torch.equal(layer(x)[3], layer(x[3]))


def test_the_bias_is_added_to_the_rounded_product_and_rounded_once(rng):
    floating = linear(rng, 64, 16)
    x = torch.randn(7, 64, generator=rng).bfloat16()
    layer = QuantLinear.from_linear(floating, "bf16")
    product = deep_gemm.matmul(x, floating.weight.bfloat16())
    assert torch.equal(layer(x), (product.float() + floating.bias).bfloat16())


@pytest.mark.parametrize("recipe", ["fp8_row", "fp8_block"])
def test_a_nan_stays_in_its_row(rng, recipe):
    layer = QuantLinear.from_linear(linear(rng, 64, 16), recipe)
    x = torch.randn(3, 64, generator=rng)
    x[1, 5] = math.nan
    y = layer(x)
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()


def test_the_kernel_is_told_that_weights_are_fixed_in_eval_mode_alone(rng, monkeypatch):
    from deep_gemm.nn import linear as module

    told = []
    real = module.matmul

    def spy(*arguments, **options):
        told.append(options["static_b"])
        return real(*arguments, **options)

    monkeypatch.setattr(module, "matmul", spy)
    layer = QuantLinear.from_linear(linear(rng, 16, 8)).eval()
    layer(torch.ones(1, 16))
    layer.train()(torch.ones(1, 16))
    assert told == [True, False]


def test_inputs_that_do_not_fit_are_refused(rng):
    layer = QuantLinear.from_linear(linear(rng, 16, 8))
    for x, about in (
        (torch.ones(2, 15), "input: shape"),
        (torch.tensor(1.0), "input: shape"),
        (torch.ones(2, 16, dtype=torch.float64), "input: dtype"),
        (torch.ones(2, 16, dtype=torch.int64), "input: dtype"),
    ):
        with pytest.raises(ArgumentError, match=about):
            layer(x)
    x = torch.ones(2, 16, requires_grad=True)
    layer(x)
    with torch.enable_grad(), pytest.raises(ArgumentError, match="no_grad"):
        layer(x)


# --- recipes ------------------------------------------------------------------------------------


def test_a_recipe_of_ones_own(rng):
    mixed = Recipe("e5m2_token", torch.float8_e5m2, PER_CHANNEL, PER_TENSOR)
    layer = QuantLinear.from_linear(linear(rng, 320, 96), mixed)
    assert layer.quantized_weight.dtype == torch.float8_e5m2 and layer.weight_scale.shape == (1, 1)
    x = torch.randn(8, 320, generator=rng)
    assert layer(x).isfinite().all() and "e5m2_token" in repr(layer)


def test_recipes_that_name_nothing_are_refused():
    with pytest.raises(ArgumentError, match="fp8_block"):
        QuantLinear(8, 8, recipe="fp9")
    with pytest.raises(ArgumentError, match="both operands"):
        Recipe("half", torch.float8_e4m3fn, ROW_1X128)
    with pytest.raises(ArgumentError, match="128x128"):
        Recipe("new", torch.float8_e4m3fn, deep_gemm.ScaleRecipe("1x64", 1, 64), BLOCK_128X128)


# --- state dicts and moves ----------------------------------------------------------------------


def same_buffers(a, b):
    for name, value in a.named_buffers():
        other = b.get_buffer(name)
        assert value.dtype == other.dtype and torch.equal(value.float(), other.float()), name


@every_recipe
@pytest.mark.parametrize("assign", [False, True])
def test_state_dicts_round_trip_through_a_file(rng, recipe, assign):
    layer = QuantLinear.from_linear(linear(rng, 333, 101), recipe)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = QuantLinear(333, 101, recipe=recipe)
    fresh.load_state_dict(torch.load(file, weights_only=True), assign=assign)
    same_buffers(layer, fresh)
    x = torch.randn(4, 333, generator=rng)
    assert torch.equal(layer(x), fresh(x))


def test_state_dicts_go_through_safetensors(rng, tmp_path):
    from safetensors.torch import load_file, save_file

    model = nn.Sequential(linear(rng, 20, 12), nn.GELU(), linear(rng, 12, 4))
    fresh = convert(copy.deepcopy(model))
    save_file(convert(model).state_dict(), tmp_path / "model.safetensors")
    for name, buffer in fresh.named_buffers():
        fresh.get_buffer(name).copy_(torch.zeros_like(buffer))
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    same_buffers(model, fresh)


def test_weights_of_another_recipe_are_refused_and_nothing_is_loaded(rng):
    """One block is all of this matrix: the buffers of the two recipes have equal shapes."""
    state = QuantLinear.from_linear(linear(rng, 64, 16), "fp8_tensor").state_dict()
    fresh = nn.Sequential(QuantLinear(64, 16, recipe="fp8_block"))
    with pytest.raises(RuntimeError, match="0: recipe must be fp8_block, got .* fp8_tensor"):
        fresh.load_state_dict({f"0.{name}": value for name, value in state.items()})
    assert not fresh[0].quantized_weight.float().any()


def test_floating_weights_are_refused(rng):
    with pytest.raises(RuntimeError, match="floating weights; load them into the model"):
        QuantLinear(64, 16).load_state_dict(linear(rng, 64, 16).state_dict(), strict=False)
    state = QuantLinear(64, 16).state_dict()
    state["quantized_weight"] = torch.zeros(16, 64)
    with pytest.raises(RuntimeError, match="quantized_weight must be torch.float8_e4m3fn"):
        QuantLinear(64, 16).load_state_dict(state)


@every_recipe
@pytest.mark.parametrize(
    "move",
    [
        lambda layer: layer.half(),
        lambda layer: layer.bfloat16(),
        lambda layer: layer.float(),
        lambda layer: layer.to(torch.float16),
        lambda layer: layer.to("cpu", torch.bfloat16),
        lambda layer: layer.type(torch.float16),
        lambda layer: nn.Sequential(layer).half()[0],
    ],
)
def test_changes_of_type_leave_weights_and_scales(rng, recipe, move):
    layer = QuantLinear.from_linear(linear(rng, 64, 16), recipe)
    before = copy.deepcopy(layer)
    moved = move(layer)
    for name in ("quantized_weight", "weight_scale"):
        old, new = getattr(before, name), getattr(moved, name)
        assert (old is None and new is None) or (
            old.dtype == new.dtype and torch.equal(old.float(), new.float())
        )
    assert moved(torch.ones(2, 64, dtype=torch.float16)).dtype == torch.float16


@every_recipe
def test_layers_move_to_meta_and_back(recipe):
    empty = QuantLinear(24, 8, recipe=recipe, device="meta")
    assert {buffer.device.type for buffer in empty.buffers()} == {"meta"}
    assert empty.to_empty(device="cpu").quantized_weight.dtype == RECIPES[recipe].dtype


def test_new_layers_are_zeros():
    layer = QuantLinear(24, 5)
    assert not layer(torch.ones(2, 24)).any()
    assert QuantLinear(24, 5, bias=False).bias is None
    assert not list(layer.parameters())


# --- convert ------------------------------------------------------------------------------------


class Block(nn.Module):
    """A module that holds layers in several ways, one of them twice."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.ModuleList([nn.Linear(64, 32, bias=False)])
        self.again = self.up
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        return self.norm(self.down[0](self.up(x) + self.again(x)))


def model():
    return nn.Sequential(Block(), nn.Sequential(Block(), nn.Linear(32, 10)))


def test_models_are_converted_in_place(rng):
    made = model().eval()
    x = torch.randn(3, 32, generator=rng)
    before = made(x)
    assert convert(made, "fp8_row") is made
    kinds = [type(m) for m in made.modules() if isinstance(m, nn.Linear | QuantLinear)]
    assert kinds == [QuantLinear] * 5
    assert not any(m.training for m in made.modules())
    assert relative(made(x), before) < 0.3  # four layers and norms of errors of 4 %


def test_a_layer_in_several_places_stays_one(rng):
    for made in (convert(model()), convert(model(), inplace=False)):
        assert made[0].up is made[0].again and made[0].up is not made[1][0].up


def test_a_copy_leaves_the_model_alone(rng):
    made = model()
    state = copy.deepcopy(made.state_dict())
    copied = convert(made, inplace=False)
    assert isinstance(copied[0].up, QuantLinear) and copied[0].norm is not made[0].norm
    assert copied[0].norm.weight.data_ptr() != made[0].norm.weight.data_ptr()
    assert type(made[0].up) is nn.Linear
    assert all(torch.equal(state[name], value) for name, value in made.state_dict().items())


@pytest.mark.parametrize(
    "skip", [["1.1", "0"], {"1.1", "0"}, lambda name, module: name in ("0", "1.1")]
)
def test_skipped_modules_stay_with_all_below_them(skip):
    made = convert(model(), skip=skip)
    assert type(made[1][1]) is nn.Linear and type(made[0].down[0]) is nn.Linear
    assert type(made[1][0].up) is QuantLinear


def test_a_single_name_and_a_module_may_be_skipped():
    assert type(convert(model(), skip="1.1")[1][1]) is nn.Linear
    made = model()
    head = made[1][1]
    copied = convert(made, skip=lambda name, module: module is head, inplace=False)
    assert type(copied[1][1]) is nn.Linear
    assert type(convert(model(), skip=["0.again"])[0].up) is nn.Linear


def test_recipes_may_be_mixed_by_advice(rng):
    """As the adoption page shows: what is converted stays, what is skipped waits for its call."""
    made = nn.Sequential(linear(rng, 256, 64), nn.GELU(), linear(rng, 64, 64))
    inputs = {"0": torch.randn(32, 256, generator=rng), "2": torch.randn(32, 64, generator=rng)}
    inputs["0"][:, 7] *= 1000
    recipes = {"per_tensor": "fp8_tensor", "per_channel": "fp8_row", "block": "fp8_block"}
    advice = {
        name: deep_gemm.advise(made.get_submodule(name).weight, x) for name, x in inputs.items()
    }
    need = {name: recipes[found.recommendation] for name, found in advice.items()}
    for recipe in set(need.values()):
        convert(made, recipe, skip=[name for name in need if need[name] != recipe])
    assert {name: made.get_submodule(name).recipe.name for name in need} == need
    assert need["0"] != "fp8_tensor"


def test_a_lone_layer_is_returned_converted(rng):
    layer = linear(rng, 16, 8)
    assert isinstance(convert(layer), QuantLinear)
    assert isinstance(convert(layer, inplace=False), QuantLinear)


def test_what_convert_cannot_replace_is_named_with_reasons(rng):
    class Scaled(nn.Linear):
        pass

    hooked, broken = nn.Linear(8, 8), nn.Linear(8, 8)
    hooked.register_forward_hook(lambda *_: None)
    broken.weight[0, 0] = math.nan
    made = nn.ModuleDict(
        {
            "fine": nn.Linear(8, 8),
            "scaled": Scaled(8, 8),
            "hooked": hooked,
            "broken": broken,
            "meta": nn.Linear(8, 8, device="meta"),
            "encoder": nn.TransformerEncoderLayer(8, 2),
        }
    )
    with pytest.raises(UnsupportedError) as caught:
        convert(made)
    text = str(caught.value)
    for reason in (
        "scaled: Scaled, a subclass",
        "hooked: its hooks",
        "broken: its weights hold NaN",
        "meta: its weights are torch.float32 on meta",
        "encoder.linear1: its parent, TransformerEncoderLayer",
        "encoder.self_attn.out_proj: its parent, MultiheadAttention",
    ):
        assert reason in text
    assert type(made["fine"]) is nn.Linear
    convert(made, skip=["scaled", "hooked", "broken", "meta", "encoder"])
    assert type(made["fine"]) is QuantLinear


def test_nothing_to_convert_is_an_error():
    with pytest.raises(ArgumentError, match="at least one nn.Linear"):
        convert(nn.Sequential(nn.GELU()))
    with pytest.raises(ArgumentError, match="skip: every name .* got 1.2, head"):
        convert(model(), skip=["head", "1.2", "1.1"])


def test_the_part_is_bound_when_it_is_used():
    assert deep_gemm.nn.convert is convert
