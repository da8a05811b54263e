"""matmul(), the one general entry; every named function is a thin wrapper over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import torch

from . import checks, settings
from .dtypes import BF16, E4M3
from .errors import ArgumentError, UnsupportedError
from .problem import GemmProblem
from .quant.recipe import BLOCK_128X128, ROW_1X128
from .quant.scaled_tensor import ScaledTensor

Pair: TypeAlias = ScaledTensor | Iterable[torch.Tensor]

_MAX_PLANS = 4096
Run: TypeAlias = Callable[..., None]
_plans: dict[tuple[object, ...], Run] = {}


def matmul(
    a: Pair, b: Pair, out: torch.Tensor | None = None, *, static_b: bool = False
) -> torch.Tensor:
    """Return D = A @ B^T of two FP8 matrices with block scales, accumulated in FP32.

    Requirements: A, B and D row-major (rows contiguous); all tensors on one device, CUDA (compute
    capability 9.0) or CPU. On CUDA N is a multiple of 8, and rows of A, B and D start at multiples
    of 16 bytes: addresses, and pitches where there is more than one row (quant.align_rows()).

    Arguments:
        a: (A, sfa) or ScaledTensor. A float8_e4m3fn [M, K]; sfa float32 [M, ceil(K / 128)], one
            scale for each row and 128 columns, any strides.
        b: (B, sfb) or ScaledTensor. B float8_e4m3fn [N, K]; sfb float32 [ceil(N / 128),
            ceil(K / 128)], one scale for each 128 x 128 block, any strides.
        out: bfloat16 [M, N], written in place; allocated where None.
        static_b: the caller's word that no kernel still in flight on the stream writes B or sfb, as
            with the weights of a network. Under programmatic dependent launch (set_pdl) B is then
            read while the kernel before still runs, which saves a microsecond or more of a short
            call; if the word is false, stale values of B are multiplied.

    Products of 128 along K are summed by the tensor cores, scaled by sfa * sfb and added in FP32,
    in order of K; the result is rounded to bf16 once. Where few tiles would leave SMs idle, parts
    of K are summed apart and then added, always in the same order: equal calls give equal bits,
    but a row can be split otherwise, and so rounded otherwise, in a call with more rows. M = 0 or
    N = 0 does nothing, K = 0 gives zeros. A NaN in a row of A stays in that row.

    Cost: the first call with new metadata (shapes, strides) makes a launch plan, and compiles a
    kernel (tenths of a second) if none of its configuration is cached; later calls take
    microseconds. Runs on the current stream without synchronizing; can be captured in a CUDA graph
    after one call or `warmup()`. On the CPU the same arithmetic runs in torch.

    Raises ArgumentError (which tensor, which property, wanted, got, remedy), UnsupportedError,
    CompileError or CudaError; all are RuntimeError, and nothing has been written.
    """
    x, sfa = unpack_pair("a", a)
    w, sfb = unpack_pair("b", b)
    if out is None:
        checks.matrix("a", x)
        checks.matrix("b", w)
        out = torch.empty(x.shape[0], w.shape[0], dtype=torch.bfloat16, device=x.device)
    block_scaled_nt(x, sfa, w, sfb, out, static_b)
    return out


def unpack_pair(name: str, pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (data, scale) of a tuple, list or ScaledTensor; ArgumentError for anything else."""
    try:
        data, scale = pair
    except (TypeError, ValueError):
        raise ArgumentError(
            name, "form", "a pair (data, scale)", type(pair).__name__, "pass a tuple or a list"
        ) from None
    return data, scale


def block_scaled_nt(
    a: torch.Tensor,
    sfa: torch.Tensor,
    b: torch.Tensor,
    sfb: torch.Tensor,
    d: torch.Tensor,
    static_b: bool = False,
) -> None:
    """Write D = A @ B^T for 1x128 scales of A and 128x128 scales of B; see matmul()."""
    try:
        key = (
            settings.version(), static_b,
            a.get_device(), a.shape, a.stride(), a.dtype,
            sfa.get_device(), sfa.shape, sfa.stride(), sfa.dtype,
            b.get_device(), b.shape, b.stride(), b.dtype,
            sfb.get_device(), sfb.shape, sfb.stride(), sfb.dtype,
            d.get_device(), d.shape, d.stride(), d.dtype,
        )  # fmt: skip
    except AttributeError:
        for name, value in zip(("a", "sfa", "b", "sfb", "d"), (a, sfa, b, sfb, d), strict=True):
            checks.tensor(name, value)
        raise
    run = _plans.get(key)
    if run is None:
        run = _plan(a, sfa, b, sfb, d, static_b)
        # Plans are kept for CUDA tensors only: get_device() is -1 for every other kind of device.
        if a.is_cuda:
            if len(_plans) >= _MAX_PLANS:
                _plans.clear()
            _plans[key] = run
    run(a, sfa, b, sfb, d)


def _plan(
    a: torch.Tensor,
    sfa: torch.Tensor,
    b: torch.Tensor,
    sfb: torch.Tensor,
    d: torch.Tensor,
    static_b: bool,
) -> Run:
    """Check everything but addresses, and return what runs such tensors from now on."""
    problem = replace(_check(a, sfa, b, sfb, d), static_b=static_b)
    if problem.m == 0 or problem.n == 0:
        return _nothing
    if problem.k == 0:
        return _zeros
    if a.device.type == "cpu":
        from .reference import block_scaled_gemm_nt

        return block_scaled_gemm_nt
    checks.tma_extents(problem.n)
    for name, value in (("a", a), ("b", b), ("d", d)):
        checks.tma_rows(name, value)
    from .kernels.runner import Runner

    return Runner(problem, a, sfa, b, sfb, d)


def _check(
    a: torch.Tensor, sfa: torch.Tensor, b: torch.Tensor, sfb: torch.Tensor, d: torch.Tensor
) -> GemmProblem:
    for name, value in (("a", a), ("b", b), ("d", d)):
        checks.matrix(name, checks.tensor(name, value))
    for name, value in (("a", a), ("b", b)):
        checks.dtype(name, value, E4M3.torch, "cast it with per_token_cast_to_fp8 or the like")
    checks.dtype("d", d, BF16.torch)
    (m, k), n = a.shape, b.shape[0]
    checks.shape("b", b, (n, k), "A is [M, K] and B is [N, K]")
    checks.shape("d", d, (m, n))
    checks.scale("sfa", sfa, ROW_1X128, (m, k))
    checks.scale("sfb", sfb, BLOCK_128X128, (n, k))
    for name, value in (("sfa", sfa), ("b", b), ("sfb", sfb), ("d", d)):
        checks.same_device(name, value, a.device)
    if a.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"tensors on {a.device}", ["CPU and CUDA devices are served"])
    for name, value in (("a", a), ("b", b), ("d", d)):
        checks.rows_contiguous(name, value)
    return GemmProblem.block_scaled(m, n, k)


def _nothing(*tensors: torch.Tensor) -> None:
    """Do nothing: D has no elements."""


def _zeros(*tensors: torch.Tensor) -> None:
    """Write zeros: a sum over nothing."""
    tensors[-1].zero_()
