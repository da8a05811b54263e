"""Host half of cuda/kernels/gemm_sm90.cuh: its constants, its source, its parameter block."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

from ..config.raster import Raster
from ..config.smem_plan import plan as smem_plan
from ..config.tile import BLOCK_K, SWIZZLED, WAVE_M, GemmConfig
from ..jit import tensor_map
from ..jit.source import MmaShape, render
from ..jit.unit import TranslationUnit

OPTIONS = (
    "--gpu-architecture=sm_90a",
    "--std=c++17",
    "--device-as-default-execution-space",
)


class DenseParams(ctypes.Structure):
    """scheduler::DenseParams."""

    _fields_ = [
        ("clusters_m", ctypes.c_uint32),
        ("clusters_n", ctypes.c_uint32),
        ("band", ctypes.c_uint32),
        ("band_on_m", ctypes.c_uint32),
    ]


class GemmParams(ctypes.Structure):
    """GemmParams of the kernel, field by field; the kernel asserts the size."""

    _fields_ = [
        ("map_a", ctypes.c_byte * tensor_map.SIZE),
        ("map_b", ctypes.c_byte * tensor_map.SIZE),
        ("map_d", ctypes.c_byte * tensor_map.SIZE),
        ("map_extra", ctypes.c_byte * tensor_map.SIZE),
        ("map_rest", ctypes.c_byte * tensor_map.SIZE),
        ("sfa", ctypes.c_uint64),
        ("sfb", ctypes.c_uint64),
        ("sfa_stride_m", ctypes.c_int64),
        ("sfa_stride_k", ctypes.c_int64),
        ("sfb_stride_n", ctypes.c_int64),
        ("sfb_stride_k", ctypes.c_int64),
        ("m", ctypes.c_uint32),
        ("n", ctypes.c_uint32),
        ("k", ctypes.c_uint32),
        ("stage_bytes", ctypes.c_uint32),
        ("early_blocks", ctypes.c_uint32),
        ("tiles", DenseParams),
    ]


# The struct holds tensor maps, so the device compiler rounds its size up to their alignment.
PARAMS_BYTES = -(-ctypes.sizeof(GemmParams) // tensor_map.ALIGNMENT) * tensor_map.ALIGNMENT


@dataclass(frozen=True)
class Operands:
    """Extents and strides of the five tensors, in elements; no addresses.

    Strides of A, B and D are from row to row; their rows are contiguous.
    """

    m: int
    n: int
    k: int
    stride_a: int
    stride_b: int
    stride_d: int
    stride_sfa: tuple[int, int]
    stride_sfb: tuple[int, int]


def maps_of_operands(config: GemmConfig) -> tuple[tuple[str, ...], ...]:
    """Return the fields of GemmParams that describe A, B and D to TMA.

    A tile with extra columns takes them from B, and stores them to D, by boxes of their own.
    """
    if config.extra_n:
        return ("map_a",), ("map_b", "map_extra"), ("map_d", "map_rest")
    return ("map_a",), ("map_b",), ("map_d",)


def tensor_maps(config: GemmConfig, operands: Operands) -> dict[str, tensor_map.TensorMap2D]:
    """Return the TMA descriptions by their fields in GemmParams."""
    o = operands
    rows_a, rows_b = _box_rows(config, o)
    map_b = tensor_map.TensorMap2D(1, o.k, o.n, o.stride_b, BLOCK_K, rows_b, 128)
    maps = {
        "map_a": tensor_map.TensorMap2D(1, o.k, o.m, o.stride_a, BLOCK_K, rows_a, 128),
        "map_b": map_b,
        "map_d": _output_map(config, o, config.store.box_columns),
    }
    if config.extra_n:
        maps["map_extra"] = replace(map_b, box_outer=config.extra_n // config.cluster_m)
        maps["map_rest"] = _output_map(config, o, config.extra_n)
    return maps


def _output_map(config: GemmConfig, o: Operands, columns: int) -> tensor_map.TensorMap2D:
    """Return the description of D: boxes of 64 rows, or of a swapped tile's tokens."""
    rows = config.piece_n if config.swapped else WAVE_M
    swizzle = columns * 2 if columns in SWIZZLED else 0
    return tensor_map.TensorMap2D(2, o.n, o.m, o.stride_d * 2, columns, rows, swizzle)


