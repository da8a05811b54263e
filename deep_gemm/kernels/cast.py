"""Host half of cuda/kernels/cast*.cuh: which kernel casts a matrix, its geometry, its memory."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import torch

from ..errors import UnsupportedError
from ..quant.layout import ceil_div
from ..quant.recipe import PER_CHANNEL, PER_COLUMN, PER_TENSOR, ScaleRecipe
from . import simple
from .current import current_device, current_stream

INPUTS = {torch.float32: "FP32", torch.bfloat16: "BF16", torch.float16: "FP16"}
OUTPUTS = {torch.float8_e4m3fn: "E4M3", torch.float8_e5m2: "E5M2", torch.int8: "Int8"}

TOKEN_GRANS = (32, 64, 128, 256, 512)  # columns that a few lanes hold, 16 each
CHANNEL_GRANS = (32, 64, 128)  # rows that a CTA holds
CHANNEL = (128, 4, 64)  # its threads, CTAs an SM, columns
HELD = 32  # elements of a row that a thread holds

_MOST = (1 << 31) - (1 << 20)  # elements of a matrix: indices are divided as 31-bit numbers
_SCRATCH = 4  # words of scratch memory
_SLOT = 32  # words from one captured launch's scratch memory to the next
_SLOTS = 1 << 13  # of captured launches, a device


class CastParams(ctypes.Structure):
    """CastParams of the kernels, field by field; they assert the size."""

    _fields_ = [
        ("x", ctypes.c_uint64),
        ("q", ctypes.c_uint64),
        ("scales", ctypes.c_uint64),
        ("beyond", ctypes.c_uint64),
        ("scratch", ctypes.c_uint64),
        ("amax", ctypes.c_uint64),
        ("pitch_x", ctypes.c_int64),
        ("pitch_q", ctypes.c_int64),
        ("scale_row", ctypes.c_int64),
        ("scale_column", ctypes.c_int64),
        ("rows", ctypes.c_uint32),
        ("columns", ctypes.c_uint32),
        ("per_row", simple.Divider),
        ("gran_rows", simple.Divider),
        ("gran_columns", simple.Divider),
        ("power_of_two", ctypes.c_uint32),
    ]


# --- kernels ------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """How one kind of kernel is built: its header, CTA, and members of Config of its own."""

    header: str
    body: str
    threads: int
    ctas_per_sm: int
    constants: tuple[tuple[str, int | str], ...] = ()
    cooperative: bool = False


class Walk(NamedTuple):
    """How a kernel of cast_grid.cuh goes through x; its head says what the members of Config do.

    lanes: threads side by side where columns have their own scales.
    """

    threads: int
    ctas_per_sm: int
    chunks: int
    lanes: int = 32

    def shape(self, body: str, *own: tuple[str, int | str]) -> Shape:
        """Return a kernel that goes so."""
        constants = (("kChunks", self.chunks), *own)
        return Shape("cast_grid.cuh", body, self.threads, self.ctas_per_sm, constants, True)


# The best of twelve each at 4096 x 7168, 8192 x 4096 and 1024 x 7168 (docs/findings.md).
TENSOR_WALK = Walk(threads=512, ctas_per_sm=2, chunks=7)
COLUMN_WALK = Walk(threads=256, ctas_per_sm=2, chunks=16)


def _shape(kind: str, detail: int, vector: int) -> Shape:
    own: tuple[tuple[str, int], ...]
    if kind in ("token", "token_mn"):
        together = 4 if kind == "token_mn" else 1
        blocks = ("kBlocks", _token_blocks(vector))
        own = (("kGran", detail), ("kRowsTogether", together), blocks)
        return Shape("cast_token.cuh", "cast_token", 256, 4, own)
    if kind == "row":
        threads = max(detail, 128)
        own = (("kTeam", detail),)
        return Shape("cast_row.cuh", "cast_row", threads, 1024 // threads, own)
    if kind == "block":
        return Shape("cast_block.cuh", "cast_block", 256, 2)
    if kind == "channel":
        own = (("kGran", detail), ("kColumns", CHANNEL[2]))
        return Shape("cast_block.cuh", "cast_channel", *CHANNEL[:2], own)
    if kind == "given":
        return Shape("cast_given.cuh", "cast_given", 256, 4, (("kElementwise", 0), ("kChunks", 4)))
    if kind == "given_each":
        return Shape("cast_given.cuh", "cast_given", 256, 2, (("kElementwise", 1), ("kChunks", 4)))
    if kind == "tensor":
        return TENSOR_WALK.shape("cast_tensor", ("kFlat", detail))
    return COLUMN_WALK.shape("cast_column", ("kLanes", COLUMN_WALK.lanes))


def _token_blocks(vector: int) -> int:
    """Return how many blocks a thread has under way: 64 bytes."""
    return vector // 4


@cache
def variant(
    kind: str, detail: int, source: torch.dtype, target: torch.dtype, aligned: bool
) -> simple.Variant:
    """Return a kernel of a kind for element types; aligned: whole chunks can be loaded and stored.

    detail: columns or rows of a block, threads of a team, whether x is one row: as the kind asks.
    """
    shape = _shape(kind, detail, 16 // source.itemsize)
    name = f"cast_{kind}{detail or ''}_{INPUTS[source]}_{OUTPUTS[target]}".lower()
    return simple.Variant(
        name=name if aligned else f"{name}_any",
        header=shape.header,
        body=shape.body,
        params="CastParams",
        struct=CastParams,
        constants=(
            ("Input", f"cast::{INPUTS[source]}"),
            ("Output", f"cast::{OUTPUTS[target]}"),
            ("kAligned", int(aligned)),
            *shape.constants,
        ),
        threads=shape.threads,
        # Loading one element at a time takes registers.
        ctas_per_sm=shape.ctas_per_sm if aligned else max(1, shape.ctas_per_sm // 2),
        cooperative=shape.cooperative,
    )


# --- geometry -----------------------------------------------------------------------------------


class Geometry(NamedTuple):
    """Which kernel casts a matrix, on how many CTAs, and what it divides indices by.

    blocks: of a cooperative kernel the most that are of use.
    """

    kind: str
    detail: int
    blocks: int
    per_row: int


def geometry(
    recipe: ScaleRecipe, rows: int, columns: int, vector: int, scales_mn_major: bool = False
) -> Geometry | None:
    """Return how a matrix is cast with computed scales, or None where no kernel has the recipe.

    vector: elements in 16 bytes of it.
    """
    mn, k = recipe.gran_mn, recipe.gran_k
    scale_rows, scale_columns = recipe.shape(rows, columns)
    if mn == 1 and k in TOKEN_GRANS:
        together = 4 if scales_mn_major else 1
        threads = ceil_div(rows, together) * together * scale_columns * (k // 16)
        kind = "token_mn" if scales_mn_major else "token"
        return Geometry(kind, k, ceil_div(threads, _token_blocks(vector) * 256), scale_columns)
    if recipe == PER_CHANNEL:
        team = next((t for t in (32, 128, 256) if columns <= t * HELD), 512)
        return Geometry("row", team, ceil_div(rows, 4) if team == 32 else rows, 1)
    if (mn, k) == (128, 128):
        return Geometry("block", 0, scale_rows * scale_columns, scale_columns)
    if mn in CHANNEL_GRANS and k == 1:
        strips = ceil_div(columns, CHANNEL[2])
        return Geometry("channel", mn, scale_rows * strips, strips)
    if recipe == PER_TENSOR:
        across = ceil_div(columns, vector)
        blocks = ceil_div(rows * across, TENSOR_WALK.threads)
        return Geometry("tensor", int(rows == 1), blocks, across)
    if recipe == PER_COLUMN:
        strips = ceil_div(columns, COLUMN_WALK.lanes * vector)
        down = ceil_div(rows, COLUMN_WALK.threads // COLUMN_WALK.lanes)
        return Geometry("column", 0, down * strips, strips)
    return None


def given_geometry(recipe: ScaleRecipe, rows: int, columns: int, vector: int) -> Geometry | None:
    """Return how a matrix is cast with the caller's scales, or None where no kernel can."""
    across = ceil_div(columns, vector)
    blocks = ceil_div(rows * across, 4 * 256)
    if recipe.gran_k % vector == 0:
        return Geometry("given", 0, blocks, across)
    return Geometry("given_each", 0, blocks, across) if recipe.gran_k == 1 else None


