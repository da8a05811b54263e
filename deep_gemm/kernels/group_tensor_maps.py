"""Host half of cuda/group_tensor_maps.cuh: TMA maps of every group where K belongs to groups."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from ..config.cost_model import copy_us
from ..jit import tensor_map
from ..jit.launch import LaunchShape
from ..jit.tensor_map import TensorMap
from ..problem import GemmProblem, Major
from .small_kernel import SmallKernel, small_kernel
from .spec import KernelSpec

MAP_BYTES = 2 * tensor_map.SIZE  # of a group: A's and B's
_A, _B, _GROUPED_LAYOUT = 0, 2, 6  # places among the tensors of a call


class _Template(ctypes.Structure):
    """A map in memory of the host."""

    _fields_ = [("bytes", ctypes.c_byte * tensor_map.SIZE)]


class GroupTensorMapsParams(ctypes.Structure):
    """GroupTensorMapsParams of the kernel, member by member; its source asserts the offsets."""

    ALIGNMENT = tensor_map.ALIGNMENT
    _fields_ = [
        ("map_a", ctypes.c_byte * tensor_map.SIZE),
        ("map_b", ctypes.c_byte * tensor_map.SIZE),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("maps", ctypes.c_uint64),
        ("extents", ctypes.c_uint64),
        ("a_bytes_per_k", ctypes.c_uint64),
        ("b_bytes_per_k", ctypes.c_uint64),
        ("total_k", ctypes.c_uint32),
    ]


@cache
def spec(k_major: bool, element_bytes: int) -> KernelSpec:
    """Return the kernel for operands that are K-major within a group, or MN-major."""
    return KernelSpec(
        name=f"group_tensor_maps_{'k' if k_major else 'mn'}_{element_bytes}",
        header="group_tensor_maps.cuh",
        function="group_tensor_maps",
        constants=(("kKMajor", int(k_major)), ("kElementBytes", element_bytes)),
        params=GroupTensorMapsParams,
        params_type="GroupTensorMapsParams",
        launch=LaunchShape(32),
        cost=copy_us,
    )


def load(problem: GemmProblem, device: int) -> SmallKernel:
    """Return the kernel that a problem with groups along K needs; raises as SmallKernel."""
    variant = problem.variant
    return small_kernel(spec(variant.a_major is Major.K, variant.a.bytes), device)


class GroupTensorMaps:
    """Makes the maps of every group on the device, from two that describe the whole buffers."""

    def __init__(self, problem: GemmProblem, maps: tuple[TensorMap, TensorMap], device: int):
        """Load the kernel.

        maps: of A and B, K-major with a group's extent as pitch, or MN-major. Raises as
            SmallKernel.
        """
        if problem.grouping is None:
            raise ValueError("a problem without groups")
        k_major, size = problem.variant.a_major is Major.K, problem.variant.a.bytes
        self._kernel = load(problem, device)
        self._described = maps
        self._templates = [tensor_map.aligned(_Template, tensor_map.SIZE) for _ in maps]
        self._bytes_per_k = [
            described.outer * size if k_major else described.outer_stride_bytes
            for described in maps
        ]
        self._total, self._groups = problem.k, problem.grouping.num_groups
        self._encoded, self._device = False, torch.device("cuda", device)

    def __call__(self, tensors: Any) -> tuple[Any, ...]:
        """Launch; return the tensors of a call with the maps behind them."""
        a, b = tensors[_A].data_ptr(), tensors[_B].data_ptr()
        if not self._encoded:
            for described, address, (_, place) in zip(
                self._described, (a, b), self._templates, strict=True
            ):
                described.encode(address, place)
            self._encoded = True
        maps = torch.empty(self._groups * MAP_BYTES, dtype=torch.uint8, device=self._device)
        templates = (template.bytes for template, _ in self._templates)
        extents = tensors[_GROUPED_LAYOUT].data_ptr()
        values = (*templates, a, b, maps.data_ptr(), extents, *self._bytes_per_k, self._total)
        self._kernel.launch(self._groups, *values)
        return *tensors, maps
