"""deep_gemm: FP8 matrix multiplication with fine-grained scales for NVIDIA Hopper GPUs.

Importing this package loads neither torch nor CUDA, reads no environment variable and touches no
disk: public names are bound when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "dense": ("matmul",),
    "grouped": ("grouped_matmul", "k_grouped_matmul"),
    "compat.bf16": ("bf16_gemm_nn", "bf16_gemm_nt", "bf16_gemm_tn", "bf16_gemm_tt"),
    "compat.cublaslt": (
        "cublaslt_gemm_nn",
        "cublaslt_gemm_nt",
        "cublaslt_gemm_tn",
        "cublaslt_gemm_tt",
    ),
    "compat.fp8": (
        "fp8_fp4_gemm_nn",
        "fp8_fp4_gemm_nt",
        "fp8_fp4_gemm_tn",
        "fp8_fp4_gemm_tt",
        "fp8_gemm_nn",
        "fp8_gemm_nt",
        "fp8_gemm_tn",
        "fp8_gemm_tt",
    ),
    "compat.grouped": (
        "bf16_m_grouped_gemm_nt_masked",
        "fp8_m_grouped_gemm_nt_masked",
        "m_grouped_bf16_gemm_nn_contiguous",
        "m_grouped_bf16_gemm_nt_contiguous",
        "m_grouped_bf16_gemm_nt_masked",
        "m_grouped_fp8_fp4_gemm_nn_contiguous",
        "m_grouped_fp8_fp4_gemm_nt_contiguous",
        "m_grouped_fp8_fp4_gemm_nt_masked",
        "m_grouped_fp8_gemm_nn_contiguous",
        "m_grouped_fp8_gemm_nt_contiguous",
        "m_grouped_fp8_gemm_nt_masked",
    ),
    "compat.k_grouped": ("k_grouped_bf16_gemm_tn_contiguous", "k_grouped_fp8_gemm_nt_contiguous"),
    "compat.blackwell": (
        "SymmBuffer",
        "bf16_mega_moe",
        "fp8_fp4_mega_moe",
        "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
        "get_mn_major_tma_aligned_packed_ue8m0_tensor",
        "get_symm_buffer_for_mega_moe",
        "k_grouped_fp8_gemm_tn_contiguous",
        "transform_weights_for_mega_moe",
    ),
    "compat.v1": (
        "gemm_fp8_fp8_bf16_nt",
        "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous",
        "m_grouped_gemm_fp8_fp8_bf16_nt_masked",
    ),
    "compat.wgrad": ("k_grouped_wgrad_gemm_fp8_fp8_fp32_nt", "wgrad_gemm_fp8_fp8_fp32_nt"),
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
    "settings": (
        "get_k_alignment_for_contiguous_layout",
        "get_m_alignment_for_contiguous_layout",
        "get_mk_alignment_for_contiguous_layout",
        "get_pdl",
        "get_theoretical_mk_alignment_for_contiguous_layout",
        "override",
        "set_mk_alignment_for_contiguous_layout",
        "set_num_sms",
        "set_pdl",
    ),
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
