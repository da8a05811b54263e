"""matmul(), the one general entry; every named function is a thin wrapper over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import torch

from . import checks, request_groups, settings
from .errors import ArgumentError
from .problem import GemmProblem
from .quant.layout import line_aligned_size
from .quant.scaled_tensor import ScaledTensor
from .request import Options, Tensors, problem_of

Pair: TypeAlias = ScaledTensor | Iterable[torch.Tensor]
Operand: TypeAlias = torch.Tensor | Pair

_MAX_PLANS = 4096
Run: TypeAlias = Callable[[Tensors, float, float], None]
_plans: dict[tuple[object, ...], Run] = {}


def matmul(
    a: Operand,
    b: Operand,
    out: torch.Tensor | None = None,
    *,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    out_dtype: torch.dtype | None = None,
    layout: str = "nt",
    fast_accum: bool = False,
    static_b: bool = False,
) -> torch.Tensor:
    """Return D = alpha * A @ B + beta * C, of FP8, INT8, BF16 or FP16 operands, with their scales.

    Arguments:
        a: A, or (A, sfa), or a ScaledTensor. float8_e4m3fn, float8_e5m2, int8, bfloat16 or float16.
        b: B, or (B, sfb), or a ScaledTensor. FP8 formats may be mixed; other types must be A's.
        out: D [M, N], rows contiguous, written in place; allocated where None.
        c: C [M, N] of D's type, rows contiguous; may be D itself, but not overlap it otherwise.
        alpha, beta: numbers on the host. C is not read where beta is 0.
        out_dtype: where out is None: bfloat16, float16 or float32, or int32 for int8 without
            scales. By default A's type if that has 16 bits, int32 for int8 without scales, else
            bfloat16.
        layout: how A and B are passed, "n" or "t" each: "nt" A [M, K] and B [N, K]; "nn" B as
            [K, N]; "tn" A as [K, M] and B as [K, N]; "tt" A as [K, M].
        fast_accum: leave FP8 sums in the tensor core over all of K, which keeps about 13 bits of
            them, instead of moving them to FP32 every 128 of K. Faster; not with scales along K.
        static_b: the caller's word that no kernel still in flight on the stream writes B or sfb, as
            with the weights of a network. Under programmatic dependent launch (set_pdl) B is then
            read while the kernel before still runs, which saves a microsecond or more of a short
            call; if the word is false, stale values of B are multiplied.

    Scales are float32 device tensors of any strides, never read by the host. With A as [M, K] and B
    as [N, K] these shapes go together (a transposed operand has its scales transposed as well):
        sfa [], [1] or [1, 1] (one), or [M] or [M, 1] (one a row), or none; sfb the same with N;
        sfa [M, ceil(K / 128)] with sfb [ceil(N / 128), ceil(K / 128)]: 1x128 and 128x128 blocks;
        sfa [M, ceil(K / 128)] with sfb [N, ceil(K / 128)]: 1x128 blocks of both.
    BF16 and FP16 take no scales, INT8 none along K.

    Requirements on CUDA (compute capability 9.0): N fills 16 bytes of D, and rows of every matrix
    start at multiples of 16 bytes: addresses, and pitches where there is more than one row
    (quant.align_rows()). Of A and B either dimension may be the contiguous one. 16-bit operands are
    multiplied as they lie; an 8-bit one whose K is not contiguous is first transposed by a kernel
    into a temporary, which costs one read and one write of it.

    FP8 products of 128 along K are summed by the tensor cores, scaled, and added in FP32 in order
    of K (unless fast_accum); BF16 and FP16 are summed in FP32, INT8 exactly in INT32. The result is
    rounded once. Where few tiles would leave SMs idle, parts of K are summed apart and then added,
    always in the same order: equal calls give equal bits, but a row can be split otherwise, and so
    rounded otherwise, in a call with more rows. M = 0 or N = 0 does nothing, K = 0 gives beta * C.
    A NaN in a row of A stays in that row.

    Cost: the first call with new metadata (shapes, strides) makes a launch plan, and compiles a
    kernel (tenths of a second) if none of its configuration is cached; later calls take
    microseconds. Runs on the current stream without synchronizing; can be captured in a CUDA graph
    after one call or `warmup()`. On the CPU the same arithmetic runs in torch.

    Raises ArgumentError (which tensor, which property, wanted, got, remedy), UnsupportedError,
    CompileError or CudaError; all are RuntimeError, and nothing has been written.
    """
    x, sfa = unpack("a", a)
    w, sfb = unpack("b", b)
    if layout != "nt":
        x, sfa, w, sfb = turned(layout, x, sfa, w, sfb)
    if out is None:
        out = _empty_output(x, w, out_dtype, scaled=sfa is not None or sfb is not None)
    elif out_dtype is not None:
        checks.dtype("out", out, out_dtype)
    gemm(Tensors(x, sfa, w, sfb, c, out), Options("auto", fast_accum, static_b), alpha, beta)
    return out


def unpack(name: str, operand: Operand) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (data, scale) of an operand; None for the scale of a tensor alone."""
    return (operand, None) if isinstance(operand, torch.Tensor) else unpack_pair(name, operand)


