"""Configurations nobody has to choose, as the candidates are made, and a variant of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, by_name, candidates
from deep_gemm.config.candidates import finalize
from deep_gemm.dtypes import BF16, E4M3, E5M2, FP16, FP32, INT8, INT32
from deep_gemm.problem import CMode, GemmProblem, GemmVariant, Major
from deep_gemm.problem.scale_recipe import BLOCK_128X128, PER_CHANNEL, ROW_1X128

H200 = by_name("h200")
WARPGROUPS = {64: 1, 128: 2, 192: 3, 256: 2}  # by mma_m


def config_of(
    block_m: int,
    block_n: int,
    split_k: int = 1,
    cluster_m: int = 1,
    cluster_n: int = 1,
    *,
    ping_pong: bool = False,
    swap_ab: bool = False,
    **rest: Any,
) -> GemmConfig:
    """Return a configuration, legal or not, with its store path and as many stages as fit."""
    warpgroups = 2 if ping_pong else WARPGROUPS[block_n if swap_ab else block_m]
    tile = TileConfig(block_m, block_n, warpgroups, ping_pong, swap_ab)
    unknown = StoreConfig(0, 0, 0)
    return finalize(GemmConfig(tile, cluster_m, cluster_n, 0, unknown, split_k, **rest), H200)


# --- variants -----------------------------------------------------------------------------------

BLOCKS, ROWS = (ROW_1X128, BLOCK_128X128), (ROW_1X128, ROW_1X128)
VECTORS, NONE = (PER_CHANNEL, PER_CHANNEL), (None, None)
READ, REDUCE = CMode.READ, CMode.REDUCE
K, MN = Major.K, Major.MN


def template(*fields: Any, **rest: Any) -> GemmProblem:
    """Return a problem without extents."""
    return GemmProblem(0, 0, 0, *fields, **rest)


# Every pair of operands, kind of scales, size of output, major and way to add C.
TEMPLATES = {
    "1d2d": template(),
    "1d2d_fp16_read": template(E4M3, E5M2, FP16, *BLOCKS, c_mode=READ),
    "1d2d_fp32_reduce": template(E5M2, E4M3, FP32, *BLOCKS, c_mode=REDUCE),
    "1d1d": template(E4M3, E4M3, BF16, *ROWS),
    "1d1d_fp32_read": template(E5M2, E5M2, FP32, *ROWS, c_mode=READ),
    "1d1d_fp32_reduce": template(E4M3, E4M3, FP32, *ROWS, c_mode=REDUCE),
    "promoted_fp32": template(E4M3, E5M2, FP32, *NONE),
    "promoted_scaled_read": template(E4M3, E4M3, BF16, *VECTORS, c_mode=READ),
    "fast_fp16": template(E5M2, E4M3, FP16, *NONE, promoted=False),
    "fast_scaled": template(E4M3, E4M3, BF16, *VECTORS, promoted=False),
    "fast_scaled_fp32_reduce": template(E4M3, E4M3, FP32, *VECTORS, False, c_mode=REDUCE),
    "int8": template(INT8, INT8, INT32, *NONE),
    "int8_read": template(INT8, INT8, INT32, *NONE, c_mode=READ),
    "int8_reduce": template(INT8, INT8, INT32, *NONE, c_mode=REDUCE),
    "int8_scaled_bf16_read": template(INT8, INT8, BF16, *VECTORS, c_mode=READ),
    "int8_scaled_fp32": template(INT8, INT8, FP32, *VECTORS),
    "bf16": template(BF16, BF16, BF16, *NONE),
    "bf16_mn_fp32_read": template(BF16, BF16, FP32, *NONE, True, MN, MN, READ),
    "fp16_read": template(FP16, FP16, FP16, *NONE, c_mode=READ),
    "fp16_a_mn_fp32_reduce": template(FP16, FP16, FP32, *NONE, True, MN, K, REDUCE),
    "bf16_b_mn": template(BF16, BF16, BF16, *NONE, True, K, MN),
}
VARIANTS: dict[str, GemmVariant] = {name: problem.variant for name, problem in TEMPLATES.items()}


def sized(variant: str, m: int, n: int, k: int, **rest: Any) -> GemmProblem:
    """Return a problem of one of VARIANTS."""
    return replace(TEMPLATES[variant], m=m, n=n, k=k, **rest)


CANDIDATES = candidates(H200)  # of FP8 with 1D2D scaling
BY_VARIANT = {name: candidates(H200, variant) for name, variant in VARIANTS.items()}
EVERY = [config for configs in BY_VARIANT.values() for config in configs]
