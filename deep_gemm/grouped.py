"""Grouped products: grouped_matmul() of groups of rows, k_grouped_matmul() of groups along K."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import SupportsIndex

import torch

from .dispatch import gemm
from .errors import ArgumentError, UnsupportedError
from .layouts import align
from .operands import Operand, default_dtype, stack_to_nt, unpack
from .problem import Grouping, GroupKind, ScaleChoice, checks
from .problem.request import Options, Tensors
from .problem.scale_recipe import PER_TENSOR
from .quant.scaled_tensor import ScaledTensor


def grouped_matmul(
    a: Operand,
    b: Operand,
    out: torch.Tensor | None = None,
    *,
    labels: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    alignment: int | None = None,
    expected_m: int | None = None,
    zero_padding: bool = False,
    out_dtype: torch.dtype | None = None,
    layout: str = "nt",
    fast_accum: bool = False,
    static_b: bool = False,
) -> torch.Tensor:
    """Return D, whose rows are those of A times the B of their group, as in a mixture of experts.

    Which rows are whose, an int32 tensor on A's device says, at most one of:
        labels [M]: A [M, K] in blocks of `alignment` rows. The first row of a block names the group
            of all of it; below 0, or G and above, the block is skipped and its rows of D stay as
            they are. All other rows are written: a half of 64 rows whose own first label is below 0
            with zeros, else computed, padding rows too. M need not be a multiple of the alignment.
        offsets [G]: A [M, K]; each group's end. A group begins where the one before ends, rounded
            up to a multiple of `alignment`, the first at 0. A group that ends where it begins, or
            before, has no rows; ends beyond M are cut to M. Rows of D outside of groups stay as
            they are (see zero_padding).
        counts [G]: A [G, M, K]; how many rows of each are valid, cut to 0..M. The other rows of D
            stay as they are.
        None of them: A [G, M, K], all valid.

    Arguments:
        a: A, or (A, sfa), or a ScaledTensor, of the types that matmul() takes; K is contiguous.
        b: B [G, N, K], the same.
        out: D [M, N] for labels and offsets, else [G, M, N], rows contiguous, written in place;
            allocated where None, and what is not written is then not initialized.
        alignment: labels: 64 or 128 (None: 128). offsets: any (None: 1, so no padding is needed).
        expected_m: rows to expect of a group that has any; any int. Only speed depends on it.
        zero_padding: offsets: zeros for the rows of D that the alignment puts behind a group
            that is not empty, up to M.
        out_dtype, fast_accum: as of matmul().
        static_b: as of matmul(), but nothing is read early: the counts come first.
        layout: "nt", or "nn" for B as [G, K, N] with its scales transposed as well.

    Scales are float32 of any strides. sfa of an A [M, K] is one of matmul()'s; of an A [G, M, K] it
    is [], [1] or [G] (one), [G, M] or [G, M, 1] (one a row), or [G, M, ceil(K / 128)]. sfb is [],
    [1] or [G], [G, N] or [G, N, 1], [G, ceil(N / 128), ceil(K / 128)], or [G, N, ceil(K / 128)].
    What goes together and which types take scales is as with matmul().

    Requirements on CUDA as matmul()'s: N fills 16 bytes of D; addresses, rows and groups lie at
    multiples of 16 bytes. Groups of a stack may lie between each other's rows, but not overlap. A B
    of 16 bits may have N contiguous in place of K; an 8-bit one is first copied, which costs one
    read and one write of all of B.

    The values are matmul()'s. A NaN in a row of A, padding too, stays in that row. The int32 tensor
    is read on the device alone: nothing waits for it, and time follows the rows that it names.
    M = 0, N = 0 or G = 0 does nothing; K = 0 writes zeros into all of D.

    Cost of first and of later calls as matmul()'s; a call can be captured in a CUDA graph after one
    call or `warmup()`, and replayed with other contents of the int32 tensor.

    Raises ArgumentError, UnsupportedError, CompileError or CudaError as matmul(); nothing has been
    written then.
    """
    kind, grouped_layout = _kind_of(labels, offsets, counts)
    x, sfa = _unpack("a", a)
    w, sfb = _unpack("b", b)
    w, sfb = stack_to_nt(layout, w, sfb)
    if out is None:
        dtype = out_dtype or default_dtype(x, sfa is not None or sfb is not None)
        out = torch.empty(*x.shape[:-1], w.shape[-2], dtype=dtype, device=x.device)
    elif out_dtype is not None:
        checks.dtype("out", out, out_dtype)
    if alignment is None:
        alignment = 128 if kind is GroupKind.LABELS else 1
    options = group_options(
        ScaleChoice.AUTO, kind, w.shape[0], alignment=alignment,
        expected_m=bucketed(expected_m, x.shape[-2]), zero_padding=zero_padding,
        fast_accum=fast_accum, static_b=static_b,
    )  # fmt: skip
    gemm(Tensors(x, sfa, w, sfb, None, out, grouped_layout), options)
    return out


def _kind_of(
    labels: torch.Tensor | None, offsets: torch.Tensor | None, counts: torch.Tensor | None
) -> tuple[GroupKind, torch.Tensor | None]:
    layouts = (
        (GroupKind.LABELS, labels), (GroupKind.OFFSETS, offsets), (GroupKind.MASKED, counts)
    )  # fmt: skip
    found = [(kind, value) for kind, value in layouts if value is not None]
    if len(found) > 1:
        raise ArgumentError("labels, offsets, counts", "presence", "at most one", len(found))
    return found[0] if found else (GroupKind.BATCHED, None)


def _unpack(name: str, operand: Operand) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (data, scale); scales of one for each matrix of a ScaledTensor as [G]."""
    data, scale = unpack(name, operand)
    wanted = "[groups, rows, columns]" if name == "b" else "[rows, K] or [groups, rows, K]"
    if checks.tensor(name, data).dim() not in ((3,) if name == "b" else (2, 3)):
        raise ArgumentError(name, "shape", wanted, tuple(data.shape))
    if isinstance(operand, ScaledTensor) and operand.recipe == PER_TENSOR and data.dim() == 3:
        return data, operand.scale[:, 0, 0]
    return data, scale


