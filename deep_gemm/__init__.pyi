# Written by tools/stub.py (make stub) from the names in __init__.py.
from . import nn as nn
from .compat.bf16 import bf16_gemm_nn as bf16_gemm_nn
from .compat.bf16 import bf16_gemm_nt as bf16_gemm_nt
from .compat.bf16 import bf16_gemm_tn as bf16_gemm_tn
from .compat.bf16 import bf16_gemm_tt as bf16_gemm_tt
from .compat.blackwell import SymmBuffer as SymmBuffer
from .compat.blackwell import bf16_mega_moe as bf16_mega_moe
from .compat.blackwell import fp8_fp4_mega_moe as fp8_fp4_mega_moe
from .compat.blackwell import get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor as get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
from .compat.blackwell import get_mn_major_tma_aligned_packed_ue8m0_tensor as get_mn_major_tma_aligned_packed_ue8m0_tensor
from .compat.blackwell import get_symm_buffer_for_mega_moe as get_symm_buffer_for_mega_moe
from .compat.blackwell import k_grouped_fp8_gemm_tn_contiguous as k_grouped_fp8_gemm_tn_contiguous
from .compat.blackwell import transform_weights_for_mega_moe as transform_weights_for_mega_moe
from .compat.cublaslt import cublaslt_gemm_nn as cublaslt_gemm_nn
from .compat.cublaslt import cublaslt_gemm_nt as cublaslt_gemm_nt
from .compat.cublaslt import cublaslt_gemm_tn as cublaslt_gemm_tn
from .compat.cublaslt import cublaslt_gemm_tt as cublaslt_gemm_tt
from .compat.fp8 import fp8_fp4_gemm_nn as fp8_fp4_gemm_nn
from .compat.fp8 import fp8_fp4_gemm_nt as fp8_fp4_gemm_nt
from .compat.fp8 import fp8_fp4_gemm_tn as fp8_fp4_gemm_tn
from .compat.fp8 import fp8_fp4_gemm_tt as fp8_fp4_gemm_tt
from .compat.fp8 import fp8_gemm_nn as fp8_gemm_nn
from .compat.fp8 import fp8_gemm_nt as fp8_gemm_nt
from .compat.fp8 import fp8_gemm_tn as fp8_gemm_tn
from .compat.fp8 import fp8_gemm_tt as fp8_gemm_tt
from .compat.grouped import bf16_m_grouped_gemm_nt_masked as bf16_m_grouped_gemm_nt_masked
from .compat.grouped import fp8_m_grouped_gemm_nt_masked as fp8_m_grouped_gemm_nt_masked
from .compat.grouped import m_grouped_bf16_gemm_nn_contiguous as m_grouped_bf16_gemm_nn_contiguous
from .compat.grouped import m_grouped_bf16_gemm_nt_contiguous as m_grouped_bf16_gemm_nt_contiguous
from .compat.grouped import m_grouped_bf16_gemm_nt_masked as m_grouped_bf16_gemm_nt_masked
from .compat.grouped import m_grouped_fp8_fp4_gemm_nn_contiguous as m_grouped_fp8_fp4_gemm_nn_contiguous
from .compat.grouped import m_grouped_fp8_fp4_gemm_nt_contiguous as m_grouped_fp8_fp4_gemm_nt_contiguous
from .compat.grouped import m_grouped_fp8_fp4_gemm_nt_masked as m_grouped_fp8_fp4_gemm_nt_masked
from .compat.grouped import m_grouped_fp8_gemm_nn_contiguous as m_grouped_fp8_gemm_nn_contiguous
from .compat.grouped import m_grouped_fp8_gemm_nt_contiguous as m_grouped_fp8_gemm_nt_contiguous
from .compat.grouped import m_grouped_fp8_gemm_nt_masked as m_grouped_fp8_gemm_nt_masked
from .compat.k_grouped import k_grouped_bf16_gemm_tn_contiguous as k_grouped_bf16_gemm_tn_contiguous
from .compat.k_grouped import k_grouped_fp8_gemm_nt_contiguous as k_grouped_fp8_gemm_nt_contiguous
from .compat.v1 import gemm_fp8_fp8_bf16_nt as gemm_fp8_fp8_bf16_nt
from .compat.v1 import m_grouped_gemm_fp8_fp8_bf16_nt_contiguous as m_grouped_gemm_fp8_fp8_bf16_nt_contiguous
from .compat.v1 import m_grouped_gemm_fp8_fp8_bf16_nt_masked as m_grouped_gemm_fp8_fp8_bf16_nt_masked
from .compat.wgrad import k_grouped_wgrad_gemm_fp8_fp8_fp32_nt as k_grouped_wgrad_gemm_fp8_fp8_fp32_nt
from .compat.wgrad import wgrad_gemm_fp8_fp8_fp32_nt as wgrad_gemm_fp8_fp8_fp32_nt
from .dense import matmul as matmul
from .errors import ArgumentError as ArgumentError
from .errors import CompileError as CompileError
from .errors import CudaError as CudaError
from .errors import DeepGemmError as DeepGemmError
from .errors import UnsupportedError as UnsupportedError
from .grouped import grouped_matmul as grouped_matmul
from .grouped import k_grouped_matmul as k_grouped_matmul
from .quant import Advice as Advice
from .quant import ScaleRecipe as ScaleRecipe
from .quant import ScaledTensor as ScaledTensor
from .quant import advise as advise
from .quant import align as align
from .quant import cast_to_fp8 as cast_to_fp8
from .quant import ceil_div as ceil_div
from .quant import dequantize as dequantize
from .quant import get_col_major_tma_aligned_tensor as get_col_major_tma_aligned_tensor
from .quant import get_mn_major_tma_aligned_tensor as get_mn_major_tma_aligned_tensor
from .quant import get_tma_aligned_size as get_tma_aligned_size
from .quant import per_block_cast_to_fp8 as per_block_cast_to_fp8
from .quant import per_channel_cast_to_fp8 as per_channel_cast_to_fp8
from .quant import per_column_cast_to_fp8 as per_column_cast_to_fp8
from .quant import per_row_cast_to_fp8 as per_row_cast_to_fp8
from .quant import per_tensor_cast_to_fp8 as per_tensor_cast_to_fp8
from .quant import per_token_cast_to_fp8 as per_token_cast_to_fp8
from .quant import quantize as quantize
from .runtime import get_num_sms as get_num_sms
from .runtime import is_available as is_available
from .runtime import warmup as warmup
from .settings import get_k_alignment_for_contiguous_layout as get_k_alignment_for_contiguous_layout
from .settings import get_m_alignment_for_contiguous_layout as get_m_alignment_for_contiguous_layout
from .settings import get_mk_alignment_for_contiguous_layout as get_mk_alignment_for_contiguous_layout
from .settings import get_pdl as get_pdl
from .settings import get_theoretical_mk_alignment_for_contiguous_layout as get_theoretical_mk_alignment_for_contiguous_layout
from .settings import override as override
from .settings import set_mk_alignment_for_contiguous_layout as set_mk_alignment_for_contiguous_layout
from .settings import set_num_sms as set_num_sms
from .settings import set_pdl as set_pdl

