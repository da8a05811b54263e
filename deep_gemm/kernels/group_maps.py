"""Host half of cuda/kernels/group_maps.cuh: TMA maps of every group where K belongs to groups."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from ..jit import tensor_map
from ..jit.tensor_map import TensorMap
from ..problem import GemmProblem
from . import simple

MAP_BYTES = 2 * tensor_map.SIZE  # of a group: A's and B's


class _Template(ctypes.Structure):
    """A map in memory of the host."""

    _fields_ = [("bytes", ctypes.c_byte * tensor_map.SIZE)]


class GroupMapsParams(ctypes.Structure):
    """GroupMapsParams of the kernel, field by field; the kernel asserts the size."""

    _fields_ = [
        ("map_a", ctypes.c_byte * tensor_map.SIZE),
        ("map_b", ctypes.c_byte * tensor_map.SIZE),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("maps", ctypes.c_uint64),
        ("extents", ctypes.c_uint64),
        ("a_bytes", ctypes.c_uint64),
        ("b_bytes", ctypes.c_uint64),
        ("total", ctypes.c_uint32),
        # The maps make the device compiler round the size up to their alignment.
        ("pad", ctypes.c_uint32 * 3),
    ]


@cache
def variant(k_major: bool, element_bytes: int) -> simple.Variant:
    """Return the kernel for operands whose K is contiguous within a group, or whose rows are."""
    return simple.Variant(
        name=f"group_maps_{'k' if k_major else 'mn'}_{element_bytes}",
        header="group_maps.cuh",
        body="group_maps",
        params="GroupMapsParams",
        struct=GroupMapsParams,
        constants=(("kKMajor", int(k_major)), ("kElementBytes", element_bytes)),
        threads=32,
    )


def load(problem: GemmProblem, device: int) -> simple.SimpleKernel:
    """Return the kernel that a problem with groups along K needs; raises as simple.kernel()."""
    return simple.kernel(variant(problem.form.a_major == "k", problem.form.a.bytes), device)


class GroupMaps:
    """Makes the maps of every group on the device, from two that describe the whole buffers."""

    def __init__(self, problem: GemmProblem, maps: tuple[TensorMap, TensorMap], device: int):
        """Load the kernel.

        maps: of A and B, K-major with a group's extent as pitch, or MN-major. Raises as
            simple.SimpleKernel.
        """
        if problem.grouping is None:
            raise ValueError("a problem without groups")
        k_major, size = problem.form.a_major == "k", problem.form.a.bytes
        self._kernel = load(problem, device)
        self._described = maps
        self._templates = [tensor_map.aligned(_Template, tensor_map.SIZE) for _ in maps]
        self._k_bytes = [
            described.outer * size if k_major else described.outer_stride_bytes
            for described in maps
        ]
        self._total, self._groups = problem.k, problem.grouping.groups
        self._encoded, self._device = False, torch.device("cuda", device)

    def __call__(self, a: int, b: int, extents: int) -> torch.Tensor:
        """Launch, with the addresses of A, B and the groups' extents; return the maps' memory."""
        if not self._encoded:
            for described, address, (_, place) in zip(
                self._described, (a, b), self._templates, strict=True
            ):
                described.encode(address, place)
            self._encoded = True
        maps = torch.empty(self._groups * MAP_BYTES, dtype=torch.uint8, device=self._device)
        templates = (template.bytes for template, _ in self._templates)
        values = (*templates, a, b, maps.data_ptr(), extents, *self._k_bytes, self._total)
        self._kernel.launch(self._groups, *values)
        return maps