@lru_cache(maxsize=4096, typed=True)
def group_options(
    scales: ScaleChoice,
    kind: GroupKind,
    num_groups: int,
    *,
    alignment: int = 1,
    expected_m: int = 0,
    zero_padding: bool = False,
    fast_accum: bool = False,
    static_b: bool = False,
) -> Options:
    """Return the options of a grouped product, the same object for equal arguments."""
    # Without alignment there are no rows between groups.
    padded = zero_padding and (kind is not GroupKind.OFFSETS or alignment != 1)
    grouping = Grouping(kind, num_groups, alignment, expected_m, padded)
    return Options(scales, fast_accum, static_b, grouping)


def bucketed(expected: SupportsIndex | None, rows: int) -> int:
    """Return a hint of rows, of which there are few values, so that few launch plans arise.

    It is cut to 0..rows, and rounded up to a multiple of 8, or to one of four values an octave.
    """
    if expected is None:
        return 0
    try:
        if isinstance(expected, torch.Tensor):
            raise TypeError
        cut = max(0, min(operator.index(expected), rows))
    except TypeError:
        remedy = "it is a hint, known to the host"
        raise ArgumentError("expected_m", "type", "int", type(expected).__name__, remedy) from None
    step = max(8, 1 << (cut - 1).bit_length() >> 3)
    return align(cut, step)


