"""Reference implementations in torch; gemm and grouped_gemm serve CPU tensors as the backend."""

from .gemm import float64_gemm_nt, gemm
from .grouped import grouped_gemm

__all__ = ["float64_gemm_nt", "gemm", "grouped_gemm"]