__version__: str
__all__ = [
    "__version__",
    "nn",
    "Advice",
    "ArgumentError",
    "CompileError",
    "CudaError",
    "DeepGemmError",
    "ScaleRecipe",
    "ScaledTensor",
    "SymmBuffer",
    "UnsupportedError",
    "advise",
    "align",
    "bf16_gemm_nn",
    "bf16_gemm_nt",
    "bf16_gemm_tn",
    "bf16_gemm_tt",
    "bf16_m_grouped_gemm_nt_masked",
    "bf16_mega_moe",
    "cast_to_fp8",
    "ceil_div",
    "cublaslt_gemm_nn",
    "cublaslt_gemm_nt",
    "cublaslt_gemm_tn",
    "cublaslt_gemm_tt",
    "dequantize",
    "fp8_fp4_gemm_nn",
    "fp8_fp4_gemm_nt",
    "fp8_fp4_gemm_tn",
    "fp8_fp4_gemm_tt",
    "fp8_fp4_mega_moe",
    "fp8_gemm_nn",
    "fp8_gemm_nt",
    "fp8_gemm_tn",
    "fp8_gemm_tt",
    "fp8_m_grouped_gemm_nt_masked",
    "gemm_fp8_fp8_bf16_nt",
    "get_col_major_tma_aligned_tensor",
    "get_k_alignment_for_contiguous_layout",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_mn_major_tma_aligned_tensor",
    "get_num_sms",
    "get_pdl",
    "get_symm_buffer_for_mega_moe",
    "get_theoretical_mk_alignment_for_contiguous_layout",
    "get_tma_aligned_size",
    "grouped_matmul",
    "is_available",
    "k_grouped_bf16_gemm_tn_contiguous",
    "k_grouped_fp8_gemm_nt_contiguous",
    "k_grouped_fp8_gemm_tn_contiguous",
    "k_grouped_matmul",
    "k_grouped_wgrad_gemm_fp8_fp8_fp32_nt",
    "m_grouped_bf16_gemm_nn_contiguous",
    "m_grouped_bf16_gemm_nt_contiguous",
    "m_grouped_bf16_gemm_nt_masked",
    "m_grouped_fp8_fp4_gemm_nn_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous",
    "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_fp8_gemm_nt_masked",
    "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous",
    "m_grouped_gemm_fp8_fp8_bf16_nt_masked",
    "matmul",
    "override",
    "per_block_cast_to_fp8",
    "per_channel_cast_to_fp8",
    "per_column_cast_to_fp8",
    "per_row_cast_to_fp8",
    "per_tensor_cast_to_fp8",
    "per_token_cast_to_fp8",
    "quantize",
    "set_mk_alignment_for_contiguous_layout",
    "set_num_sms",
    "set_pdl",
    "transform_weights_for_mega_moe",
    "warmup",
    "wgrad_gemm_fp8_fp8_fp32_nt",
]
