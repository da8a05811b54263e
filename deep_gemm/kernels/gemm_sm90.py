"""The GEMM kernel of cuda/gemm_sm90.cuh as a KernelSpec, its tensor maps and its parameter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from ..config import registers
from ..config.cost_model import Estimate, estimate
from ..config.device import DeviceSpec
from ..config.gemm_config import BOX_MN, ROW_BYTES, GemmConfig
from ..config.legality import SWIZZLED_BYTES
from ..config.raster import Raster
from ..config.shared_storage import shared_storage
from ..config.tile import SLICE_M
from ..jit import tensor_map
from ..jit.launch import LaunchShape
from ..jit.source import Constant, CudaName, MmaShape
from ..layouts import align, ceil_div
from ..problem import GemmProblem, GemmVariant, Grouping, GroupKind, Mainloop, Major
from ..problem.variant import FP8_1D2D
from .gemm_params import epilogue_fields, gemm_params
from .spec import KernelSpec


@dataclass(frozen=True)
class GemmLayout:
    """Extents and strides of the tensors, in elements; no addresses.

    Strides of C and D are from row to row, as are those of A and B where they are K-major; else
    from one k to the next. Scales: from row to row, along K, and from group to group; 0 broadcasts.

    num_groups: matrices of each stack; 0 where nothing is stacked. group_strides: of A, B and D,
        from one matrix of a stack to the next; 0 where there is no stack.
    epilogue_strides: of further matrices that the epilogue reads, by name.
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
    num_groups: int = 0
    group_strides: tuple[int, int, int] = (0, 0, 0)
    epilogue_strides: tuple[tuple[str, int], ...] = ()


# --- the spec -----------------------------------------------------------------------------------


@cache
def spec(config: GemmConfig) -> KernelSpec:
    """Return the kernel of a configuration; the same for every M, N and K."""
    ops = config.variant.epilogue
    name = config.name if config.variant != FP8_1D2D else f"fp8_1d2d_{config.name}"
    return KernelSpec(
        name=f"gemm_{name}",
        header="gemm_sm90.cuh",
        function="gemm_sm90",
        constants=tuple(_constants(config).items()),
        params=gemm_params(ops),
        params_type="GemmTraits<Config>::Params",
        launch=LaunchShape(
            config.tile.threads,
            config.cluster_size,
            config.ctas_per_sm,
            shared_storage(config).total,
        ),
        cost=partial(_cost, config),
        structs=(("EpilogueParams", epilogue_fields(ops)),),
    )


def _cost(config: GemmConfig, problem: GemmProblem, device: DeviceSpec, num_sms: int = 0) -> float:
    found: Estimate = estimate(problem, config, device, device.budget(num_sms))
    return found.us


def _constants(config: GemmConfig) -> dict[str, Constant]:
    """Return the members of Config, in the order in which cuda/gemm/traits.cuh explains them."""
    tile, store, variant = config.tile, config.store, config.variant
    producer_registers, math_registers = registers.budgets(config)
    return {
        **_mmas(config),
        "Out": CudaName(variant.d.cuda, is_type=True),
        "EpilogueChain": CudaName(_chain(variant), is_type=True),
        "EpilogueParams": CudaName("deep_gemm::EpilogueParams", is_type=True),
        "kElementBytes": variant.a.bytes,
        "kMainloop": CudaName(variant.mainloop.cuda),
        "kGroupKind": CudaName(variant.group_kind.cuda),
        "kStoreMode": CudaName(
            "StoreMode::kReduceAdd" if variant.reduces_into_d else "StoreMode::kReplace"
        ),
        "kAIsMnMajor": int(variant.a_major is Major.MN),
        "kBIsMnMajor": int(variant.b_major is Major.MN),
        "kSwapAB": int(tile.swap_ab),
        "kBlockM": tile.block_m,
        "kBlockN": tile.block_n,
        "kNTail": config.n_tail,
        "kHalfN": config.half_n,
        "kLoadBoxM": config.load_box_m,
        "kLoadBoxN": config.load_box_n,
        "kNumMathWarpgroups": tile.num_math_warpgroups,
        "kNumPartials": registers.num_partials(config),
        "kPingPong": int(tile.ping_pong),
        "kShapeM": config.compiled[0],
        "kShapeN": config.compiled[1],
        "kShapeK": config.compiled[2],
        "kClusterM": config.cluster_m,
        "kClusterN": config.cluster_n,
        "kSplitK": config.split_k,
        "kNumStages": config.num_stages,
        "kReduceMmaN": config.reduce_mma_n,
        "kStoreBoxN": store.box_n,
        "kStoreTailN": config.store_tail_n,
        "kStoreStageMmaN": store.stage_mma_n,
        "kNumStoreStages": store.num_stages,
        "kPrefetchC": int(registers.prefetches_c(config)),
        "kProducerRegisters": producer_registers,
        "kMathRegisters": math_registers,
        "kSharedBytes": shared_storage(config).total,
    }


