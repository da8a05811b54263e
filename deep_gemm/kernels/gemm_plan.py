"""From a checked problem and its tensors to a LaunchPlan of the GEMM kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from .. import settings
from ..config import DeviceSpec, GemmConfig, from_index, select
from ..config.prefetch import early_k_blocks
from ..config.raster import max_clusters, raster
from ..errors import UnsupportedError
from ..jit import driver
from ..jit.tensor_map import TensorMap
from ..layouts import TMA_ALIGNMENT_BYTES, align, rows_of_whole_lines
from ..problem import GemmProblem, GroupKind, Major, ScaleRecipe
from ..problem.epilogue import TensorOperand
from ..problem.request import Tensors
from ..problem.scale_recipe import PER_TENSOR
from . import gemm_sm90
from .gemm_sm90 import GemmLayout
from .launch_plan import Bindings, LaunchPlan, MappedTensor, Pointer, Step
from .spec import KernelSpec

# Places of a call's tensors; behind them follow the epilogue's operands and the group maps.
_A, _SFA, _B, _SFB, _C, _D, _GROUPED_LAYOUT, _EPILOGUE = range(len(Tensors._fields))
_FURTHER = len(Tensors._fields)


def plan(problem: GemmProblem, tensors: Tensors) -> LaunchPlan:
    """Return what launches a problem for tensors of this metadata.

    Raises UnsupportedError for a GPU without wgmma, or where a graph is being captured and the
    kernel is not loaded yet; CompileError or CudaError.
    """
    index = tensors.a.device.index
    if refusal := driver.device_attributes(index).refusal:
        raise UnsupportedError(f"GEMM on {tensors.a.device}", [refusal])
    steps = list(_copies(problem))
    for step in steps:
        tensors = step(tensors)
    device, current = from_index(index), settings.current()
    num_sms = device.budget(current.num_sms)
    config = select(problem, device, num_sms)
    if settings.flag("DG_PRINT_CONFIGS"):
        print(f"deep_gemm: {problem.describe()}: {config.describe()}", file=sys.stderr)
    kernel, layout = gemm_sm90.spec(config), layout_of(problem, tensors)
    function = kernel.load(index, may_load=not torch.cuda.is_current_stream_capturing())
    fits = min(kernel.resident_clusters(function), num_sms // config.cluster_size)
    resident = max(1, fits)
    grid = min(resident, max_clusters(problem, config)) * config.cluster_size
    params = _params(problem, kernel, config, layout, (resident, grid), device)
    maps = gemm_sm90.tensor_maps(config, layout)
    ones = _ones(problem, tensors)
    for name in ("sfa", "sfb"):
        if ones is not None and getattr(tensors, name) is None:
            setattr(params[0], name, ones.data_ptr())
    if problem.epilogue:
        steps.append(_with_epilogue_operands)
    if problem.variant.group_kind is GroupKind.ALONG_K:
        from .group_tensor_maps import GroupTensorMaps

        steps.append(GroupTensorMaps(problem, (maps["map_a"], maps["map_b"]), index))
    bindings = _bindings(problem, config, maps, tensors)._replace(keep=(ones,))
    return LaunchPlan(kernel, function, grid, params, bindings, pdl=current.pdl, steps=steps)


def _params(
    problem: GemmProblem,
    kernel: KernelSpec,
    config: GemmConfig,
    layout: GemmLayout,
    counts: tuple[int, int],
    device: DeviceSpec,
) -> tuple[Any, int]:
    """Return the filled parameter and its address; counts: resident clusters, CTAs of the grid."""
    resident, grid = counts
    early = 0
    if problem.static_b and problem.grouping is None:
        early = early_k_blocks(config, layout.k, grid, device.sm_count)
    params, base = kernel.new_params()
    order = raster(problem, config, resident)
    gemm_sm90.fill_params(params, config, layout, order, early)
    if problem.grouping is not None:
        gemm_sm90.fill_groups(params, problem.grouping, problem.m, problem.variant.adds_c)
    return params, base


# --- steps before the launch ----------------------------------------------------------------------


def _copies(problem: GemmProblem) -> Iterator[Step]:
    """Yield what copies 8-bit operands so that K is contiguous."""
    if not problem.transposed:
        return
    if problem.grouping is not None:
        yield lambda t: t._replace(b=rows_of_whole_lines(t.b))
        return
    from .transpose import transposed

    names = problem.transposed
    yield lambda t: t._replace(**{name: transposed(getattr(t, name)) for name in names})


def _with_epilogue_operands(tensors: Any) -> tuple[Any, ...]:
    return *tensors, *tensors[_EPILOGUE]


# --- bindings -------------------------------------------------------------------------------------


def _bindings(
    problem: GemmProblem, config: GemmConfig, maps: dict[str, TensorMap], tensors: Tensors
) -> Bindings:
    names_a, names_b, names_d = gemm_sm90.map_names(config)
    mapped = tuple(
        MappedTensor(index, name, tuple((member, maps[member]) for member in members))
        for index, name, members in ((_A, "a", names_a), (_B, "b", names_b), (_D, "d", names_d))
    )
    scales = (_SFA, "sfa"), (_SFB, "sfb")
    pointers = [Pointer(place, name) for place, name in scales if tensors[place] is not None]
    variant, place = problem.variant, _FURTHER
    if variant.reads_c:
        pointers.append(Pointer(_C, "epilogue.c", aligned="c"))
    for operand in _epilogue_operands(problem):
        pointers.append(Pointer(place, f"epilogue.{operand.name}", aligned=operand.name))
        place += 1
    if variant.is_grouped:
        pointers += [Pointer(_D, "d"), Pointer(_GROUPED_LAYOUT, "groups.grouped_layout")]
    if variant.group_kind is GroupKind.ALONG_K:
        pointers.append(Pointer(place, "group_maps"))
    members = {name for op in variant.epilogue for name, _ in op.fields}
    scalars = tuple(f"epilogue.{name}" if name in members else "" for name in ("alpha", "beta"))
    return Bindings(mapped, tuple(pointers), scalars)


def _epilogue_operands(problem: GemmProblem) -> list[TensorOperand]:
    return [operand for op in problem.epilogue for operand in op.tensors]


def _ones(problem: GemmProblem, tensors: Tensors) -> torch.Tensor | None:
    """Return a scale of 1 where one operand alone has scales."""
    alone = tensors.sfa is None or tensors.sfb is None
    if not problem.variant.has_epilogue_scales or not alone:
        return None
    return torch.ones(1, device=tensors.a.device)


# --- layout ---------------------------------------------------------------------------------------


def layout_of(problem: GemmProblem, t: Tensors) -> GemmLayout:
    """Return the extents and strides of checked tensors."""
    variant, grouping = problem.variant, problem.grouping
    majors = (t.a, variant.a_major), (t.b, variant.b_major), (t.d, Major.K)
    pitches = [_pitch(value[0] if value.dim() == 3 else value, major) for value, major in majors]
    matrices = [
        (operand.name, value.stride(0))
        for operand, value in zip(_epilogue_operands(problem), t.epilogue, strict=True)
        if len(operand.axes) == 2
    ]
    return GemmLayout(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        stride_a=pitches[0],
        stride_b=pitches[1],
        stride_d=pitches[2],
        stride_sfa=_scale_strides(t.sfa, problem.scale_a, stacked=t.a.dim() == 3),
        stride_sfb=_scale_strides(t.sfb, problem.scale_b, stacked=t.b.dim() == 3),
        stride_c=0 if t.c is None else t.c.stride(-2),
        num_groups=grouping.num_groups if grouping else 0,
        group_strides=(
            _group_stride(t.a, pitches[0]),
            _group_stride(t.b, pitches[1]),
            _group_stride(t.d, pitches[2]),
        ),
        epilogue_strides=tuple(matrices),
    )


def _group_stride(x: torch.Tensor, pitch: int) -> int:
    """Return how far it is to the next matrix of a stack, 0 where there is none."""
    if x.dim() != 3:
        return 0
    return x.stride(0) if x.shape[0] > 1 else max(x.shape[1:]) * pitch


def _pitch(matrix: torch.Tensor, major: Major) -> int:
    """Return the pitch of the contiguous lines; where there is one line, one that TMA accepts."""
    lines = matrix if major is Major.K else matrix.t()
    rows, columns = lines.shape
    step = TMA_ALIGNMENT_BYTES // matrix.element_size()
    return lines.stride(0) if rows > 1 else align(columns, step)


def _scale_strides(
    scale: torch.Tensor | None, recipe: ScaleRecipe | None, stacked: bool
) -> tuple[int, int, int]:
    """Return (row, k, group) strides of the scales; 0 broadcasts."""
    if scale is None or recipe is None or scale.dim() == 0:
        return 0, 0, 0
    strides = [s if size > 1 else 0 for size, s in zip(scale.shape, scale.stride(), strict=True)]
    group = strides.pop(0) if stacked and (scale.dim() > 1 or recipe == PER_TENSOR) else 0
    row, along_k = (*strides, 0, 0)[:2]
    return row, along_k, group
