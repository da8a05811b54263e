"""Quantization: scale recipes, casts to FP8 and INT8, scale layouts."""

from ..layouts import (
    align,
    align_rows,
    ceil_div,
    get_col_major_tma_aligned_tensor,
    get_mn_major_tma_aligned_tensor,
    get_tma_aligned_size,
)
from ..problem.scale_recipe import (
    BLOCK_128X128,
    PER_CHANNEL,
    PER_COLUMN,
    PER_TENSOR,
    ROW_1X128,
    ScaleRecipe,
    by_granularity,
)
from .advisor import Advice, advise
from .cast import (
    cast_to_fp8,
    dequantize,
    per_block_cast_to_fp8,
    per_channel_cast_to_fp8,
    per_column_cast_to_fp8,
    per_row_cast_to_fp8,
    per_tensor_cast_to_fp8,
    per_token_cast_to_fp8,
)
from .scaled_tensor import ScaledTensor, quantize

__all__ = [
    "BLOCK_128X128",
    "PER_CHANNEL",
    "PER_COLUMN",
    "PER_TENSOR",
    "ROW_1X128",
    "Advice",
    "ScaleRecipe",
    "ScaledTensor",
    "advise",
    "align",
    "align_rows",
    "by_granularity",
    "cast_to_fp8",
    "ceil_div",
    "dequantize",
    "get_col_major_tma_aligned_tensor",
    "get_mn_major_tma_aligned_tensor",
    "get_tma_aligned_size",
    "per_block_cast_to_fp8",
    "per_channel_cast_to_fp8",
    "per_column_cast_to_fp8",
    "per_row_cast_to_fp8",
    "per_tensor_cast_to_fp8",
    "per_token_cast_to_fp8",
    "quantize",
]
