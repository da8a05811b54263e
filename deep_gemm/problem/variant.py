"""GemmVariant: what of a problem a kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..dtypes import BF16, E4M3, DType
from .choices import GroupKind, Mainloop, Major
from .epilogue import ADD_C, ALPHA, SCALE, EpilogueOp


@dataclass(frozen=True)
class GemmVariant:
    """What a kernel computes, whatever the extents and whatever its tile.

    a, b, d: element types of the operands and the output.
    mainloop: what happens to the tensor core's sums.
    a_major, b_major: which dimension of an operand is contiguous.
    epilogue: the ops between accumulators and store, in order.
    reduces_into_d: the store adds to what D holds.
    group_kind: how tiles find their group.
    """

    a: DType = E4M3
    b: DType = E4M3
    d: DType = BF16
    mainloop: Mainloop = Mainloop.SCALED_1D2D
    a_major: Major = Major.K
    b_major: Major = Major.K
    epilogue: tuple[EpilogueOp, ...] = (ALPHA,)
    reduces_into_d: bool = False
    group_kind: GroupKind = GroupKind.NONE

    @cached_property
    def block_k(self) -> int:
        """Elements of A in a k-block, the 128 bytes of K of a pipeline stage."""
        return 128 // self.a.bytes

    @cached_property
    def is_integer(self) -> bool:
        """Say whether products are summed as INT32."""
        return not self.a.torch.is_floating_point

    @cached_property
    def is_grouped(self) -> bool:
        """Say whether there are groups."""
        return self.group_kind is not GroupKind.NONE

    @cached_property
    def has_epilogue_scales(self) -> bool:
        """Say whether the sum over K is multiplied by a scale of its row and one of its column."""
        return SCALE in self.epilogue

    @cached_property
    def reads_c(self) -> bool:
        """Say whether the epilogue reads C."""
        return ADD_C in self.epilogue

    @cached_property
    def adds_c(self) -> bool:
        """Say whether C is added, by the epilogue or by the store."""
        return self.reads_c or self.reduces_into_d

    @cached_property
    def name(self) -> str:
        """Short name, unique among variants; part of kernel names."""
        parts = [self.a.name, self.b.name, self.d.name, self.mainloop.value]
        parts += [op.name for op in self.epilogue if op.name]
        parts += ["reduce"] if self.reduces_into_d else []
        if Major.MN in (self.a_major, self.b_major):
            parts.append(f"{self.a_major}_{self.b_major}")
        parts += [self.group_kind.value] if self.is_grouped else []
        return "_".join(parts)


FP8_1D2D = GemmVariant()
