"""How far an FP8 product is from the unquantised one, by granularity of the scales.

Errors are relative Frobenius errors: the norm of the difference to the product in float64 over
the norm of that product. Every product is rounded to bf16 at its end, as the kernels' output is.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch

from .. import fp8_gemm_nt
from ..layouts import align
from ..problem.scale_recipe import PER_CHANNEL, PER_TENSOR
from ..quant.cast import (
    dequantize,
    per_block_cast_to_fp8,
    per_row_cast_to_fp8,
    per_tensor_cast_to_fp8,
    per_token_cast_to_fp8,
)

GRANULARITIES = ("per_tensor", "per_channel", "block")

# Channels of a transformer's activations are known to differ by an order of magnitude or two.
OUTLIER_SHARE, OUTLIER_GAIN = 0.01, 30.0


@dataclass(frozen=True)
class LayerError:
    """Errors of one weight [n, k]; `squares` are the sums that totals are made of."""

    name: str
    n: int
    k: int
    rows: int
    squares: dict[str, float]
    reference_square: float

    def error(self, granularity: str) -> float:
        """Return the relative Frobenius error of one granularity."""
        return relative(self.squares[granularity], self.reference_square)


def relative(difference_square: float, reference_square: float) -> float:
    """Return the relative error; 0 where both norms are 0, infinity where only the reference is."""
    if reference_square == 0:
        return 0.0 if difference_square == 0 else math.inf
    return math.sqrt(difference_square / reference_square)


def total(layers: list[LayerError], granularity: str) -> float:
    """Return the relative error over all layers as if their outputs were one vector."""
    return relative(
        sum(layer.squares[granularity] for layer in layers),
        sum(layer.reference_square for layer in layers),
    )


def random_activations(name: str, rows: int, k: int, seed: int) -> torch.Tensor:
    """Return float32 [rows, k] normal data in which one channel in a hundred is 30 times larger.

    Drawn on the CPU from `seed` and the layer's name, so a layer's data depends on neither the
    device nor the other layers.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}".encode()))
    x = torch.randn(rows, k, generator=generator)
    outliers = torch.randperm(k, generator=generator)[: max(1, round(OUTLIER_SHARE * k))]
    x[:, outliers] *= OUTLIER_GAIN
    return x


def layer_error(name: str, x: torch.Tensor, weight: torch.Tensor, device: str) -> LayerError:
    """Measure one weight.

    x: [rows, k]; weight: [n, k]; both of any floating dtype.
    device: where products run; "cuda" takes the block product through the GPU kernel.
    Cost: one float64 product and three of FP8.
    """
    x, weight = x.to(device).float(), weight.to(device).float()
    reference = x.double() @ weight.double().t()
    products = {
        "per_tensor": _tensor_product(x, weight),
        "per_channel": _channel_product(x, weight),
        "block": _block_product(x, weight),
    }
    return LayerError(
        name=name,
        n=weight.shape[0],
        k=weight.shape[1],
        rows=x.shape[0],
        squares={key: _square(d.double() - reference) for key, d in products.items()},
        reference_square=_square(reference),
    )


def _square(x: torch.Tensor) -> float:
    return float(x.square().sum())


def _tensor_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    a, b = (dequantize(*per_tensor_cast_to_fp8(t), PER_TENSOR) for t in (x, weight))
    return (a @ b.t()).bfloat16()


def _channel_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    a, b = (dequantize(*per_row_cast_to_fp8(t), PER_CHANNEL) for t in (x, weight))
    return (a @ b.t()).bfloat16()


def _block_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n, k = weight.shape
    # Zero rows and columns change no value and no scale; they give the alignment kernels want.
    pad_k, pad_n = align(k, 16) - k, align(n, 8) - n
    x = torch.nn.functional.pad(x, (0, pad_k))
    weight = torch.nn.functional.pad(weight, (0, pad_k, 0, pad_n))
    out = torch.empty(x.shape[0], n + pad_n, device=x.device, dtype=torch.bfloat16)
    fp8_gemm_nt(per_token_cast_to_fp8(x), per_block_cast_to_fp8(weight), out)
    return out[:, :n]
