"""A request for a product: its tensors, and what is asked for besides them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .choices import ScaleChoice
from .epilogue import EpilogueOp
from .grouping import Grouping


class Tensors(NamedTuple):
    """The tensors of D = alpha * A @ B^T + beta * C: A [M, K], B [N, K], C and D [M, N].

    grouped_layout: the int32 tensor of a Grouping, which also says how the other shapes differ.
    epilogue: operands of Options.epilogue, op by op.
    """

    a: torch.Tensor
    sfa: torch.Tensor | None
    b: torch.Tensor
    sfb: torch.Tensor | None
    c: torch.Tensor | None
    d: torch.Tensor
    grouped_layout: torch.Tensor | None = None
    epilogue: tuple[torch.Tensor, ...] = ()


class Options(NamedTuple):
    """What is asked for besides the tensors.

    scales: which recipes their scales may have.
    fast_accum: FP8 sums stay in the tensor core over all of K.
    static_b: no kernel in flight writes B or its scales.
    grouping: None for one product.
    epilogue: ops after alpha, scales and C.
    """

    scales: ScaleChoice = ScaleChoice.AUTO
    fast_accum: bool = False
    static_b: bool = False
    grouping: Grouping | None = None
    epilogue: tuple[EpilogueOp, ...] = ()
