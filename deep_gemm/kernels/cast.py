"""Casts on the GPU: kernels of cuda/cast/ launched on matrices, and the memory they need."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from ..errors import UnsupportedError
from ..problem.scale_recipe import PER_TENSOR, ScaleRecipe
from .cast_geometry import COLUMN_STRIDE, INPUTS, Geometry, geometry, precomputed_geometry, spec
from .current import current_device, current_stream
from .small_kernel import FastDivmod, refusal, small_kernel

_MOST = (1 << 31) - (1 << 20)  # elements of a matrix: indices are divided as 31-bit numbers
_SCRATCH = 4  # words of scratch memory
_SLOT = 32  # words from one captured launch's scratch memory to the next
_SLOTS = 1 << 13  # of captured launches, a device


def serves(x: torch.Tensor, recipe: ScaleRecipe, precomputed: bool = False) -> bool:
    """Say whether a kernel casts x [..., rows, columns]; precomputed: with the caller's scales."""
    rows, columns = x.shape[-2:]
    if not x.is_cuda or x.dtype not in INPUTS or not 0 < rows * columns <= _MOST or not x.numel():
        return False
    if refusal(x.device.index):
        return False
    find = precomputed_geometry if precomputed else geometry
    return find(recipe, rows, columns, 16 // x.element_size()) is not None


def cast(
    x: torch.Tensor,
    q: torch.Tensor,
    sf: torch.Tensor,
    recipe: ScaleRecipe,
    *,
    power_of_two: bool = False,
    precomputed: bool = False,
    counted: bool = False,
) -> bool:
    """Cast x into q on the current stream; write the scales sf, or read precomputed ones.

    Requirements: serves(x, recipe, precomputed); q of x's shape and an 8-bit type, rows contiguous;
    sf float32 in the recipe's shape, any strides.

    Says whether values overflowed the format, and synchronizes for it, if they are `counted`; else
    says no. Launches once for each matrix, or once for all where rows of several go together.
    """
    index = x.device.index
    if current_device() != index:
        with torch.cuda.device(index):
            return cast(
                x, q, sf, recipe,
                power_of_two=power_of_two, precomputed=precomputed, counted=counted,
            )  # fmt: skip
    if not counted:
        how = How(recipe, power_of_two, precomputed, 0)
        for matrices in _matrices(x, q, sf, recipe):
            _launch(*matrices, how)
        return False
    memory = _memory(index)
    with memory.lock:
        how = How(recipe, power_of_two, precomputed, memory.counter.data_ptr())
        for matrices in _matrices(x, q, sf, recipe):
            _launch(*matrices, how)
        found = bool(memory.counter.item())
        if found:
            memory.counter.zero_()
    return found


class How(NamedTuple):
    """What of a cast all its matrices have in common.

    overflow_count: address of the counter of values beyond the format; 0 counts none.
    """

    recipe: ScaleRecipe
    power_of_two: bool
    precomputed: bool
    overflow_count: int


Matrices = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _matrices(
    x: torch.Tensor, q: torch.Tensor, sf: torch.Tensor, recipe: ScaleRecipe
) -> Iterator[Matrices]:
    """Yield x, q and sf as matrices that one launch takes each, rows of x contiguous."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    if x.dim() == 2:
        yield x, q, sf
        return
    whole_blocks = recipe.gran_mn and x.shape[-2] % recipe.gran_mn == 0
    flat = x.is_contiguous() and q.is_contiguous() and sf.is_contiguous()
    if whole_blocks and flat and x.numel() <= _MOST:
        yield x.flatten(0, -2), q.flatten(0, -2), sf.flatten(0, -2)
        return
    for index in itertools.product(*map(range, x.shape[:-2])):
        yield x[index], q[index], sf[index]


def _launch(x: torch.Tensor, q: torch.Tensor, sf: torch.Tensor, how: How) -> None:
    """Cast one matrix with one launch, or, with more columns than fit the device, with several."""
    recipe = how.recipe
    if recipe == PER_TENSOR and x.is_contiguous() and q.is_contiguous():
        x, q = x.view(1, -1), q.view(1, -1)
    rows, columns = x.shape
    chunk, found = 16 // x.element_size(), _geometry(x, sf, how)
    pitch_x, pitch_q = (x.stride(0), q.stride(0)) if rows > 1 else (0, 0)
    at_x, at_q = x.data_ptr(), q.data_ptr()
    ends = columns | pitch_x | pitch_q
    aligned = ends % chunk == 0 and at_x % 16 == 0 and at_q % chunk == 0
    index = x.device.index
    chosen = spec(found.kind, found.detail, x.dtype, q.dtype, aligned)
    kernel, cooperative = small_kernel(chosen, index), chosen.launch.cooperative
    ctas = min(found.ctas, kernel.resident) if cooperative else found.ctas
    if found.kind == "column":
        if found.per_row > kernel.resident:  # strips: a half of them after the other
            half = found.per_row // 2 * COLUMN_STRIDE.lanes * chunk
            for part in (slice(0, half), slice(half, None)):
                _launch(x[:, part], q[:, part], sf[:, part], how)
            return
        ctas -= ctas % found.per_row
    scratch = _scratch(index) if cooperative else None
    amax = torch.empty_like(sf[0]) if found.kind == "column" else None
    addresses = at_x, at_q, sf.data_ptr(), how.overflow_count, _address(scratch), _address(amax)
    divisors = found.per_row, recipe.gran_mn or rows, recipe.gran_k or columns
    kernel.launch(
        ctas, *addresses, pitch_x, pitch_q, *sf.stride(), rows, columns,
        *map(_fast_divmod, divisors), how.power_of_two,
    )  # fmt: skip


def _geometry(x: torch.Tensor, sf: torch.Tensor, how: How) -> Geometry:
    (rows, columns), chunk, recipe = x.shape, 16 // x.element_size(), how.recipe
    if how.precomputed:
        found = precomputed_geometry(recipe, rows, columns, chunk)
    else:
        mn_major = sf.stride(0) == 1 and sf.shape[1] > 1
        found = geometry(recipe, rows, columns, chunk, mn_major)
    if found is None:
        raise UnsupportedError(f"a cast kernel for scales of {recipe.name}", ["ask serves() first"])
    return found


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


_fast_divmod = lru_cache(4096)(FastDivmod.by)


# --- memory -------------------------------------------------------------------------------------


class _Memory:
    """What the casts of one stream keep: a counter and scratch memory, zero between launches."""

    def __init__(self, device_index: int):
        device = torch.device("cuda", device_index)
        self.lock = threading.Lock()
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.scratch = torch.zeros(_SCRATCH, dtype=torch.int32, device=device)


class _Arena:
    """Scratch memory for captured launches, which may be replayed beside any others."""

    def __init__(self, device_index: int):
        device = torch.device("cuda", device_index)
        self._words = torch.zeros(_SLOTS, _SLOT, dtype=torch.int32, device=device)
        self._next = itertools.count()

    def take(self) -> torch.Tensor | None:
        """Return zeros that nobody else gets, or None where none are left."""
        slot = next(self._next)
        return self._words[slot] if slot < _SLOTS else None


_memories: dict[tuple[int, int], _Memory] = {}
_arenas: dict[int, _Arena] = {}
_lock = threading.Lock()


def _memory(device_index: int) -> _Memory:
    """Return the memory of a device's current stream."""
    handle = (device_index, current_stream(device_index))
    found = _memories.get(handle)
    if found is None:
        with _lock:
            found = _memories.setdefault(handle, _Memory(device_index))
            _arenas.setdefault(device_index, _Arena(device_index))
    return found


def _scratch(device_index: int) -> torch.Tensor:
    """Return scratch memory, zero, for one launch on the current stream."""
    if not torch.cuda.is_current_stream_capturing():
        return _memory(device_index).scratch
    arena = _arenas.get(device_index)
    taken = arena.take() if arena else None
    if taken is not None:
        return taken
    # Without an arena zeros are written anew at each replay.
    device = torch.device("cuda", device_index)
    return torch.zeros(_SCRATCH, dtype=torch.int32, device=device)
