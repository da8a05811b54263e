"""The parameter of the GEMM kernel: ctypes mirrors of cuda/gemm/params.cuh."""

from __future__ import annotations

import ctypes
from functools import cache

from ..jit import tensor_map
from ..problem.epilogue import EpilogueOp

Field = tuple[str, type]


class ResidueTiles(ctypes.Structure):
    """scheduler::ResidueTiles."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("head", "tail", "in_m")]


class TileSchedulerParams(ctypes.Structure):
    """scheduler::TileSchedulerParams."""

    _fields_ = [
        ("m_clusters", ctypes.c_uint32),
        ("n_clusters", ctypes.c_uint32),
        ("swizzle_width", ctypes.c_uint32),
        ("raster_along_n", ctypes.c_uint32),
        ("residue", ResidueTiles),
    ]


class GroupParams(ctypes.Structure):
    """scheduler::GroupParams."""

    _fields_ = [
        ("grouped_layout", ctypes.c_uint64),
        ("num_groups", ctypes.c_uint32),
        ("m", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("zero_fill", ctypes.c_uint32),
    ]


_TENSOR_MAPS = ("map_a", "map_b", "map_d", "map_b_tail", "map_d_tail")
_POINTERS = ("sfa", "sfb", "d", "group_maps")
_STRIDES = (
    "sfa_stride_m", "sfa_stride_k", "sfa_stride_group",
    "sfb_stride_n", "sfb_stride_k", "sfb_stride_group",
    "d_stride", "d_stride_group",
)  # fmt: skip
_COUNTS = ("m", "n", "k", "stage_bytes", "early_k_blocks")


def epilogue_fields(ops: tuple[EpilogueOp, ...]) -> tuple[Field, ...]:
    """Return the members of EpilogueParams; an operand that several ops name is one member."""
    return tuple({field[0]: field for op in ops for field in op.fields}.values())


@cache
def gemm_params(ops: tuple[EpilogueOp, ...]) -> type[ctypes.Structure]:
    """Return GemmParams of a kernel whose epilogue is these ops, as a ctypes struct."""
    epilogue = type("EpilogueParams", (ctypes.Structure,), {"_fields_": epilogue_fields(ops)})
    fields: list[Field] = [(name, ctypes.c_byte * tensor_map.SIZE) for name in _TENSOR_MAPS]
    fields += [(name, ctypes.c_uint64) for name in _POINTERS]
    fields += [(name, ctypes.c_int64) for name in _STRIDES]
    fields += [(name, ctypes.c_uint32) for name in _COUNTS]
    fields += [("scheduler", TileSchedulerParams), ("groups", GroupParams), ("epilogue", epilogue)]
    return type(
        "GemmParams",
        (ctypes.Structure,),
        {"_fields_": fields, "ALIGNMENT": tensor_map.ALIGNMENT, "__doc__": "GemmParams."},
    )
