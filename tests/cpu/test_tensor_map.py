"""Tensor maps against a fake driver: the arguments they encode, and their errors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from deep_gemm.errors import CudaError
from deep_gemm.jit import tensor_map
from deep_gemm.jit.tensor_map import TensorMap

from .fake_driver import ENCODE, REPLACE, FakeDriver, forget_addresses

MAP = TensorMap(
    dtype_bytes=1,
    inner=7168,
    outer=4096,
    outer_stride_bytes=7184,
    box_inner=128,
    box_outer=64,
    swizzle_bytes=128,
)
U32, U64, PTR, INT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int


class Seen(dict[str, Any]):
    """Arguments of the last call, and the status the next ones return."""

    status = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    fake = FakeDriver(monkeypatch)
    record = Seen()

    def encode(
        out: int, dtype: int, rank: int, address: int, dims: int, strides: int, box: int,
        steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        record.update(out=out, dtype=dtype, rank=rank, address=address)
        record["dims"] = list((U64 * 2).from_address(dims))
        record["strides"] = list((U64 * 1).from_address(strides))
        record["box"] = list((U32 * 2).from_address(box))
        record["steps"] = list((U32 * 2).from_address(steps))
        record["modes"] = (interleave, swizzle, promotion, fill)
        return record.status

    def replace(out: int, address: int) -> int:
        record.update(out=out, address=address)
        return record.status

    fake.serve("cuTensorMapEncodeTiled", ENCODE, encode)
    fake.serve("cuTensorMapReplaceAddress", REPLACE, replace)
    yield record
    forget_addresses()


def test_encode_passes_inner_extent_first(seen: Seen) -> None:
    MAP.encode(0x7F0000000000, 0x1000)
    assert (seen["out"], seen["address"], seen["rank"]) == (0x1000, 0x7F0000000000, 2)
    assert (seen["dims"], seen["strides"]) == ([7168, 4096], [7184])
    assert (seen["box"], seen["steps"]) == ([128, 64], [1, 1])
    # no interleave, 128-byte swizzle, 256-byte L2 promotion, zero fill: values in cuda.h
    assert seen["modes"] == (0, 3, 3, 0)


@pytest.mark.parametrize(("size", "wanted"), [(1, 0), (2, 1), (4, 2)])
def test_encode_names_a_type_of_the_element_size(seen: Seen, size: int, wanted: int) -> None:
    TensorMap(size, 64, 8, 64 * size, 16, 8, 32).encode(0x100, 0x1000)
    assert seen["dtype"] == wanted
    assert seen["modes"][1] == 1


@pytest.mark.parametrize(("size", "adds", "wanted"), [(4, "fp32", 7), (4, "int32", 3)])
def test_encode_names_the_type_that_stores_add_in(
    seen: Seen, size: int, adds: str, wanted: int
) -> None:
    TensorMap(size, 64, 8, 64 * size, 16, 8, 64, adds).encode(0x100, 0x1000)
    assert seen["dtype"] == wanted  # CUtensorMapDataType in cuda.h
    assert seen["modes"][1] == 2


def test_an_unknown_type_to_add_in_reaches_the_driver_as_invalid(seen: Seen) -> None:
    TensorMap(2, 64, 8, 128, 16, 8, 32, "bf16").encode(0x100, 0x1000)
    assert seen["dtype"] == -1


def test_refusal_prints_every_field(seen: Seen) -> None:
    seen.status = 1
    with pytest.raises(CudaError) as caught:
        MAP.encode(0x1230, 0x1000)
    message = str(caught.value)
    for text in ("cuTensorMapEncodeTiled", "CUDA_ERROR_INVALID_VALUE", repr(MAP), "0x1230"):
        assert text in message


def test_unknown_sizes_reach_the_driver_as_invalid(seen: Seen) -> None:
    TensorMap(3, 64, 8, 192, 16, 8, 48).encode(0x100, 0x1000)
    assert seen["dtype"] == -1
    assert seen["modes"][1] == -1


def test_patch_passes_map_and_address(seen: Seen) -> None:
    tensor_map.patch(0x1000, 0x7F0000000010)
    assert (seen["out"], seen["address"]) == (0x1000, 0x7F0000000010)
    seen.status = 1
    with pytest.raises(CudaError, match=r"cuTensorMapReplaceAddress.*0x7f0000000008"):
        tensor_map.patch(0x1000, 0x7F0000000008)


def test_a_descriptor_has_the_size_of_the_bindings_own() -> None:
    from cuda.bindings import driver as real

    words = real.CUtensorMap().opaque
    assert len(words) * 8 == tensor_map.SIZE
