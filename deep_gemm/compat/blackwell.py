"""Names of the DeepGEMM interface that newer GPU generations alone serve: each raises when called.

Clients bind them when they are imported, on any GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import UnsupportedError

_REASON = "needs a GPU of compute capability 10.0 or above; this library is for 9.0"


def _absent(name: str, instead: str = "") -> Callable[..., NoReturn]:
    reasons = [_REASON, instead] if instead else [_REASON]

    def absent(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name}()", reasons)

    absent.__name__ = absent.__qualname__ = name
    absent.__doc__ = f"Raise UnsupportedError: {_REASON}."
    return absent


class SymmBuffer:
    """Memory shared by GPUs for a fused mixture of experts; making one raises UnsupportedError."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise UnsupportedError("SymmBuffer()", [_REASON])


bf16_mega_moe = _absent("bf16_mega_moe")
fp8_fp4_mega_moe = _absent("fp8_fp4_mega_moe")
get_symm_buffer_for_mega_moe = _absent("get_symm_buffer_for_mega_moe")
transform_weights_for_mega_moe = _absent("transform_weights_for_mega_moe")
k_grouped_fp8_gemm_tn_contiguous = _absent(
    "k_grouped_fp8_gemm_tn_contiguous", "k_grouped_fp8_gemm_nt_contiguous() is served"
)
get_mn_major_tma_aligned_packed_ue8m0_tensor = _absent(
    "get_mn_major_tma_aligned_packed_ue8m0_tensor", "scales are float32 here"
)
get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor = _absent(
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor", "scales are float32 here"
)
