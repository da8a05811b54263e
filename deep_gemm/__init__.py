"""deep_gemm: FP8 matrix multiplication with fine-grained scales for NVIDIA Hopper GPUs.

Importing this package loads neither torch nor CUDA, reads no environment variable and touches no
disk: public names are bound when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "gemm": ("matmul",),
    "named.bf16": ("bf16_gemm_nn", "bf16_gemm_nt", "bf16_gemm_tn", "bf16_gemm_tt"),
    "named.cublaslt": (
        "cublaslt_gemm_nn",
        "cublaslt_gemm_nt",
        "cublaslt_gemm_tn",
        "cublaslt_gemm_tt",
    ),
    "named.fp8": (
        "fp8_fp4_gemm_nn",
        "fp8_fp4_gemm_nt",
        "fp8_fp4_gemm_tn",
        "fp8_fp4_gemm_tt",
        "fp8_gemm_nn",
        "fp8_gemm_nt",
        "fp8_gemm_tn",
        "fp8_gemm_tt",
    ),
    "named.v1": ("gemm_fp8_fp8_bf16_nt",),
    "named.wgrad": ("wgrad_gemm_fp8_fp8_fp32_nt",),
    "quant": (
        "Advice",
        "ScaleRecipe",
        "ScaledTensor",
        "advise",
        "align",
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
    ),
    "runtime": ("get_num_sms", "is_available", "warmup"),
    "settings": ("get_pdl", "override", "set_num_sms", "set_pdl"),
    "errors": ("ArgumentError", "CompileError", "CudaError", "DeepGemmError", "UnsupportedError"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_PARTS = ("nn",)

__all__ = ["__version__", *_PARTS, *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