def unpack_pair(name: str, pair: Operand) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (data, scale) of a tuple, list or ScaledTensor; ArgumentError for anything else."""
    try:
        if isinstance(pair, torch.Tensor):
            raise TypeError
        data, scale = pair
    except (TypeError, ValueError):
        raise ArgumentError(
            name, "form", "a pair (data, scale)", type(pair).__name__, "pass a tuple or a list"
        ) from None
    return data, scale


class Turned(NamedTuple):
    """A as [M, K] and B as [N, K], with their scales."""

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None


def turned(
    layout: str,
    a: torch.Tensor,
    sfa: torch.Tensor | None,
    b: torch.Tensor,
    sfb: torch.Tensor | None,
) -> Turned:
    """Return views of operands passed in `layout` as A [M, K] and B [N, K]; scales turn along."""
    if layout not in ("nt", "nn", "tn", "tt"):
        raise ArgumentError("layout", "value", '"nt", "nn", "tn" or "tt"', repr(layout))
    if layout[0] == "t":
        a, sfa = _transpose("a", a), _transpose_scale(sfa)
    if layout[1] == "n":
        b, sfb = _transpose("b", b), _transpose_scale(sfb)
    return Turned(a, sfa, b, sfb)


def _transpose(name: str, value: torch.Tensor) -> torch.Tensor:
    checks.matrix(name, checks.tensor(name, value))
    return value.t()


def _transpose_scale(scale: torch.Tensor | None) -> torch.Tensor | None:
    return scale.t() if isinstance(scale, torch.Tensor) and scale.dim() == 2 else scale


def _empty_output(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None, scaled: bool
) -> torch.Tensor:
    for name, value in (("a", a), ("b", b)):
        checks.matrix(name, checks.tensor(name, value))
    dtype = dtype or default_dtype(a, scaled)
    return torch.empty(a.shape[0], b.shape[0], dtype=dtype, device=a.device)


def default_dtype(a: torch.Tensor, scaled: bool) -> torch.dtype:
    """Return the type of a product of A, with scales or without, where none is asked for."""
    if a.dtype == torch.int8 and not scaled:
        return torch.int32
    return torch.float16 if a.dtype == torch.float16 else torch.bfloat16


def gemm(tensors: Tensors, options: Options, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Write D = alpha * A @ B^T + beta * C for A [M, K] and B [N, K]; see matmul().

    With options.grouping, shapes are those of request_groups.py; see grouped_matmul().
    """
    a, sfa, b, sfb, c, d, groups = tensors
    if c is not None and beta == 0:
        tensors, c = tensors._replace(c=None), None
    try:
        key = (
            settings.version(), options,
            a.get_device(), a.shape, a.stride(), a.dtype,
            b.get_device(), b.shape, b.stride(), b.dtype,
            d.get_device(), d.shape, d.stride(), d.dtype,
            sfa is None or (sfa.get_device(), sfa.shape, sfa.stride(), sfa.dtype),
            sfb is None or (sfb.get_device(), sfb.shape, sfb.stride(), sfb.dtype),
            c is None or (
                c.get_device(), c.shape, c.stride(), c.dtype,
                c.data_ptr() == d.data_ptr(), beta == 1,
            ),
            alpha == 1,
            groups is None or (groups.get_device(), groups.shape, groups.stride(), groups.dtype),
        )  # fmt: skip
    except AttributeError:
        names = (*Tensors._fields[:-1], request_groups.name_of(options.grouping))
        for name, value in zip(names, tensors, strict=True):
            if value is not None or name in ("a", "b", "d"):
                checks.tensor(name, value)
        raise
    if c is not None:
        if options.grouping is None:
            checks.same_or_apart("c", c, d)
        else:
            request_groups.same_or_apart(c, d)
    run = _plans.get(key)
    if run is None:
        run = _plan(tensors, options, alpha, beta)
        # Plans are kept for CUDA tensors only: get_device() is -1 for every other kind of device.
        if a.is_cuda:
            if len(_plans) >= _MAX_PLANS:
                _plans.clear()
            _plans[key] = run
    run(tensors, alpha, beta)