def _box_rows(config: GemmConfig, operands: Operands) -> tuple[int, int]:
    """Return the rows of one TMA box of A and of B.

    Where a single tile covers all rows, the box ends with them: filling the rest of the tile with
    zeros would cost the copy engine time, and rows of D that do not exist are not stored.
    """
    rows = _box(config.tile.block_m, config.cluster_n, operands, config.swapped)
    columns = _box(config.main_n, config.cluster_m, operands, not config.swapped)
    return (columns, rows) if config.swapped else (rows, columns)


def _box(block: int, sharers: int, operands: Operands, of_b: bool) -> int:
    return block // sharers if sharers > 1 else min(block, operands.n if of_b else operands.m)


def fill_params(
    params: GemmParams, config: GemmConfig, operands: Operands, raster: Raster, early_blocks: int
) -> None:
    """Write everything but addresses and tensor maps into a parameter block.

    early_blocks: so many k-blocks of B may be read before the kernels ahead are complete.
    """
    rows_a, rows_b = _box_rows(config, operands)
    sharers = (config.cluster_m, config.cluster_n)
    sharers_a, sharers_b = sharers if config.swapped else reversed(sharers)
    params.m, params.n, params.k = operands.m, operands.n, operands.k
    params.sfa_stride_m, params.sfa_stride_k = operands.stride_sfa
    params.sfb_stride_n, params.sfb_stride_k = operands.stride_sfb
    rows = rows_a * sharers_a + rows_b * sharers_b + config.extra_n
    params.stage_bytes = rows * BLOCK_K
    params.early_blocks = early_blocks
    params.tiles.clusters_m, params.tiles.clusters_n = raster.clusters_m, raster.clusters_n
    params.tiles.band, params.tiles.band_on_m = raster.band, int(raster.band_on_m)


def translation_unit(config: GemmConfig) -> TranslationUnit:
    """Return what to compile for a configuration; the same for every M, N and K."""
    entry = f"gemm_fp8_block_{config.name}"
    source = render(
        header="deep_gemm/kernels/gemm_sm90.cuh",
        body="gemm_sm90",
        params="GemmParams",
        entry=entry,
        constants=_constants(config),
        mma=MmaShape(config.tile.block_n, "e4m3", "e4m3"),
        threads=config.tile.threads,
        ctas_per_sm=config.ctas_per_sm,
    )
    return TranslationUnit(name=entry, entry=entry, source=source, options=OPTIONS)


def _constants(config: GemmConfig) -> dict[str, int]:
    producer_registers, math_registers = config.registers
    return {
        "kBlockM": config.tile.block_m,
        "kBlockN": config.tile.block_n,
        "kExtraN": config.extra_n,
        "kPieceN": config.piece_n,
        "kMathWarpgroups": config.tile.num_math_warpgroups,
        "kPartials": config.partials,
        "kM": config.compiled[0],
        "kN": config.compiled[1],
        "kK": config.compiled[2],
        "kClusterM": config.cluster_m,
        "kClusterN": config.cluster_n,
        "kSplitK": config.split_k,
        "kSwapped": int(config.swapped),
        "kStages": config.num_stages,
        "kBoxColumns": config.store.box_columns,
        "kSlabColumns": config.store.slab_columns,
        "kStoreBuffers": config.store.num_buffers,
        "kProducerRegisters": producer_registers,
        "kMathRegisters": math_registers,
        "kSharedBytes": smem_plan(config).total,
        "kParamsBytes": PARAMS_BYTES,
    }
