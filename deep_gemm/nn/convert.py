"""convert(): put quantized layers in the place of a model's linear ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import nn

from ..errors import ArgumentError, UnsupportedError
from .linear import QuantLinear
from .recipe import Recipe, as_recipe

Skip: TypeAlias = Callable[[str, nn.Module], bool] | Iterable[str]

# They read the weights of their linear layers instead of calling the layers.
_READERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def convert(
    model: nn.Module,
    recipe: Recipe | str = "fp8_block",
    skip: Skip = (),
    *,
    inplace: bool = True,
) -> Any:
    """Replace every nn.Linear of `model` by a QuantLinear of its weights, and return the model.

    Arguments:
        model: changed in place unless `inplace` is False: then it stays, and a deep copy with
            quantized layers is returned. A model that is itself an nn.Linear cannot be changed; a
            QuantLinear is returned. A layer that stands in several places stays one layer.
        recipe: "fp8_block", "fp8_row", "fp8_tensor", "int8_row", "bf16", or a Recipe.
        skip: modules left as they are, with all below them: dotted names as in named_modules(),
            or a function of (name, module) that says True for them.

    Raises UnsupportedError, with every reason, for layers that a QuantLinear cannot stand for: a
    subclass of nn.Linear, a layer with hooks, weights that are not finite floating values, and
    layers whose parent reads their weights (nn.MultiheadAttention, nn.TransformerEncoderLayer).
    Raises ArgumentError for a name in `skip` that the model lacks, and where no nn.Linear is left
    to convert. Nothing has been changed then.

    Cost: a few reads and writes of the weights; synchronizes. In place, a layer's floating weights
    are let go before the next layer is quantized.
    """
    recipe = as_recipe(recipe)
    left = _left_alone(model, skip)
    layers = [
        (path, module)
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Linear) and id(module) not in left
    ]
    if not layers:
        found = f"none in {type(model).__name__}"
        raise ArgumentError("model", "modules", "at least one nn.Linear not skipped", found)
    reasons = [f"{path}: {why}" for path, layer in layers if (why := _refusal(model, path, layer))]
    if reasons:
        raise UnsupportedError("convert()", [*reasons, "name what is to stay as it is in skip"])
    made: dict[int, Any] = {}
    while layers:
        path, layer = layers.pop()
        if id(layer) not in made:
            made[id(layer)] = QuantLinear.from_linear(layer, recipe)
        if inplace and path:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, made[id(layer)])
    # A deep copy takes what it finds in its memo for the copy of an object.
    return made.get(id(model), model) if inplace else copy.deepcopy(model, made)


def _left_alone(model: nn.Module, skip: Skip) -> set[int]:
    """Return the identities of the modules that are skipped."""
    if not callable(skip):
        names = {skip} if isinstance(skip, str) else set(skip)
        unknown = names - {path for path, _ in model.named_modules(remove_duplicate=False)}
        if unknown:
            wanted = "names of modules of the model"
            raise ArgumentError("skip", "every name", wanted, ", ".join(sorted(unknown)))
        skip = lambda path, module: path in names  # noqa: E731
    return {
        id(below)
        for path, module in model.named_modules(remove_duplicate=False)
        if skip(path, module)
        for below in module.modules()
    }


def _refusal(model: nn.Module, path: str, layer: nn.Linear) -> str | None:
    """Return why a QuantLinear cannot stand for this layer, or None."""
    parent = model.get_submodule(path.rpartition(".")[0])
    if isinstance(parent, _READERS):
        return f"its parent, {type(parent).__name__}, reads its weight instead of calling it"
    if type(layer) is not nn.Linear:
        return f"{type(layer).__name__}, a subclass of nn.Linear, may compute something else"
    if layer._forward_hooks or layer._forward_pre_hooks:
        return "its hooks would be lost"
    if layer.weight.is_meta or layer.weight.dtype not in _FLOATS:
        return f"its weights are {layer.weight.dtype} on {layer.weight.device}"
    if not bool(layer.weight.isfinite().all()):
        return "its weights hold NaN or infinity"
    return None
