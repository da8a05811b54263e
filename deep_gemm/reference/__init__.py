"""Reference implementations in torch; block_scaled_gemm_nt serves CPU tensors as the backend."""

from .gemm import block_scaled_gemm_nt, float64_gemm_nt

__all__ = ["block_scaled_gemm_nt", "float64_gemm_nt"]
