"""QuantLinear: a linear layer whose weights are quantized once and whose inputs at every call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..dense import matmul
from ..errors import ArgumentError
from ..layouts import align, align_rows
from ..quant.cast import dequantize
from .recipe import Recipe, as_recipe

_PITCH = 16  # elements; rows of weights start at multiples of 16 bytes in every element type
_ROWS = 8  # rows of weights, of zeros where there are fewer: 16 bytes of a 16-bit output
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_RECIPE_KEY = "_extra_state"


class QuantLinear(nn.Module):
    """y = x @ W^T + bias for inference, W quantized once, x at every call, as a Recipe says.

    Buffers, all in the state dict (N = out_features and K = in_features, padded with zeros: N to
    a multiple of 8, K to one of 16, as kernels need; the scales are those of the padded matrix):
        quantized_weight: [N, K] of the recipe's element type.
        weight_scale: float32 in the shape of the recipe's weight scales; None without scales.
        bias: [out_features] in the type it came in, or None.
    The state dict also names the recipe, as bytes in a uint8 tensor; weights of another recipe, or
    plain floating ones, are refused when they are loaded. There is no `weight`: code that reads it
    expects floating values.

    `.to(dtype)`, `.half()` and the like change the bias alone; the weights keep their bits, and
    the scales stay float32. `.to(device)` moves everything.

    In eval mode products are called with static_b=True. Whatever writes the weights (conversion,
    load_state_dict, moves, copies, unpickling) waits for the device before it returns, so no
    kernel in flight does. Code that writes them otherwise must do the same, or call train().
    """

    quantized_weight: torch.Tensor
    weight_scale: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        recipe: Recipe | str = "fp8_block",
        device: torch.device | str | None = None,
    ) -> None:
        """Make a layer of zeros, to load a state dict into; from_linear() makes one of weights."""
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.recipe = as_recipe(recipe)
        n, k = align(out_features, _ROWS), align(in_features, _PITCH)
        scales = self.recipe.weight
        zeros = torch.zeros(n, k, dtype=self.recipe.dtype, device=device)
        shape = None if scales is None else scales.shape(n, k)
        ones = None if shape is None else torch.ones(shape, dtype=torch.float32, device=device)
        self.register_buffer("quantized_weight", zeros)
        self.register_buffer("weight_scale", ones)
        self.register_buffer("bias", torch.zeros(out_features, device=device) if bias else None)
        self._settle()

    @classmethod
    def from_linear(cls, linear: nn.Linear, recipe: Recipe | str = "fp8_block") -> QuantLinear:
        """Return a layer with the weights of `linear`, quantized, on the same device.

        Raises ArgumentError for weights that are infinite or not floating. Costs a few reads and
        writes of the weights, and synchronizes.
        """
        n, k = linear.weight.shape
        made = cls(k, n, linear.bias is not None, recipe, device="meta")
        padding = (0, align(k, _PITCH) - k, 0, align(n, _ROWS) - n)
        padded = nn.functional.pad(linear.weight.detach(), padding)
        made.quantized_weight, made.weight_scale = made.recipe.cast_weight(padded)
        if linear.bias is not None:
            made.bias = linear.bias.detach().clone()
        made._settle()
        return made.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [..., out_features] in x's type.

        x: [..., in_features], float32, bfloat16 or float16. An infinity in it counts as the
            largest value of the recipe's element type; a NaN makes a NaN of what it shares a scale
            with. Neither is checked, as that would synchronize.

        The product is rounded once, into x's type; the bias is added to that.

        Raises ArgumentError for another width or type, and where a gradient would be needed.

        Cost: the product and the cast of x, one launch each on the GPU, and the bias; nothing
        synchronizes. Widths not multiples of 16 cost a copy of the cast x, outputs not multiples
        of 8 a copy of y.
        """
        self._check(x)
        lead = x.shape[:-1]
        rows = x.reshape(math.prod(lead), self.in_features)
        data, scale = self.recipe.cast_activation(rows)
        data, weight = align_rows(data), self.quantized_weight[:, : self.in_features]
        a = data if scale is None else (data, scale)
        b = weight if self.weight_scale is None else (weight, self.weight_scale)
        y = matmul(a, b, out_dtype=x.dtype, static_b=not self.training)
        if y.shape[1] != self.out_features:
            y = y[:, : self.out_features].contiguous()
        if self.bias is not None:
            y += self.bias
        return y.view(*lead, self.out_features)

    def _check(self, x: torch.Tensor) -> None:
        if x.dtype not in _FLOATS:
            raise ArgumentError("input", "dtype", "float32, bfloat16 or float16", x.dtype)
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            wanted = f"[..., {self.in_features}]"
            raise ArgumentError("input", "shape", wanted, list(x.shape))
        if x.requires_grad and torch.is_grad_enabled():
            remedy = "the layer is for inference: call it under torch.no_grad() or inference_mode()"
            raise ArgumentError("input", "requires_grad", False, True, remedy)

    def dequantized_weight(self) -> torch.Tensor:
        """Return the weights that products are made with, float32 [out_features, in_features]."""
        data, scales = self.quantized_weight, self.recipe.weight
        if scales is None or self.weight_scale is None:
            whole = data.float()
        else:
            whole = dequantize(data, self.weight_scale, scales)
        return whole[: self.out_features, : self.in_features]

    def extra_repr(self) -> str:
        """Return what repr() shows between the parentheses."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, recipe={self.recipe.name}"
        )

    def _settle(self) -> None:
        """Wait until the weights are written: under static_b they may be read at once."""
        if self.quantized_weight.is_cuda:
            torch.cuda.synchronize(self.quantized_weight.device)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        before = {name: self._buffers[name] for name in ("quantized_weight", "weight_scale")}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype:
                self._buffers[name] = old.to(new.device)
        self._settle()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._settle()

    def get_extra_state(self) -> torch.Tensor:
        """Return the recipe's name as bytes: a tensor, which every file format can keep."""
        return torch.tensor(list(self.recipe.name.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Do nothing: the recipe was compared before anything was loaded."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        reason = self._misfit(state_dict, prefix)
        if reason:
            layer = prefix.rstrip(".") or "this layer"
            error_msgs.append(f"{layer}: {reason}; nothing of it was loaded")
            return
        super()._load_from_state_dict(
            state_dict, prefix, metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._settle()

    def _misfit(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        """Return why these weights cannot be loaded, where copying would not say so."""
        if f"{prefix}weight" in state_dict:
            return "the state dict has floating weights; load them into the model, then convert()"
        name = state_dict.get(prefix + _RECIPE_KEY)
        if name is not None and bytes(name.tolist()).decode() != self.recipe.name:
            found = bytes(name.tolist()).decode()
            return f"recipe must be {self.recipe.name}, got a state dict of {found}"
        for key in ("quantized_weight", "weight_scale"):
            mine, new = self._buffers[key], state_dict.get(prefix + key)
            if mine is not None and new is not None and mine.dtype != new.dtype:
                return f"{key} must be {mine.dtype}, got {new.dtype}"
        return None