def _mmas(config: GemmConfig) -> dict[str, Constant]:
    variant, mma_n = config.variant, config.tile.mma_n
    a = variant.a.mma, variant.a_major is Major.MN
    b = variant.b.mma, variant.b_major is Major.MN
    first, second = (b, a) if config.tile.swap_ab else (a, b)
    mma = MmaShape(mma_n, first[0], second[0], first[1], second[1])
    found: dict[str, Constant] = {"Mma": mma}
    if variant.mainloop is Mainloop.SCALED_1D1D:
        found["ScaleMma"] = MmaShape(mma_n, "bf16", "bf16")
    if half := config.half_n:
        found["HalfMma"] = replace(mma, n=half)
        found["HalfScaleMma"] = MmaShape(half, "bf16", "bf16")
    return found


def _chain(variant: GemmVariant) -> str:
    return f"epilogue::Chain<{', '.join(op.cuda for op in variant.epilogue)}>"


# --- tensor maps ----------------------------------------------------------------------------------


def map_names(config: GemmConfig) -> tuple[tuple[str, ...], ...]:
    """Return the members of GemmParams that describe A, B and D to TMA."""
    b_tail = ("map_b_tail",) if config.n_tail else ()
    d_tail = ("map_d_tail",) if config.store_tail_n else ()
    return ("map_a",), ("map_b", *b_tail), ("map_d", *d_tail)