def k_grouped_matmul(
    a: Operand,
    b: Operand,
    out: torch.Tensor,
    *,
    extents: torch.Tensor,
    total_k: int | None = None,
    c: torch.Tensor | None = None,
    layout: str | None = None,
) -> torch.Tensor:
    """Return D, each D[i] = C[i] + A_i @ B_i of a group along K, as gradients of experts' weights.

    Arguments:
        a: layout "tn": bfloat16 or float16 [K, M], of which group i has the next k_i rows.
            layout "nt": (FP8, sfa), a contiguous buffer of any shape with M * K elements: the
            [M, k_i] of the groups one after another, each with its K contiguous.
        b: the same with N in place of M, and A's type; the FP8 formats may be mixed.
        out: D float32 [G, M, N], rows contiguous, written in place.
        extents: int32 [G] on the same device: k_i, 0 allowed anywhere. Multiples of 16 where
            operands are FP8, which is not checked. Their sum is at most K, and what lies behind it
            is not used.
        total_k: K, by which the sizes of A and B are checked; None takes A's.
        c: float32 [G, M, N], added; may be D itself, else it is first copied into D. None adds
            nothing.
        layout: "nt" or "tn"; None takes what goes with A's type.

    sfa is [M, S] and sfb [N, S], float32 of any strides: scales of 1x128 along the K of each group,
    ceil(k_i / 128) columns for each in turn, so S is at least the sum of those.

    Products are summed as matmul() does, group by group. A group with k_i = 0 gives C, or zeros;
    so does K = 0. M = 0, N = 0 or G = 0 does nothing. `extents` is read on the device alone: a call
    can be captured in a CUDA graph and replayed with other extents. Requirements on CUDA: N is a
    multiple of 4; addresses, and rows of 16-bit operands and of D, at multiples of 16 bytes.

    Cost as matmul(); C that is not D costs one read and one write more.

    Raises ArgumentError, UnsupportedError, CompileError or CudaError, and nothing has been written.
    """
    x, sfa = unpack("a", a)
    w, sfb = unpack("b", b)
    if checks.tensor("out", out).dim() != 3:
        raise ArgumentError("out", "shape", "[groups, M, N]", tuple(out.shape))
    groups, m, n = out.shape
    is_8bit = checks.tensor("a", x).element_size() == 1
    _check_layout(layout, is_8bit)
    if total_k is None:
        total_k = _total(x, m, w, n) if is_8bit else x.shape[0]
    lines = _flat_as_rows if is_8bit else _columns_as_rows
    tensors = Tensors(
        lines("a", x, m, total_k), sfa, lines("b", w, n, total_k), sfb, c, out, extents
    )
    scales = ScaleChoice.SCALED_1D1D if is_8bit else ScaleChoice.AUTO
    gemm(tensors, group_options(scales, GroupKind.ALONG_K, groups))
    return out


def _check_layout(layout: str | None, is_8bit: bool) -> None:
    served = "nt" if is_8bit else "tn"
    if layout is None or layout == served:
        return
    if layout not in ("nt", "tn"):
        raise ArgumentError("layout", "value", '"nt" or "tn"', repr(layout))
    reason = "8-bit operands are passed as nt, 16-bit ones as tn"
    raise UnsupportedError(f"groups along K in layout {layout}", [reason])


def _total(x: torch.Tensor, m: int, w: torch.Tensor, n: int) -> int:
    """Return the K of buffers of M * K and N * K elements."""
    if m:
        return x.numel() // m
    return checks.tensor("b", w).numel() // n if n else 0


def _flat_as_rows(name: str, buffer: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    if checks.tensor(name, buffer).numel() != rows * k:
        remedy = f"{rows} rows times the sum of the extents, {k}"
        raise ArgumentError(name, "number of elements", rows * k, buffer.numel(), remedy)
    if not buffer.is_contiguous():
        raise ArgumentError(
            name, "strides", "contiguous", buffer.stride(), f"pass {name}.contiguous()"
        )
    return buffer.view(rows, k)


def _columns_as_rows(name: str, matrix: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    checks.matrix(name, checks.tensor(name, matrix))
    checks.shape(name, matrix, (k, rows), "the sum of the extents, and the rows of its side of D")
    return matrix.t()
