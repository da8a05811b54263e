"""Which kernel of cuda/cast/ casts a matrix, its KernelSpec and its grid."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import torch

from ..config.cost_model import copy_us
from ..jit.launch import LaunchShape
from ..jit.source import Constant, CudaName
from ..layouts import ceil_div
from ..problem.scale_recipe import PER_CHANNEL, PER_COLUMN, PER_TENSOR, ScaleRecipe
from .small_kernel import FastDivmod
from .spec import KernelSpec

INPUTS = {torch.float32: "FP32", torch.bfloat16: "BF16", torch.float16: "FP16"}
OUTPUTS = {torch.float8_e4m3fn: "E4M3", torch.float8_e5m2: "E5M2", torch.int8: "Int8"}

TOKEN_GRANS = (32, 64, 128, 256, 512)  # columns that a few lanes hold, 16 each
CHANNEL_GRANS = (32, 64, 128)  # rows that a CTA holds
CHANNEL_THREADS, CHANNEL_CTAS, CHANNEL_COLUMNS = 128, 4, 64
HELD = 32  # elements of a row that a thread holds


class CastParams(ctypes.Structure):
    """CastParams of the kernels, member by member; their source asserts the offsets."""

    _fields_ = [
        ("x", ctypes.c_uint64),
        ("q", ctypes.c_uint64),
        ("scales", ctypes.c_uint64),
        ("overflow_count", ctypes.c_uint64),
        ("scratch", ctypes.c_uint64),
        ("amax", ctypes.c_uint64),
        ("pitch_x", ctypes.c_int64),
        ("pitch_q", ctypes.c_int64),
        ("scale_row", ctypes.c_int64),
        ("scale_column", ctypes.c_int64),
        ("rows", ctypes.c_uint32),
        ("columns", ctypes.c_uint32),
        ("per_row", FastDivmod),
        ("gran_rows", FastDivmod),
        ("gran_columns", FastDivmod),
        ("power_of_two", ctypes.c_uint32),
    ]


# --- specs ----------------------------------------------------------------------------------------


class Body(NamedTuple):
    """One kind of cast kernel: its header and function, its CTAs, its own members of Config."""

    header: str
    function: str
    threads: int
    ctas_per_sm: int
    constants: tuple[tuple[str, Constant], ...] = ()
    cooperative: bool = False


class GridStride(NamedTuple):
    """How a kernel of cuda/cast/grid.cuh steps through x; that file says what Config means.

    lanes: threads side by side where columns have their own scales.
    """

    threads: int
    ctas_per_sm: int
    chunks: int
    lanes: int = 32

    def body(self, function: str, *own: tuple[str, Constant]) -> Body:
        """Return a kernel that steps so."""
        constants = (("kChunks", self.chunks), *own)
        return Body("cast/grid.cuh", function, self.threads, self.ctas_per_sm, constants, True)


# The best of twelve each at 4096 x 7168, 8192 x 4096 and 1024 x 7168 (docs/findings.md).
TENSOR_STRIDE = GridStride(threads=512, ctas_per_sm=2, chunks=7)
COLUMN_STRIDE = GridStride(threads=256, ctas_per_sm=2, chunks=16)


def _body(kind: str, detail: int, chunk: int) -> Body:
    if kind in ("token", "token_mn"):
        together = 4 if kind == "token_mn" else 1
        blocks = ("kBlocks", _token_blocks(chunk))
        own = (("kGran", detail), ("kRowsTogether", together), blocks)
        return Body("cast/token.cuh", "cast_token", 256, 4, own)
    if kind == "row":
        threads = max(detail, 128)
        return Body("cast/row.cuh", "cast_row", threads, 1024 // threads, (("kTeam", detail),))
    if kind == "block":
        return Body("cast/block.cuh", "cast_block", 256, 2)
    if kind == "channel":
        constants = (("kGran", detail), ("kColumns", CHANNEL_COLUMNS))
        return Body("cast/block.cuh", "cast_channel", CHANNEL_THREADS, CHANNEL_CTAS, constants)
    if kind in ("precomputed", "precomputed_each"):
        elementwise = int(kind == "precomputed_each")
        constants = (("kElementwise", elementwise), ("kChunks", 4))
        ctas = 2 if elementwise else 4
        return Body("cast/precomputed.cuh", "cast_precomputed", 256, ctas, constants)
    if kind == "tensor":
        return TENSOR_STRIDE.body("cast_tensor", ("kFlat", detail))
    return COLUMN_STRIDE.body("cast_column", ("kLanes", COLUMN_STRIDE.lanes))


def _token_blocks(chunk: int) -> int:
    """Return how many blocks a thread has in flight: 64 bytes."""
    return chunk // 4


@cache
def spec(
    kind: str, detail: int, source: torch.dtype, target: torch.dtype, aligned: bool
) -> KernelSpec:
    """Return a kernel of a kind for element types; aligned: whole chunks can be loaded and stored.

    detail: columns or rows of a block, threads of a team, whether x is one row: as the kind asks.
    """
    body = _body(kind, detail, 16 // source.itemsize)
    name = f"cast_{kind}{detail or ''}_{INPUTS[source]}_{OUTPUTS[target]}".lower()
    # Loading one element at a time takes registers.
    ctas_per_sm = body.ctas_per_sm if aligned else max(1, body.ctas_per_sm // 2)
    return KernelSpec(
        name=name if aligned else f"{name}_any",
        header=body.header,
        function=body.function,
        constants=(
            ("Input", CudaName(f"cast::{INPUTS[source]}", is_type=True)),
            ("Output", CudaName(f"cast::{OUTPUTS[target]}", is_type=True)),
            ("kAligned", int(aligned)),
            *body.constants,
            ("kThreads", body.threads),
        ),
        params=CastParams,
        params_type="CastParams",
        launch=LaunchShape(body.threads, ctas_per_sm=ctas_per_sm, cooperative=body.cooperative),
        cost=copy_us,
    )


# --- geometry -------------------------------------------------------------------------------------


class Geometry(NamedTuple):
    """Which kernel casts a matrix, on how many CTAs, and what it divides indices by.

    ctas: of a cooperative kernel the most that are of use.
    """

    kind: str
    detail: int
    ctas: int
    per_row: int


def geometry(
    recipe: ScaleRecipe, rows: int, columns: int, chunk: int, scales_mn_major: bool = False
) -> Geometry | None:
    """Return how a matrix is cast with computed scales, or None where no kernel has the recipe.

    chunk: elements in 16 bytes of it.
    """
    mn, k = recipe.gran_mn, recipe.gran_k
    scale_rows, scale_columns = recipe.shape(rows, columns)
    if mn == 1 and k in TOKEN_GRANS:
        together = 4 if scales_mn_major else 1
        threads = ceil_div(rows, together) * together * scale_columns * (k // 16)
        kind = "token_mn" if scales_mn_major else "token"
        return Geometry(kind, k, ceil_div(threads, _token_blocks(chunk) * 256), scale_columns)
    if recipe == PER_CHANNEL:
        team = next((t for t in (32, 128, 256) if columns <= t * HELD), 512)
        return Geometry("row", team, ceil_div(rows, 4) if team == 32 else rows, 1)
    if (mn, k) == (128, 128):
        return Geometry("block", 0, scale_rows * scale_columns, scale_columns)
    if mn in CHANNEL_GRANS and k == 1:
        strips = ceil_div(columns, CHANNEL_COLUMNS)
        return Geometry("channel", mn, scale_rows * strips, strips)
    if recipe == PER_TENSOR:
        across = ceil_div(columns, chunk)
        ctas = ceil_div(rows * across, TENSOR_STRIDE.threads)
        return Geometry("tensor", int(rows == 1), ctas, across)
    if recipe == PER_COLUMN:
        strips = ceil_div(columns, COLUMN_STRIDE.lanes * chunk)
        down = ceil_div(rows, COLUMN_STRIDE.threads // COLUMN_STRIDE.lanes)
        return Geometry("column", 0, down * strips, strips)
    return None


def precomputed_geometry(
    recipe: ScaleRecipe, rows: int, columns: int, chunk: int
) -> Geometry | None:
    """Return how a matrix is cast with the caller's scales, or None where no kernel can."""
    across = ceil_div(columns, chunk)
    ctas = ceil_div(rows * across, 4 * 256)
    if recipe.gran_k % chunk == 0:
        return Geometry("precomputed", 0, ctas, across)
    return Geometry("precomputed_each", 0, ctas, across) if recipe.gran_k == 1 else None
