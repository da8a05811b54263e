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
    max: largest finite value (FP8 only; casts check against it).
    mma: the name wgmma uses for it as an operand, or "" where it is no operand.
    """

    name: str
    torch: torch.dtype
    bytes: int
    max: float = 0.0
    mma: str = ""


E4M3 = DType("e4m3", torch.float8_e4m3fn, 1, 448.0, "e4m3")
E5M2 = DType("e5m2", torch.float8_e5m2, 1, 57344.0, "e5m2")
BF16 = DType("bf16", torch.bfloat16, 2)
FP32 = DType("fp32", torch.float32, 4)

ALL = (E4M3, E5M2, BF16, FP32)
_BY_TORCH = {d.torch: d for d in ALL}
_BY_NAME = {d.name: d for d in ALL}


def from_torch(dtype: torch.dtype) -> DType | None:
    """Return the row for a torch dtype, or None where the package does not use that type."""
    return _BY_TORCH.get(dtype)


def by_name(name: str) -> DType:
    """Return the row called `name`; KeyError for an unknown name."""
    return _BY_NAME[name]