# --- casting ------------------------------------------------------------------------------------


def serves(x: torch.Tensor, recipe: ScaleRecipe, given: bool = False) -> bool:
    """Say whether a kernel casts x [..., rows, columns]; given: with the caller's scales."""
    rows, columns = x.shape[-2:]
    if not x.is_cuda or x.dtype not in INPUTS or not 0 < rows * columns <= _MOST or not x.numel():
        return False
    if simple.refusal(x.device.index):
        return False
    find = given_geometry if given else geometry
    return find(recipe, rows, columns, 16 // x.element_size()) is not None


def cast(
    x: torch.Tensor,
    q: torch.Tensor,
    sf: torch.Tensor,
    recipe: ScaleRecipe,
    *,
    power_of_two: bool = False,
    given: bool = False,
    counted: bool = False,
) -> bool:
    """Cast x into q on the current stream; write the scales sf, or read them if they are `given`.

    Requirements: serves(x, recipe, given); q of x's shape and an 8-bit type, rows contiguous; sf
    float32 in the recipe's shape, any strides.

    Says whether values lay beyond the format, and synchronizes for it, if they are `counted`; else
    says no. Launches once for each matrix, or once for all where rows of several go together.
    """
    index = x.device.index
    if current_device() != index:
        with torch.cuda.device(index):
            return cast(x, q, sf, recipe, power_of_two=power_of_two, given=given, counted=counted)
    if not counted:
        for matrices in _matrices(x, q, sf, recipe):
            _launch(*matrices, recipe, power_of_two, given, 0)
        return False
    memory = _memory(index)
    with memory.lock:
        for matrices in _matrices(x, q, sf, recipe):
            _launch(*matrices, recipe, power_of_two, given, memory.counter.data_ptr())
        found = bool(memory.counter.item())
        if found:
            memory.counter.zero_()
    return found


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
    stacks = (t.reshape(-1, *t.shape[-2:]) for t in (x, q, sf))
    yield from zip(*stacks, strict=True)


def _launch(
    x: torch.Tensor,
    q: torch.Tensor,
    sf: torch.Tensor,
    recipe: ScaleRecipe,
    power_of_two: bool,
    given: bool,
    beyond: int,
) -> None:
    if recipe == PER_TENSOR and x.is_contiguous() and q.is_contiguous():
        x, q = x.view(1, -1), q.view(1, -1)
    rows, columns = x.shape
    vector = 16 // x.element_size()
    pitch_x, pitch_q = (x.stride(0), q.stride(0)) if rows > 1 else (0, 0)
    at_x, at_q = x.data_ptr(), q.data_ptr()
    ends = columns | pitch_x | pitch_q
    aligned = ends % vector == 0 and at_x % 16 == 0 and at_q % vector == 0
    if given:
        shape = given_geometry(recipe, rows, columns, vector)
    else:
        mn_major = sf.stride(0) == 1 and sf.shape[1] > 1
        shape = geometry(recipe, rows, columns, vector, mn_major)
    if shape is None:
        raise UnsupportedError(f"a cast kernel for scales of {recipe.name}", ["ask serves() first"])
    index = x.device.index
    chosen = variant(shape.kind, shape.detail, x.dtype, q.dtype, aligned)
    kernel = simple.kernel(chosen, index)
    blocks = shape.blocks
    if chosen.cooperative:
        blocks = min(blocks, kernel.resident)
    if shape.kind == "column":
        if shape.per_row > kernel.resident:  # strips: a half of them after the other
            half = shape.per_row // 2 * COLUMN_WALK.lanes * vector
            for part in (slice(0, half), slice(half, None)):
                _launch(x[:, part], q[:, part], sf[:, part], recipe, power_of_two, given, beyond)
            return
        blocks -= blocks % shape.per_row
    scratch = _scratch(index) if chosen.cooperative else None
    amax = torch.empty_like(sf[0]) if shape.kind == "column" else None
    kernel.launch(
        blocks,
        at_x,
        at_q,
        sf.data_ptr(),
        beyond,
        _address(scratch),
        _address(amax),
        pitch_x,
        pitch_q,
        *sf.stride(),
        rows,
        columns,
        _divider(shape.per_row),
        _divider(recipe.gran_mn or rows),
        _divider(recipe.gran_k or columns),
        power_of_two,
    )


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


_divider = lru_cache(4096)(simple.Divider.by)


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
