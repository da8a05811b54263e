"""matmul(), the one general entry; every drop-in name is a thin wrapper over it."""

from __future__ import annotations

import torch

from .dispatch import gemm
from .operands import Operand, default_dtype, to_nt, unpack
from .problem import checks
from .problem.request import Options, Tensors


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
        x, sfa, w, sfb = to_nt(layout, x, sfa, w, sfb)
    if out is None:
        out = _empty_output(x, w, out_dtype, scaled=sfa is not None or sfb is not None)
    elif out_dtype is not None:
        checks.dtype("out", out, out_dtype)
    options = Options(fast_accum=fast_accum, static_b=static_b)
    gemm(Tensors(x, sfa, w, sfb, c, out), options, alpha, beta)
    return out


def _empty_output(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None, scaled: bool
) -> torch.Tensor:
    for name, value in (("a", a), ("b", b)):
        checks.matrix(name, checks.tensor(name, value))
    dtype = dtype or default_dtype(a, scaled)
    return torch.empty(a.shape[0], b.shape[0], dtype=dtype, device=a.device)
