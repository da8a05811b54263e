"""Configurations nobody has to choose, as the candidates are made, and a form of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, by_name
from deep_gemm.config.candidates import complete
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import Form, GemmProblem
from deep_gemm.quant.recipe import BLOCK_128X128, PER_CHANNEL, ROW_1X128

H200 = by_name("h200")
WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by BLOCK_M


def config_of(
    block_m: int,
    block_n: int,
    split_k: int = 1,
    cluster_m: int = 1,
    cluster_n: int = 1,
    *,
    ping_pong: bool = False,
    **rest: Any,
) -> GemmConfig:
    """Return a configuration, legal or not, with its store path and as many stages as fit."""
    warpgroups = 2 if ping_pong else WARPGROUPS[block_m]
    tile = TileConfig(block_m, block_n, warpgroups, ping_pong)
    unknown = StoreConfig(0, 0, 0)
    return complete(GemmConfig(tile, cluster_m, cluster_n, 0, unknown, split_k, **rest), H200)


# --- forms --------------------------------------------------------------------------------------

BLOCKS, ROWS = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128)
VECTORS, NONE = (PER_CHANNEL, PER_CHANNEL), (None, None)


def template(*fields: Any, **rest: Any) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# Every pair of operands, kind of scales, size of output, order in memory and way to add C.
TEMPLATES = {
    "block": template(),
    "block_fp16_read": template(E4M3, E5M2, FP16, *BLOCKS, addend="read"),
    "block_fp32_reduce": template(E5M2, E4M3, FP32, *BLOCKS, addend="reduce"),
    "rows": template(E4M3, E4M3, BF16, *ROWS),
    "rows_fp32_read": template(E5M2, E5M2, FP32, *ROWS, addend="read"),
    "rows_fp32_reduce": template(E4M3, E4M3, FP32, *ROWS, addend="reduce"),
    "unit_fp32": template(E4M3, E5M2, FP32, *NONE),
    "unit_scaled_read": template(E4M3, E4M3, BF16, *VECTORS, addend="read"),
    "fast_fp16": template(E5M2, E4M3, FP16, *NONE, promoted=False),
    "fast_scaled": template(E4M3, E4M3, BF16, *VECTORS, promoted=False),
    "fast_scaled_fp32_reduce": template(E4M3, E4M3, FP32, *VECTORS, False, addend="reduce"),
    "int8": template(INT8, INT8, INT32, *NONE),
    "int8_read": template(INT8, INT8, INT32, *NONE, addend="read"),
    "int8_reduce": template(INT8, INT8, INT32, *NONE, addend="reduce"),
    "int8_scaled_bf16_read": template(INT8, INT8, BF16, *VECTORS, addend="read"),
    "int8_scaled_fp32": template(INT8, INT8, FP32, *VECTORS),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16_turned_fp32_read": template(BF16, BF16, FP32, *NONE, True, "mn", "mn", "read"),
    "fp16_read": template(FP16, FP16, FP16, *NONE, addend="read"),
    "fp16_a_turned_fp32_reduce": template(FP16, FP16, FP32, *NONE, True, "mn", "k", "reduce"),
    "bf16_b_turned": template(BF16, BF16, BF16, *NONE, True, "k", "mn"),
}
FORMS: dict[str, Form] = {name: problem.form for name, problem in TEMPLATES.items()}


def sized(form: str, m: int, n: int, k: int, **rest: Any) -> GemmProblem:
    """Return a problem of one of FORMS."""
    return replace(TEMPLATES[form], m=m, n=n, k=k, **rest)
