"""Epilogue ops: the table that names each op, its struct in cuda/epilogue/ops.cuh and its operands.

A kernel's epilogue is a chain of them, chosen at compile time. The JIT renders the chain's operands
as one struct, EpilogueParams, from this table; reference/epilogue.py has each op's formula.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

Field = tuple[str, type]


class Scalar(NamedTuple):
    """A float32 operand, passed by value."""

    name: str

    @property
    def fields(self) -> tuple[Field, ...]:
        """Members of EpilogueParams."""
        return ((self.name, ctypes.c_float),)


class TensorOperand(NamedTuple):
    """An operand in device memory, of D's element type.

    axes: its dimensions, "m" and "n"; the last one is contiguous, the first one of two has a pitch.
    """

    name: str
    axes: tuple[str, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Members of EpilogueParams: the address, and of a matrix the pitch of rows in elements."""
        address = (self.name, ctypes.c_void_p)
        pitch = (f"{self.name}_stride", ctypes.c_int64)
        return (address, pitch) if len(self.axes) == 2 else (address,)


class EpilogueOp(NamedTuple):
    """One op of an epilogue.

    name: in kernel names; "" leaves it out.
    cuda: its type in cuda/epilogue/ops.cuh.
    operands: what it reads, in the order of the members of EpilogueParams.
    registers: of a math thread, for its operands.
    """

    name: str
    cuda: str
    operands: tuple[Scalar | TensorOperand, ...] = ()
    registers: int = 0

    @property
    def fields(self) -> tuple[Field, ...]:
        """Members of EpilogueParams, by name and ctypes type."""
        return tuple(field for operand in self.operands for field in operand.fields)

    @property
    def tensors(self) -> tuple[TensorOperand, ...]:
        """Operands in device memory."""
        return tuple(o for o in self.operands if isinstance(o, TensorOperand))


_ALPHA = Scalar("alpha")

# value *= alpha
ALPHA = EpilogueOp("", "epilogue::Alpha", (_ALPHA,))
# value = value * (sfa[m] * alpha) * sfb[n]; the scales come through shared memory
SCALE = EpilogueOp("scale", "epilogue::Scale", (_ALPHA,))
# value += beta * C[m, n]
ADD_C = EpilogueOp(
    "add_c", "epilogue::AddC", (TensorOperand("c", ("m", "n")), Scalar("beta")), registers=20
)

EPILOGUE_OPS = {op.cuda: op for op in (ALPHA, SCALE, ADD_C)}
