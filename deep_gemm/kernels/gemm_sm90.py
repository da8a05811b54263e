"""Host half of cuda/kernels/gemm_sm90.cuh: its constants, its source, its parameter block."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

from ..config.raster import Raster
from ..config.smem_plan import plan as smem_plan
from ..config.tile import BOX_MN, ROW_BYTES, SWIZZLED_BYTES, WAVE_M, GemmConfig
from ..jit import tensor_map
from ..jit.source import MmaShape, render
from ..jit.unit import OPTIONS, TranslationUnit
from ..problem import BLOCK_SCALED, GROUPINGS, Form, Grouping

# enum Promotion and enum AddendMode of the kernel.
PROMOTIONS = ("none", "unit", "block", "rows")
ADDENDS = ("none", "read", "reduce")


class WalkParams(ctypes.Structure):
    """scheduler::WalkParams."""

    _fields_ = [
        ("clusters_m", ctypes.c_uint32),
        ("clusters_n", ctypes.c_uint32),
        ("band", ctypes.c_uint32),
        ("band_on_m", ctypes.c_uint32),
        ("edge_first", ctypes.c_uint32),
        ("edge_last", ctypes.c_uint32),
        ("edge_on_m", ctypes.c_uint32),
    ]


class GroupParams(ctypes.Structure):
    """scheduler::GroupParams."""

    _fields_ = [
        ("of", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("tokens", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("clears", ctypes.c_uint32),
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
        ("c", ctypes.c_uint64),
        ("d", ctypes.c_uint64),
        ("group_maps", ctypes.c_uint64),
        ("sfa_stride_m", ctypes.c_int64),
        ("sfa_stride_k", ctypes.c_int64),
        ("sfa_stride_group", ctypes.c_int64),
        ("sfb_stride_n", ctypes.c_int64),
        ("sfb_stride_k", ctypes.c_int64),
        ("sfb_stride_group", ctypes.c_int64),
        ("c_stride", ctypes.c_int64),
        ("d_stride", ctypes.c_int64),
        ("d_stride_group", ctypes.c_int64),
        ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float),
        ("m", ctypes.c_uint32),
        ("n", ctypes.c_uint32),
        ("k", ctypes.c_uint32),
        ("stage_bytes", ctypes.c_uint32),
        ("early_blocks", ctypes.c_uint32),
        ("tiles", WalkParams),
        ("groups", GroupParams),
    ]


# The struct holds tensor maps, so the device compiler rounds its size up to their alignment.
PARAMS_BYTES = -(-ctypes.sizeof(GemmParams) // tensor_map.ALIGNMENT) * tensor_map.ALIGNMENT


@dataclass(frozen=True)
class Operands:
    """Extents and strides of the tensors, in elements; no addresses.

    Strides of C and D are from row to row, as are those of A and B where they are K-major; else
    from one k to the next. Scales: from row to row, along K, and from group to group; 0 where one
    serves all.

    groups: matrices of each stack; 0 where nothing is stacked. group_strides: of A, B and D, from
        one matrix of a stack to the next; 0 where there is no stack.
    """

    m: int
    n: int
    k: int
    stride_a: int
    stride_b: int
    stride_d: int
    stride_sfa: tuple[int, int, int] = (0, 0, 0)
    stride_sfb: tuple[int, int, int] = (0, 0, 0)
    stride_c: int = 0
    groups: int = 0
    group_strides: tuple[int, int, int] = (0, 0, 0)


def maps_of_operands(config: GemmConfig) -> tuple[tuple[str, ...], ...]:
    """Return the fields of GemmParams that describe A, B and D to TMA.

    A tile with extra columns takes them from B by boxes of their own, and so leaves what whole
    boxes of output leave over.
    """
    extra = ("map_extra",) if config.extra_n else ()
    rest = ("map_rest",) if config.rest_n else ()
    return ("map_a",), ("map_b", *extra), ("map_d", *rest)


def tensor_maps(config: GemmConfig, operands: Operands) -> dict[str, tensor_map.TensorMap]:
    """Return the TMA descriptions by their fields in GemmParams."""
    o = operands
    form, (rows_a, rows_b) = config.form, _box_rows(config, o)
    map_a = _operand_map(form, form.a_major, (o.m, o.k, o.stride_a), rows_a)
    map_b = _operand_map(form, form.b_major, (o.n, o.k, o.stride_b), rows_b)
    map_b = _stacked(map_b, o.groups, o.group_strides[1])
    maps = {
        "map_a": _stacked(map_a, o.groups, o.group_strides[0]),
        "map_b": map_b,
        "map_d": _output_map(config, o, config.store.box_columns),
    }
    if config.extra_n:
        maps["map_extra"] = replace(map_b, box_outer=config.extra_n // config.cluster_m)
    if config.rest_n:
        maps["map_rest"] = _output_map(config, o, config.rest_n)
    return maps


def _stacked(described: tensor_map.TensorMap, matrices: int, stride: int) -> tensor_map.TensorMap:
    """Return the description of so many matrices, `stride` elements apart; 0: of the one."""
    if stride == 0:
        return described
    pitch = stride * described.dtype_bytes
    return replace(described, matrices=matrices, matrix_stride_bytes=pitch)


def _operand_map(
    form: Form, major: str, extents: tuple[int, int, int], rows: int
) -> tensor_map.TensorMap:
    """Return the description of an operand of (mn, k, stride): boxes of a k-block of some rows, or,
    where rows are contiguous, of 64 of them."""
    mn, k, stride = extents
    size = form.a.bytes
    if major == "mn":
        return tensor_map.TensorMap(size, mn, k, stride * size, BOX_MN, form.block_k, ROW_BYTES)
    return tensor_map.TensorMap(size, k, mn, stride * size, form.block_k, rows, ROW_BYTES)


def _output_map(config: GemmConfig, o: Operands, columns: int) -> tensor_map.TensorMap:
    """Return the description of D: boxes of 64 rows, or of a swapped tile's tokens."""
    rows, dtype = config.piece_n if config.swapped else WAVE_M, config.form.d
    row_bytes = columns * dtype.bytes
    swizzle = row_bytes if row_bytes in SWIZZLED_BYTES else 0
    adds = dtype.name if config.form.addend == "reduce" else ""
    described = tensor_map.TensorMap(
        dtype.bytes, o.n, o.m, o.stride_d * dtype.bytes, columns, rows, swizzle, adds
    )
    return _stacked(described, o.groups, o.group_strides[2])


