"""The one table of element types: what torch, the tensor map, and the kernels call each of them.

To add an operand type, add a row here and its case in `jit/source.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DType:
    """An element type.

    name: short name used in configuration keys and kernel names.
    bytes: size of one element.
    max: largest magnitude of a quantized type (casts scale and check against it); 0 for others.
    mma: the name wgmma uses for it as an operand, or "" where it is no operand.
    cuda: what the kernels call it as an output, or "" where it is none.
    """

    name: str
    torch: torch.dtype
    bytes: int
    max: float = 0.0
    mma: str = ""
    cuda: str = ""

    @property
    def is_fp8(self) -> bool:
        """Say whether it is one of the FP8 formats."""
        return self.bytes == 1 and self.torch.is_floating_point


E4M3 = DType("e4m3", torch.float8_e4m3fn, 1, 448.0, "e4m3")
E5M2 = DType("e5m2", torch.float8_e5m2, 1, 57344.0, "e5m2")
INT8 = DType("int8", torch.int8, 1, 127.0, "s8")
BF16 = DType("bf16", torch.bfloat16, 2, mma="bf16", cuda="BFloat16")
FP16 = DType("fp16", torch.float16, 2, mma="f16", cuda="Float16")
FP32 = DType("fp32", torch.float32, 4, cuda="float")
INT32 = DType("int32", torch.int32, 4, cuda="int")

ALL = (E4M3, E5M2, INT8, BF16, FP16, FP32, INT32)
_BY_TORCH = {d.torch: d for d in ALL}
_BY_NAME = {d.name: d for d in ALL}


def from_torch(dtype: torch.dtype) -> DType | None:
    """Return the row for a torch dtype, or None where the package does not use that type."""
    return _BY_TORCH.get(dtype)


def by_name(name: str) -> DType:
    """Return the row called `name`; KeyError for an unknown name."""
    return _BY_NAME[name]