def tensor_maps(config: GemmConfig, layout: GemmLayout) -> dict[str, tensor_map.TensorMap]:
    """Return the TMA descriptions by their members in GemmParams."""
    variant, (rows_a, rows_b) = config.variant, _box_rows(config, layout)
    strides = layout.group_strides
    map_a = _operand_map(variant, variant.a_major, (layout.m, layout.k, layout.stride_a), rows_a)
    map_b = _operand_map(variant, variant.b_major, (layout.n, layout.k, layout.stride_b), rows_b)
    map_b = _stacked(map_b, layout.num_groups, strides[1])
    maps = {
        "map_a": _stacked(map_a, layout.num_groups, strides[0]),
        "map_b": map_b,
        "map_d": _output_map(config, layout, config.store.box_n),
    }
    if config.n_tail:
        maps["map_b_tail"] = replace(map_b, box_outer=config.n_tail // config.cluster_m)
    if config.store_tail_n:
        maps["map_d_tail"] = _output_map(config, layout, config.store_tail_n)
    return maps


def _stacked(described: tensor_map.TensorMap, matrices: int, stride: int) -> tensor_map.TensorMap:
    """Return the description of a stack of matrices `stride` elements apart; 0: of the one."""
    if stride == 0:
        return described
    pitch = stride * described.dtype_bytes
    return replace(described, matrices=matrices, matrix_stride_bytes=pitch)


def _operand_map(
    variant: GemmVariant, major: Major, extents: tuple[int, int, int], rows: int
) -> tensor_map.TensorMap:
    """Return the description of an operand of (mn, k, stride): boxes of `rows` rows of a k-block,
    or, where it is MN-major, of 64 elements along mn."""
    mn, k, stride = extents
    size, block_k = variant.a.bytes, variant.block_k
    if major is Major.MN:
        return tensor_map.TensorMap(size, mn, k, stride * size, BOX_MN, block_k, ROW_BYTES)
    return tensor_map.TensorMap(size, k, mn, stride * size, block_k, rows, ROW_BYTES)


def _output_map(config: GemmConfig, layout: GemmLayout, columns: int) -> tensor_map.TensorMap:
    """Return the description of D: boxes of 64 rows, or, with swap-AB, of the rows of a store."""
    rows = config.reduce_mma_n if config.tile.swap_ab else SLICE_M
    dtype = config.variant.d
    row_bytes = columns * dtype.bytes
    swizzle = row_bytes if row_bytes in SWIZZLED_BYTES else 0
    adds = dtype.name if config.variant.reduces_into_d else ""
    described = tensor_map.TensorMap(
        dtype.bytes, layout.n, layout.m, layout.stride_d * dtype.bytes, columns, rows, swizzle, adds
    )
    return _stacked(described, layout.num_groups, layout.group_strides[2])


def _box_rows(config: GemmConfig, layout: GemmLayout) -> tuple[int, int]:
    """Return the rows of A and of B in a TMA box.

    Where a single tile covers all rows, the box ends with them: filling the rest of the tile with
    zeros would cost the copy engine time, and rows of D out of bounds are not stored. MN-major
    operands come in whole boxes.
    """
    variant, tile = config.variant, config.tile
    rows_a = _box(tile.block_m, config.cluster_n, layout.m, variant.a_major)
    rows_b = _box(config.n_head, config.cluster_m, layout.n, variant.b_major)
    return config.load_box_m or rows_a, config.load_box_n or rows_b


def _box(block: int, sharers: int, extent: int, major: Major) -> int:
    if major is Major.MN:
        return align(ceil_div(block, sharers), BOX_MN)
    return block // sharers if sharers > 1 else min(block, extent)


def _stage_bytes(config: GemmConfig, layout: GemmLayout) -> int:
    """Return the bytes that all loads of A and B bring to a stage, whichever CTA issues them."""
    rows_a, rows_b = _box_rows(config, layout)
    box_m, box_n = config.load_box_m, config.load_box_n
    boxes_a = config.tile.block_m // box_m if box_m else config.cluster_n
    boxes_b = config.n_head // box_n if box_n else config.cluster_m
    return (rows_a * boxes_a + rows_b * boxes_b + config.n_tail) * ROW_BYTES


# --- the parameter --------------------------------------------------------------------------------


def fill_params(
    params: Any, config: GemmConfig, layout: GemmLayout, raster: Raster, early_k_blocks: int
) -> None:
    """Write everything but addresses, scalars and tensor maps into a GemmParams.

    early_k_blocks: k-blocks of B that may be loaded before the kernels ahead are complete.
    """
    params.m, params.n, params.k = layout.m, layout.n, layout.k
    params.d_stride, params.d_stride_group = layout.stride_d, layout.group_strides[2]
    params.sfa_stride_m, params.sfa_stride_k, params.sfa_stride_group = layout.stride_sfa
    params.sfb_stride_n, params.sfb_stride_k, params.sfb_stride_group = layout.stride_sfb
    params.stage_bytes, params.early_k_blocks = _stage_bytes(config, layout), early_k_blocks
    if config.variant.reads_c:
        params.epilogue.c_stride = layout.stride_c
    for name, stride in layout.epilogue_strides:
        setattr(params.epilogue, f"{name}_stride", stride)
    scheduler, residue = params.scheduler, raster.residue
    scheduler.m_clusters, scheduler.n_clusters = raster.m_clusters, raster.n_clusters
    scheduler.swizzle_width, scheduler.raster_along_n = raster.swizzle_width, int(raster.along_n)
    scheduler.residue.head, scheduler.residue.tail = residue.head, residue.tail
    scheduler.residue.in_m = int(residue.in_m)


def fill_groups(params: Any, grouping: Grouping, m: int, adds_c: bool) -> None:
    """Write what a GemmParams says of groups, but for addresses."""
    groups = params.groups
    groups.num_groups, groups.m, groups.alignment = grouping.num_groups, m, grouping.alignment
    along_k = grouping.kind is GroupKind.ALONG_K
    groups.zero_fill = int(not adds_c if along_k else grouping.zero_padding)