def _plan(tensors: Tensors, options: Options, alpha: float, beta: float) -> Run:
    """Check everything but addresses, and return what runs such tensors from now on."""
    problem = problem_of(tensors, options, alpha, beta)
    if problem.grouping is not None:
        return _plan_groups(problem, tensors)
    if problem.m == 0 or problem.n == 0:
        return _nothing
    if problem.k == 0:
        return _addend_alone
    if tensors.a.device.type == "cpu":
        return _on_cpu(problem)
    checks.tma_extents(problem.n, problem.d_dtype.bytes)
    for name, value in (("a", tensors.a), ("b", tensors.b)):
        if name not in problem.transposed:
            checks.tma_rows(name, value if _major(problem, name) == "k" else value.t())
    for name, output in (("d", tensors.d), ("c", tensors.c)):
        if output is not None:
            checks.tma_rows(name, output)
    from .kernels.runner import runner

    return runner(problem, tensors)


def _plan_groups(problem: GemmProblem, tensors: Tensors) -> Run:
    """Return what runs a checked grouped problem; checks what only TMA asks."""
    grouping = problem.grouping
    if grouping is None or 0 in (problem.m, problem.n, grouping.groups):
        return _nothing
    if problem.k == 0:
        return _addend_alone
    if tensors.c is not None and tensors.c.data_ptr() != tensors.d.data_ptr():
        run = _plan_groups(problem, tensors._replace(c=tensors.d))
        return lambda t, alpha, beta: run(_with_c_in_d(t), alpha, beta)
    if tensors.a.device.type == "cpu":
        return _on_cpu(problem)
    if "b" in problem.transposed:
        run = _plan_groups(replace(problem, b_major="k"), _with_b_copied(tensors))
        return lambda t, alpha, beta: run(_with_b_copied(t), alpha, beta)
    checks.tma_extents(problem.n, problem.d_dtype.bytes)
    request_groups.tma_stack("d", tensors.d, "k")
    # FP8 buffers of groups along K have no rows of one length.
    if grouping.kind != "k" or problem.a_major == "mn":
        request_groups.tma_stack("a", tensors.a, problem.a_major)
        request_groups.tma_stack("b", tensors.b, problem.b_major)
    from .kernels.runner import runner

    return runner(problem, tensors)


def _with_c_in_d(t: Tensors) -> Tensors:
    """Copy C into D, to which the product is then added; D's address is checked first."""
    if t.d.is_cuda:
        for name, value in (("a", t.a), ("b", t.b), ("d", t.d)):
            checks.address(name, value.data_ptr())
    if t.c is not None:
        t.d.copy_(t.c)
    return t._replace(c=t.d)


def _with_b_copied(t: Tensors) -> Tensors:
    """Return the tensors with B [groups, n, k] copied into rows of whole cache lines."""
    *lead, k = t.b.shape
    pitch = line_aligned_size(k, t.b.element_size())
    copy = torch.empty(*lead, pitch, dtype=t.b.dtype, device=t.b.device)[..., :k]
    return t._replace(b=copy.copy_(t.b))


def _major(problem: GemmProblem, name: str) -> str:
    return problem.a_major if name == "a" else problem.b_major


def _on_cpu(problem: GemmProblem) -> Run:
    from . import reference

    product = reference.gemm if problem.grouping is None else reference.grouped_gemm
    return lambda tensors, alpha, beta: product(problem, tensors, alpha, beta)


def _nothing(tensors: Tensors, alpha: float, beta: float) -> None:
    """Do nothing: D has no elements."""


def _addend_alone(tensors: Tensors, alpha: float, beta: float) -> None:
    """Write beta * C, or zeros into all of D: a sum over nothing."""
    if tensors.c is None:
        tensors.d.zero_()
    else:
        tensors.d.copy_(tensors.c if beta == 1 else tensors.c * beta)