def _box_rows(config: GemmConfig, operands: Operands) -> tuple[int, int]:
    """Return the rows of A and of B that one CTA loads for a k-block.

    Where a single tile covers all rows, the box ends with them: filling the rest of the tile with
    zeros would cost the copy engine time, and rows of D that do not exist are not stored. Operands
    whose rows are contiguous come in whole boxes.
    """
    extents = config.oriented(operands.m, operands.n)
    rows, columns = (
        some or _box(block, sharers, extent, major)
        for some, block, sharers, extent, major in zip(
            config.some_boxes,
            (config.tile.block_m, config.main_n),
            (config.cluster_n, config.cluster_m),
            extents,
            config.majors,
            strict=True,
        )
    )
    return (columns, rows) if config.swapped else (rows, columns)


def _box(block: int, sharers: int, extent: int, major: str) -> int:
    if major == "mn":
        return -(-block // sharers // BOX_MN) * BOX_MN
    return block // sharers if sharers > 1 else min(block, extent)


def _boxes(config: GemmConfig) -> tuple[int, int]:
    """Return how many boxes of A and of B make up a stage: one of each CTA that shares it, or those
    of which only some are loaded, whoever does."""
    extents = (config.tile.block_m, config.main_n)
    sharers = (config.cluster_n, config.cluster_m)
    rows, columns = (
        extent // some if some else count
        for some, extent, count in zip(config.some_boxes, extents, sharers, strict=True)
    )
    return (columns, rows) if config.swapped else (rows, columns)


def fill_params(
    params: GemmParams, config: GemmConfig, operands: Operands, raster: Raster, early_blocks: int
) -> None:
    """Write everything but addresses and tensor maps into a parameter block.

    early_blocks: so many k-blocks of B may be read before the kernels ahead are complete.
    """
    rows_a, rows_b = _box_rows(config, operands)
    boxes_a, boxes_b = _boxes(config)
    params.m, params.n, params.k = operands.m, operands.n, operands.k
    params.c_stride, params.d_stride = operands.stride_c, operands.stride_d
    params.d_stride_group = operands.group_strides[2]
    params.sfa_stride_m, params.sfa_stride_k, params.sfa_stride_group = operands.stride_sfa
    params.sfb_stride_n, params.sfb_stride_k, params.sfb_stride_group = operands.stride_sfb
    rows = rows_a * boxes_a + rows_b * boxes_b + config.extra_n
    params.stage_bytes = rows * ROW_BYTES
    params.early_blocks = early_blocks
    params.tiles.clusters_m, params.tiles.clusters_n = raster.clusters_m, raster.clusters_n
    params.tiles.band, params.tiles.band_on_m = raster.band, int(raster.band_on_m)
    params.tiles.edge_first, params.tiles.edge_last = raster.edge.first, raster.edge.last
    params.tiles.edge_on_m = int(raster.edge.on_m)


def fill_groups(params: GemmParams, grouping: Grouping, m: int, addend: str) -> None:
    """Write what says of groups in a parameter block does not depend on addresses."""
    groups = params.groups
    groups.count, groups.tokens, groups.alignment = grouping.groups, m, grouping.alignment
    along_k = grouping.kind == "k"
    groups.clears = int(addend == "none" if along_k else grouping.zero_padding)


def translation_unit(config: GemmConfig) -> TranslationUnit:
    """Return what to compile for a configuration; the same for every M, N and K."""
    form, columns = config.form, config.tile.block_n
    a_mn, b_mn = form.a_major == "mn", form.b_major == "mn"
    if config.swapped:
        mma = MmaShape(columns, form.b.mma, form.a.mma, b_mn, a_mn)
    else:
        mma = MmaShape(columns, form.a.mma, form.b.mma, a_mn, b_mn)
    mmas = {"Mma": mma}
    if form.promotion == "rows":
        mmas["ScaleMma"] = MmaShape(columns, "bf16", "bf16")
    if half := config.half_tile[1]:
        mmas["HalfMma"] = replace(mma, n=half)
        mmas["HalfScaleMma"] = MmaShape(half, "bf16", "bf16")
    entry = f"gemm_{config.name}" if form != BLOCK_SCALED else f"gemm_fp8_block_{config.name}"
    source = render(
        header="deep_gemm/kernels/gemm_sm90.cuh",
        body="gemm_sm90",
        params="GemmParams",
        entry=entry,
        constants=_constants(config),
        mmas=mmas,
        threads=config.tile.threads,
        ctas_per_sm=config.ctas_per_sm,
    )
    return TranslationUnit(name=entry, entry=entry, source=source, options=OPTIONS)


def _constants(config: GemmConfig) -> dict[str, int | str]:
    form, (rows_major, columns_major) = config.form, config.majors
    producer_registers, math_registers = config.registers
    outer = {"Outer": "ScaleMma"} if form.promotion == "rows" else {}
    half = {"Half": "HalfMma", "HalfOuter": "HalfScaleMma"} if config.half_tile[1] else {}
    return {
        **outer,
        **half,
        "Out": form.d.cuda,
        "kElementBytes": form.a.bytes,
        "kPromotion": PROMOTIONS.index(form.promotion),
        "kScaled": int(form.scaled),
        "kRowsMnMajor": int(rows_major == "mn"),
        "kColumnsMnMajor": int(columns_major == "mn"),
        "kAddend": ADDENDS.index(form.addend),
        "kGrouping": GROUPINGS.index(form.grouping),
        "kReadsAhead": int(config.reads_ahead),
        "kBlockM": config.tile.block_m,
        "kBlockN": config.tile.block_n,
        "kExtraN": config.extra_n,
        "kRestColumns": config.rest_n,
        "kPieceN": config.piece_n,
        "kHalfColumns": config.half_tile[1],
        "kSomeRows": config.some_boxes[0],
        "kSomeColumns": config.some_boxes[1],
        "kMathWarpgroups": config.tile.num_math_warpgroups,
        "kPartials": config.partials,
        "kPingPong": int(config.tile.ping_pong),
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
