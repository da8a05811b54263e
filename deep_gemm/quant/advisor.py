"""Which granularity of scales a weight and its activations need, judged on the tensors themselves.

Two things decide. The spread of channels says how unlike they are: one scale for channels that
differ by orders of magnitude spends the format on the largest. The measured errors say what that
costs, with the casts that products are made of.

Sources: a few columns of a transformer's activations are outliers (Dettmers et al., LLM.int8(),
arXiv 2208.07339; Xiao et al., SmoothQuant, arXiv 2211.10438); one scale a tensor usually suffices
for FP8 (Micikevicius et al., FP8 formats for deep learning, arXiv 2209.05433); blocks of 1x128 and
128x128 contain what does not (DeepSeek-V3, arXiv 2412.19437, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from .. import dtypes
from ..errors import ArgumentError
from ..problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, PER_TENSOR, ROW_1X128, ScaleRecipe
from .cast import cast_blocks, dequantize

# Granularity: the scales of the activation and of the weight, the coarsest first.
_RECIPES = {
    "per_tensor": (PER_TENSOR, PER_TENSOR),
    "per_channel": (PER_CHANNEL, PER_CHANNEL),
    "block": (ROW_1X128, BLOCK_128X128),
}
_WORDS = {"per_tensor": "per tensor", "per_channel": "per channel", "block": "block"}

WIDE_SPREAD = 1.0  # orders of magnitude
CLOSE = 1.1  # an error at most this many times the smallest is as good


@dataclass(frozen=True)
class TensorRange:
    """What one scale for all of a tensor, or none, does to its values.

    spread: log10 of the largest channel's amax over the median channel's. Channels are the rows of
        a weight and the columns of an activation; those of zeros alone do not count.
    amax: the largest magnitude.
    flushed: share of the values other than zero that one scale for all turns into zeros.
    beyond: number of values beyond the format's largest, clamped or refused without a scale.
    """

    spread: float
    amax: float
    flushed: float
    beyond: int


@dataclass(frozen=True)
class Advice:
    """What `advise` found; str() is a short report.

    dtype: the format the figures are for.
    weight, activation: the ranges of the tensors; activation is None where none was given.
    errors: relative Frobenius error by granularity: of the product with the activation where one
        was given, else of the dequantized weight. INT8 has no "block": its sums take no scales
        along K.
    recommendation: "per_tensor", "per_channel" (a row of A, a row of B) or "block" (1x128 of A,
        128x128 of B).
    reason: why, in a sentence.
    """

    dtype: torch.dtype
    weight: TensorRange
    activation: TensorRange | None
    errors: Mapping[str, float] = field(hash=False)
    recommendation: str
    reason: str

    @property
    def spread(self) -> float:
        """The larger spread of weight and activation, in orders of magnitude."""
        return max(self.weight.spread, self.activation.spread if self.activation else 0.0)

    def __str__(self) -> str:
        lines = [f"{_WORDS[self.recommendation]}: {self.reason}"]
        lines.append(_describe("weight rows", self.weight, self.dtype))
        if self.activation:
            lines.append(_describe("activation columns", self.activation, self.dtype))
        what = "product" if self.activation else "weight"
        errors = ", ".join(f"{_WORDS[name]} {_percent(e)}" for name, e in self.errors.items())
        return "\n".join([*lines, f"error of the {what}: {errors}"])


@torch.no_grad()
def advise(
    weight: torch.Tensor,
    activation: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> Advice:
    """Say which granularity of scales a product needs: per tensor, per channel or block.

    The coarsest one that will do is recommended. Per tensor: channels spread over less than one
    order of magnitude, and the error is at most 1.1 times the smallest. Per channel: the error is
    at most 1.1 times the smallest. Else block.

    Arguments:
        weight: [n, k], float32, bfloat16, float16 or float64, any strides, CPU or CUDA.
        activation: [rows, k] of the same kinds, on the same device. Real activations, a few
            hundred rows of them: outlier columns stand in no weight.
        dtype: float8_e4m3fn, float8_e5m2 or int8.

    Raises ArgumentError for an empty tensor, for NaN or infinity, and for shapes, types or devices
    that do not fit.

    Cost: casts, a few reads of both tensors, and with an activation one float64 product and one
    float32 product for each granularity. Synchronizes.
    """
    row = dtypes.from_torch(dtype)
    if row is None or not row.max:
        raise ArgumentError("dtype", "value", "float8_e4m3fn, float8_e5m2 or int8", dtype)
    _check("weight", weight)
    if activation is not None:
        _check("activation", activation)
        if activation.shape[1] != weight.shape[1] or activation.device != weight.device:
            wanted = f"{weight.shape[1]} columns on {weight.device}, as the weight's"
            got = f"{activation.shape[1]} on {activation.device}"
            raise ArgumentError("activation", "shape and device", wanted, got)
    served = tuple(_RECIPES) if row.is_fp8 else ("per_tensor", "per_channel")
    errors = _errors(weight, activation, dtype, served)
    weight_range = _range(weight, 1, row)
    activation_range = None if activation is None else _range(activation, 0, row)
    spread = max(weight_range.spread, activation_range.spread if activation_range else 0.0)
    return Advice(dtype, weight_range, activation_range, errors, *_choose(spread, errors))


def _check(name: str, x: torch.Tensor) -> None:
    if x.dim() != 2 or not x.numel():
        raise ArgumentError(name, "shape", "two dimensions, not empty", list(x.shape))
    broken = x.numel() - int(x.isfinite().sum())
    if broken:
        raise ArgumentError(name, "every value", "finite", f"{broken} of {x.numel()} that are not")


def _range(x: torch.Tensor, along: int, row: dtypes.DType) -> TensorRange:
    """Return the range of x, whose channels are what is left when `along` is reduced."""
    magnitude = x.abs()
    channels = magnitude.amax(along).double()
    channels = channels[channels > 0]
    if not channels.numel():
        return TensorRange(0.0, 0.0, 0.0, 0)
    data, _ = cast_blocks(x, PER_TENSOR, False, row.torch, "saturate")
    flushed = int(((data.float() == 0) & (x != 0)).sum()) / int((x != 0).sum())
    largest = float(channels.max())
    return TensorRange(
        spread=math.log10(largest / float(channels.median())),
        amax=largest,
        flushed=flushed,
        beyond=int((magnitude > row.max).sum()),
    )


def _errors(
    weight: torch.Tensor,
    activation: torch.Tensor | None,
    dtype: torch.dtype,
    granularities: tuple[str, ...],
) -> dict[str, float]:
    reference = weight.double() if activation is None else activation.double() @ weight.double().t()
    norm = float(reference.norm())
    found = {}
    for name in granularities:
        recipe_a, recipe_b = _RECIPES[name]
        result = _quantized(weight, recipe_b, dtype)
        if activation is not None:
            result = _quantized(activation, recipe_a, dtype) @ result.t()
        difference = float((result.double() - reference).norm())
        found[name] = difference / norm if norm else (math.inf if difference else 0.0)
    return found


def _quantized(x: torch.Tensor, recipe: ScaleRecipe, dtype: torch.dtype) -> torch.Tensor:
    """Return float32 x as it is after a cast with the scales of `recipe`."""
    return dequantize(*cast_blocks(x, recipe, False, dtype, "saturate"), recipe)


def _choose(spread: float, errors: Mapping[str, float]) -> tuple[str, str]:
    """Return the coarsest granularity that will do, and why."""
    enough = CLOSE * min(errors.values())
    wide = spread >= WIDE_SPREAD
    differ = f"channels differ by {spread:.1f} orders of magnitude"
    if not wide and errors["per_tensor"] <= enough:
        return "per_tensor", f"{differ}, less than one, and finer scales gain less than a tenth"
    why = differ if wide else f"one scale a tensor has error {_percent(errors['per_tensor'])}"
    if "block" not in errors:
        return "per_channel", f"{why}, and INT8 takes no finer scales"
    if errors["per_channel"] <= enough:
        return "per_channel", f"{why}, and finer scales gain less than a tenth"
    channel, block = (_percent(errors[name]) for name in ("per_channel", "block"))
    return "block", f"{why}, and blocks have error {block}, scales per channel {channel}"


def _describe(channels: str, found: TensorRange, dtype: torch.dtype) -> str:
    row = dtypes.from_torch(dtype)
    assert row is not None
    return (
        f"{channels}: spread {found.spread:.2f} orders of magnitude, largest value "
        f"{found.amax:.3g}; one scale makes {_percent(found.flushed)} zeros; "
        f"{found.beyond} values beyond {row.max:g}"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
