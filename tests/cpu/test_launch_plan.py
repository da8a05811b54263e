"""LaunchPlan, of a kernel that is no GEMM: what a call binds and launches, its errors."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pytest
import torch

from deep_gemm.errors import ArgumentError, CudaError
from deep_gemm.jit import tensor_map
from deep_gemm.jit.driver import INVALID_CONTEXT
from deep_gemm.jit.launch import LaunchShape
from deep_gemm.jit.tensor_map import TensorMap
from deep_gemm.kernels import launch_plan
from deep_gemm.kernels.launch_plan import Bindings, LaunchPlan, MappedTensor, Pointer, offset_of
from deep_gemm.kernels.spec import KernelSpec

from .plan_kit import FUNCTION, Placed, Seen, seen

__all__ = ["seen"]
X, Y, TABLE = 0x1000, 0x2000, 0x3008


class Scaling(ctypes.Structure):
    """A member of the parameter that has members."""

    _fields_ = [("factor", ctypes.c_float), ("table", ctypes.c_uint64)]


class AxpyParams(ctypes.Structure):
    """Two maps of one tensor, and addresses."""

    ALIGNMENT = tensor_map.ALIGNMENT
    _fields_ = [
        ("map_x", ctypes.c_byte * tensor_map.SIZE),
        ("map_x_tail", ctypes.c_byte * tensor_map.SIZE),
        ("y", ctypes.c_uint64),
        ("scaling", Scaling),
        ("count", ctypes.c_uint32),
    ]


AXPY = KernelSpec(
    name="axpy",
    header="axpy.cuh",
    function="axpy",
    constants=(),
    params=AxpyParams,
    params_type="AxpyParams",
    launch=LaunchShape(96, 2, 1, 5000),
    cost=lambda: 0.0,
)
BOX = TensorMap(4, 64, 64, 256, 32, 8, 128)
BINDINGS = Bindings(
    mapped=(MappedTensor(0, "x", (("map_x", BOX), ("map_x_tail", BOX))),),
    pointers=(Pointer(1, "y", aligned="y"), Pointer(2, "scaling.table")),
    scalars=("", "scaling.factor"),
)


def planned(seen: Seen, bindings: Bindings = BINDINGS, **rest: Any) -> LaunchPlan:
    seen.params_bytes = ctypes.sizeof(AxpyParams)
    params, address = AXPY.new_params()
    params.count = 77
    return LaunchPlan(AXPY, FUNCTION, 10, (params, address), bindings, pdl=True, **rest)


def at(*addresses: int) -> list[Any]:
    return [Placed(address, torch.empty(1, device="meta")) for address in addresses]


def map_offsets(*names: str) -> set[int]:
    return {offset_of(AxpyParams, name) for name in names}


def test_an_offset_is_that_of_a_member_or_of_a_members_member() -> None:
    assert offset_of(AxpyParams, "y") == 256
    assert offset_of(AxpyParams, "scaling.factor") == 264
    assert offset_of(AxpyParams, "scaling.table") == 272
    with pytest.raises(AttributeError):
        offset_of(AxpyParams, "scaling.y")


def test_a_call_binds_addresses_and_scalars_and_launches_with_the_specs_geometry(
    seen: Seen,
) -> None:
    planned(seen)(at(X, Y, TABLE), 5.0, -1.5)
    (launched,) = seen.launches
    params, geometry = launched.params(AxpyParams), launched.geometry
    assert (params.y, params.scaling.table, params.count) == (Y, TABLE, 77)
    assert params.scaling.factor == -1.5  # the kernel has no use for the first scalar
    assert seen.encoded == dict.fromkeys(map_offsets("map_x", "map_x_tail"), X)
    assert not seen.patched
    assert (geometry.gridDimX, geometry.blockDimX, geometry.sharedMemBytes) == (10, 96, 5000)
    assert geometry.numAttrs == 2  # a cluster, and that it may start early


def test_a_warm_call_writes_what_differs(seen: Seen) -> None:
    plan, before = planned(seen), X
    for x, y, table, factor in (
        (X, Y, TABLE, 1.0),
        (X, Y, TABLE, 1.0),
        (X, Y + 16, TABLE, 1.0),
        (X, Y + 16, TABLE + 8, 1.0),
        (X + 32, Y + 16, TABLE + 8, 1.0),
        (X + 32, Y + 16, TABLE + 8, 0.5),
        (X, Y, TABLE, 1.0),
    ):
        seen.forget_maps()
        plan(at(x, y, table), 1.0, factor)
        params = seen.launches[-1].params(AxpyParams)
        assert (params.y, params.scaling.table, params.scaling.factor) == (y, table, factor)
        maps = dict.fromkeys(map_offsets("map_x", "map_x_tail"), x)
        assert seen.patched == (maps if x != before else {})
        assert seen.encoded == (maps if len(seen.launches) == 1 else {})
        before = x


def test_the_sign_of_a_scalar_of_zero_is_that_of_the_call(seen: Seen) -> None:
    plan = planned(seen)
    for factor in (0.0, -0.0, 0.0):
        plan(at(X, Y, TABLE), 1.0, factor)
        found = seen.launches[-1].params(AxpyParams).scaling.factor
        assert math.copysign(1.0, found) == math.copysign(1.0, factor)


@pytest.mark.parametrize(
    "addresses, name", [((X + 8, Y, TABLE), "x"), ((X, Y + 4, TABLE), "y"), ((X, Y, TABLE + 1), "")]
)
def test_only_tensors_that_need_it_must_be_aligned(
    seen: Seen, addresses: tuple[int, ...], name: str
) -> None:
    plan = planned(seen)
    if not name:
        plan(at(*addresses), 1.0, 1.0)
        assert len(seen.launches) == 1
        return
    with pytest.raises(ArgumentError, match="address") as caught:
        plan(at(*addresses), 1.0, 1.0)
    assert caught.value.tensor == name and not seen.launches
    # The refused call leaves a plan that binds all addresses anew.
    plan(at(X, Y, TABLE), 1.0, 1.0)
    params = seen.launches[-1].params(AxpyParams)
    assert (params.y, params.scaling.table, params.scaling.factor) == (Y, TABLE, 1.0)
    assert seen.encoded == dict.fromkeys(map_offsets("map_x", "map_x_tail"), X)


def test_a_refused_call_between_two_equal_ones_changes_nothing(seen: Seen) -> None:
    plan = planned(seen)
    plan(at(X, Y, TABLE), 1.0, 1.0)
    with pytest.raises(ArgumentError):
        plan(at(X + 64, Y + 4, TABLE), 1.0, 2.0)
    seen.forget_maps()
    plan(at(X, Y, TABLE), 1.0, 1.0)
    params = seen.launches[-1].params(AxpyParams)
    assert (params.y, params.scaling.factor, len(seen.launches)) == (Y, 1.0, 2)
    assert seen.encoded == dict.fromkeys(map_offsets("map_x", "map_x_tail"), X)


def test_steps_turn_the_tensors_of_a_call_into_those_of_the_kernel(seen: Seen) -> None:
    def exchanged(tensors: Any) -> Any:
        return [tensors[1], tensors[0], tensors[2]]

    def shifted(tensors: Any) -> Any:
        return at(*(tensor.data_ptr() + 0x100 for tensor in tensors))

    planned(seen, steps=(exchanged, shifted))(at(Y, X, TABLE), 1.0, 1.0)
    params = seen.launches[-1].params(AxpyParams)
    assert (params.y, params.scaling.table) == (Y + 0x100, TABLE + 0x100)
    assert set(seen.encoded.values()) == {X + 0x100}


def test_a_launch_without_context_is_repeated_in_the_devices(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_current: list[int] = []
    monkeypatch.setattr(launch_plan.driver, "make_current", made_current.append)
    seen.statuses = [INVALID_CONTEXT]
    planned(seen)(at(X, Y, TABLE), 1.0, 1.0)
    assert made_current == [FUNCTION.device_index]
    first, second = (launched.params(AxpyParams) for launched in seen.launches)
    assert bytes(first) == bytes(second)


def test_any_other_refusal_of_the_driver_is_an_error(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_current: list[int] = []
    monkeypatch.setattr(launch_plan.driver, "make_current", made_current.append)
    seen.statuses = [1]
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        planned(seen)(at(X, Y, TABLE), 1.0, 1.0)
    assert not made_current and len(seen.launches) == 1


def test_a_launch_is_on_the_current_stream(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(seen)
    for stream in (0, 0x77, 0):
        monkeypatch.setattr(launch_plan, "current_stream", lambda index, stream=stream: stream)
        plan(at(X, Y, TABLE), 1.0, 1.0)
    assert [launched.stream for launched in seen.launches] == [None, 0x77, None]


def test_the_device_of_the_plan_is_made_current_for_the_launch(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = [3]

    class Device:
        def __init__(self, index: int):
            self.index = index

        def __enter__(self) -> None:
            current.append(self.index)

        def __exit__(self, *error: object) -> None:
            current.pop()

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(launch_plan, "current_device", lambda: current[-1])
    planned(seen)(at(X, Y, TABLE), 1.0, 1.0)
    assert current == [3] and len(seen.launches) == 1
