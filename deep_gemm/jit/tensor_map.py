"""TMA descriptors of matrices and stacks of them: encoded once, then given new addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from . import driver

T = TypeVar("T", bound=ctypes.Structure)
SIZE = 128  # bytes of a CUtensorMap
ALIGNMENT = 64  # of its address, on the host as on the device


@dataclass(frozen=True)
class TensorMap:
    """A row-major matrix, or a stack of them, as TMA sees it.

    Elements beyond a matrix read as zero bytes and are not written.

    dtype_bytes: bytes of one element (1, 2 or 4).
    inner, outer: elements in a row, rows.
    outer_stride_bytes: from one row to the next; a multiple of 16.
    box_inner, box_outer: extent of one copy, at most 256 each.
    swizzle_bytes: 0, or the 32, 64 or 128 byte span the box's rows are swizzled in.
    adds: "fp32" or "int32" where stores add in that type to what is there; else elements are bytes.
    matrices: of a stack, of which a copy touches one; 0: no stack, and no third coordinate.
    matrix_stride_bytes: from one matrix to the next; a multiple of 16.
    """

    dtype_bytes: int
    inner: int
    outer: int
    outer_stride_bytes: int
    box_inner: int
    box_outer: int
    swizzle_bytes: int
    adds: str = ""
    matrices: int = 0
    matrix_stride_bytes: int = 0

    def encode(self, device_address: int, host_address: int) -> None:
        """Write the 128-byte descriptor of the matrix at `device_address` to `host_address`.

        device_address: 16-byte aligned. host_address: 64-byte aligned, e.g. inside the kernel's
        parameter struct. Raises CudaError with every field where the driver refuses them.
        """
        types, interleave, swizzles, promotion, fill = _constants()
        rank = 3 if self.matrices else 2
        extents = (self.inner, self.outer, self.matrices)[:rank]
        strides = (self.outer_stride_bytes, self.matrix_stride_bytes)[: rank - 1]
        code = _encode_call()(
            host_address,
            types.get(self.adds or self.dtype_bytes, -1),
            rank,
            device_address,
            (ctypes.c_uint64 * 3)(*extents),
            (ctypes.c_uint64 * 2)(*strides),
            (ctypes.c_uint32 * 3)(self.box_inner, self.box_outer, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            interleave,
            swizzles.get(self.swizzle_bytes, -1),
            promotion,
            fill,
        )
        if code:
            detail = f"{self}, device_address={device_address:#x}, host_address={host_address:#x}"
            driver.check(code, "cuTensorMapEncodeTiled", detail)


def aligned(kind: type[T], size: int) -> tuple[T, int]:
    """Return a ctypes object of so many bytes where a descriptor may begin, and its address."""
    storage = ctypes.create_string_buffer(size + ALIGNMENT)
    start = ctypes.addressof(storage)
    offset = -start % ALIGNMENT
    return kind.from_buffer(storage, offset), start + offset  # keeps the storage


def patch(host_address: int, device_address: int) -> None:
    """Point the descriptor at `host_address` to another matrix of the same shape and stride.

    Raises CudaError where the address is not 16-byte aligned. One driver call, on the host alone.
    """
    code = _replace_call()(host_address, device_address)
    if code:
        detail = f"device_address={device_address:#x}, host_address={host_address:#x}"
        driver.check(code, "cuTensorMapReplaceAddress", detail)


@cache
def _constants() -> tuple[dict[int | str, int], int, dict[int, int], int, int]:
    # Where TMA only moves bytes a type stands for its size; out-of-bounds elements are zero.
    names = driver.bindings()
    types, swizzles = names.CUtensorMapDataType, names.CUtensorMapSwizzle
    return (
        {
            1: int(types.CU_TENSOR_MAP_DATA_TYPE_UINT8),
            2: int(types.CU_TENSOR_MAP_DATA_TYPE_UINT16),
            4: int(types.CU_TENSOR_MAP_DATA_TYPE_UINT32),
            "fp32": int(types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32),
            "int32": int(types.CU_TENSOR_MAP_DATA_TYPE_INT32),
        },
        int(names.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        {
            0: int(swizzles.CU_TENSOR_MAP_SWIZZLE_NONE),
            32: int(swizzles.CU_TENSOR_MAP_SWIZZLE_32B),
            64: int(swizzles.CU_TENSOR_MAP_SWIZZLE_64B),
            128: int(swizzles.CU_TENSOR_MAP_SWIZZLE_128B),
        },
        int(names.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
        int(names.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )


# PYFUNCTYPE keeps the interpreter lock: both calls only compute, on the host.


@cache
def _encode_call() -> Callable[..., int]:
    pointer, enum = ctypes.c_void_p, ctypes.c_int
    arrays: list[Any] = [
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.POINTER(ctypes.c_uint32),
    ]
    form = ctypes.PYFUNCTYPE(
        enum, pointer, enum, ctypes.c_uint32, pointer, *arrays, enum, enum, enum, enum
    )
    return form(driver.address_of("cuTensorMapEncodeTiled"))


@cache
def _replace_call() -> Callable[[int, int], int]:
    form = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return form(driver.address_of("cuTensorMapReplaceAddress"))
