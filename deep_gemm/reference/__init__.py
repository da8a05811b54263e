"""Reference implementations in torch; gemm serves CPU tensors as the backend."""

from .gemm import float64_gemm_nt, gemm

__all__ = ["float64_gemm_nt", "gemm"]
