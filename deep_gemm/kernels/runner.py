"""Runner: a launch plan called with tensors, on their device and its current stream."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import checks
from ..errors import UnsupportedError
from ..jit import driver
from ..problem import GemmProblem
from ..quant.recipe import PER_TENSOR, ScaleRecipe
from ..request import Tensors
from .current import current_device, current_stream
from .gemm_sm90 import Operands
from .group_maps import GroupMaps
from .plan import LaunchPlan


def runner(problem: GemmProblem, tensors: Tensors) -> Callable[[Tensors, float, float], None]:
    """Return what runs tensors of this metadata, operands transposed first where they must be."""
    if not problem.transposed:
        return Runner(problem, tensors)
    run = Runner(problem, _turned(problem, tensors))
    return lambda tensors, alpha, beta: run(_turned(problem, tensors), alpha, beta)


def _turned(problem: GemmProblem, tensors: Tensors) -> Tensors:
    """Return the tensors with 8-bit operands copied so that K is contiguous."""
    from .transpose import transposed

    return tensors._replace(
        **{name: transposed(getattr(tensors, name)) for name in problem.transposed}
    )


class Runner:
    """Runs a product for tensors of one metadata; only addresses, alpha and beta may differ."""

    __slots__ = ("_device", "_group_maps", "_launch", "_one", "_ones")

    def __init__(self, problem: GemmProblem, tensors: Tensors):
        """Make the plan from checked tensors.

        Raises UnsupportedError for a GPU without wgmma, or where a graph is being captured and the
        kernel is not loaded yet.
        """
        index = tensors.a.device.index
        refusal = driver.device_attributes(index).refusal
        if refusal:
            raise UnsupportedError(f"GEMM on {tensors.a.device}", [refusal])
        capturing = torch.cuda.is_current_stream_capturing()
        operands = operands_of(problem, tensors)
        plan = LaunchPlan(problem, operands, index, may_load=not capturing)
        self._launch = plan.launch
        self._device = index
        self._group_maps = None
        if problem.form.grouping == "k":
            maps = plan.described["map_a"], plan.described["map_b"]
            self._group_maps = GroupMaps(problem, maps, index)
        # Where one operand alone has scales, the other's is 1.
        alone = problem.form.scaled and (tensors.sfa is None or tensors.sfb is None)
        self._ones = torch.ones(1, device=tensors.a.device) if alone else None
        self._one = 0 if self._ones is None else self._ones.data_ptr()

    def __call__(self, tensors: Tensors, alpha: float = 1.0, beta: float = 1.0) -> None:
        """Launch; raises ArgumentError for an address that TMA cannot take."""
        a, sfa, b, sfb, c, d, groups = tensors
        operands = a.data_ptr(), b.data_ptr(), d.data_ptr()
        at_c = 0 if c is None else c.data_ptr()
        if (operands[0] | operands[1] | operands[2] | at_c) & 15:
            for name, address in zip(("a", "b", "d", "c"), (*operands, at_c), strict=True):
                checks.address(name, address)
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self(tensors, alpha, beta)
            return
        others = (
            self._one if sfa is None else sfa.data_ptr(),
            self._one if sfb is None else sfb.data_ptr(),
            at_c,
        )
        if groups is None:
            self._launch(operands, others, (alpha, beta), current_stream(device))
        elif self._group_maps is None:
            of = groups.data_ptr(), 0
            self._launch(operands, others, (alpha, beta), current_stream(device), of)
        else:
            maps = self._group_maps(operands[0], operands[1], groups.data_ptr())
            of = groups.data_ptr(), maps.data_ptr()
            self._launch(operands, others, (alpha, beta), current_stream(device), of)


def operands_of(problem: GemmProblem, t: Tensors) -> Operands:
    """Return the extents and strides that a plan needs of checked tensors."""
    form, of = problem.form, problem.grouping
    matrices = (_matrix(t.a), form.a_major), (_matrix(t.b), form.b_major), (_matrix(t.d), "k")
    pitches = [_pitch(matrix, major) for matrix, major in matrices]
    return Operands(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        stride_a=pitches[0],
        stride_b=pitches[1],
        stride_d=pitches[2],
        stride_sfa=_scale_strides(t.sfa, problem.scale_a, stacked=t.a.dim() == 3),
        stride_sfb=_scale_strides(t.sfb, problem.scale_b, stacked=t.b.dim() == 3),
        stride_c=0 if t.c is None else t.c.stride(-2),
        groups=of.groups if of else 0,
        group_strides=(
            _group_stride(t.a, pitches[0]),
            _group_stride(t.b, pitches[1]),
            _group_stride(t.d, pitches[2]),
        ),
    )


def _matrix(x: torch.Tensor) -> torch.Tensor:
    return x[0] if x.dim() == 3 else x


def _group_stride(x: torch.Tensor, pitch: int) -> int:
    """Return how far it is to the next matrix of a stack, 0 where there is none."""
    if x.dim() != 3:
        return 0
    return x.stride(0) if x.shape[0] > 1 else max(x.shape[1:]) * pitch


def _pitch(matrix: torch.Tensor, major: str) -> int:
    """Return the pitch of the contiguous lines; where there is one line, one that TMA accepts."""
    lines = matrix if major == "k" else matrix.t()
    rows, columns = lines.shape
    step = checks.ALIGNMENT_BYTES // matrix.element_size()
    return lines.stride(0) if rows > 1 else -(-columns // step) * step


def _scale_strides(
    scale: torch.Tensor | None, recipe: ScaleRecipe | None, stacked: bool
) -> tuple[int, int, int]:
    """Return how far it is to the next row's scale, the next along K, and the next group's; 0 to
    the same one."""
    if scale is None or recipe is None or scale.dim() == 0:
        return 0, 0, 0
    strides = [s if size > 1 else 0 for size, s in zip(scale.shape, scale.stride(), strict=True)]
    group = strides.pop(0) if stacked and (scale.dim() > 1 or recipe == PER_TENSOR) else 0
    row, along_k = (*strides, 0, 0)[:2]
    return row, along_k, group
