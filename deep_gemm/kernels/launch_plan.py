"""LaunchPlan: a kernel with all that a call does not change; called with tensors, it launches.

A warm call compares addresses with those of the call before, writes what differs and the scalars
into the kernel's parameter, and launches; it formats no text, hashes no source, allocates nothing.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import CudaError
from ..jit import driver, tensor_map
from ..jit.driver import Function
from ..jit.launch import Launcher
from ..jit.tensor_map import TensorMap
from ..layouts import TMA_ALIGNMENT_BYTES
from ..problem import checks
from .current import current_device, current_stream
from .spec import KernelSpec

Step = Callable[[Any], Any]


class MappedTensor(NamedTuple):
    """A tensor that the kernel accesses by TMA.

    place: among the tensors of a call. name: what errors call it.
    maps: each tensor map of it, and the member of the parameter that holds it.
    """

    place: int
    name: str
    maps: tuple[tuple[str, TensorMap], ...]


class Pointer(NamedTuple):
    """A member of the parameter that is a tensor's address.

    place: of the tensor among those of a call. member: dotted where it is a member's member.
    aligned: what errors call it, where it must lie at a multiple of 16 bytes; else "".
    """

    place: int
    member: str
    aligned: str = ""


class Bindings(NamedTuple):
    """What of a call goes where in a kernel's parameter.

    scalars: the member for each scalar of a call; "" for one that the kernel has no use for.
    keep: what must live as long as the plan.
    """

    mapped: tuple[MappedTensor, ...]
    pointers: tuple[Pointer, ...]
    scalars: tuple[str, ...]
    keep: tuple[Any, ...] = ()


class LaunchPlan:
    """One kernel for tensors of one metadata on one device; addresses and scalars may differ."""

    __slots__ = (
        "_addresses",
        "_device",
        "_launcher",
        "_lock",
        "_params",
        "_places",
        "_scalars",
        "_slots",
        "_steps",
        "bindings",
    )

    def __init__(
        self,
        kernel: KernelSpec,
        function: Function,
        grid: int,
        params: tuple[Any, int],
        bindings: Bindings,
        *,
        pdl: bool,
        steps: Sequence[Step] = (),
    ):
        """Prepare the launch.

        function: the kernel on its device. grid: in CTAs. params: the filled parameter, and its
            address. pdl: may start before the kernel ahead of it in the stream is complete.
        steps: each turns the tensors of a call into those of the next step, the last one's being
            the kernel's: copies of operands, for example.
        """
        struct, base = params
        self._params, self.bindings, self._steps = struct, bindings, tuple(steps)
        self._device, self._lock = function.device_index, threading.Lock()
        self._slots = _slots(bindings, kernel.params, base)
        self._places = [slot.place for slot in self._slots]
        self._scalars = [
            (i, _view(ctypes.c_float, kernel.params, base, member))
            for i, member in enumerate(bindings.scalars)
            if member
        ]
        self._addresses: list[int] = []
        self._launcher = Launcher(function, kernel.launch, grid, pdl, base)

    def __call__(self, tensors: Any, *scalars: float) -> None:
        """Launch on the current stream of the tensors' device.

        Raises ArgumentError for an address that TMA cannot take.
        """
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self(tensors, *scalars)
            return
        for step in self._steps:
            tensors = step(tensors)
        addresses = [tensors[place].data_ptr() for place in self._places]
        stream = current_stream(device)
        with self._lock:
            for i, view in self._scalars:
                view.value = scalars[i]
            try:
                if addresses != self._addresses:
                    self._bind(addresses)
                self._launcher.launch(stream)
            except CudaError as error:
                driver.make_current_after(error, device)
                self._bind(addresses)
                self._launcher.launch(stream)

    def _bind(self, addresses: list[int]) -> None:
        """Write the addresses that differ from the last call's into the parameter.

        Raises ArgumentError for an address that is no multiple of 16 bytes and must be one.
        """
        last: Sequence[int | None] = self._addresses or [None] * len(addresses)
        self._addresses = []  # unknown until all is written
        for slot, address, before in zip(self._slots, addresses, last, strict=True):
            if address != before:
                _, aligned, view, maps = slot
                if aligned and address % TMA_ALIGNMENT_BYTES:
                    checks.address(aligned, address)  # raises
                if view is not None:
                    view.value = address
                for described, place in maps:
                    if before is None:
                        described.encode(address, place)
                    else:
                        tensor_map.patch(place, address)
        self._addresses = addresses


class _Slot(NamedTuple):
    """Where the address of a call's tensor goes: into a member, or into tensor maps.

    aligned: what errors call the tensor where it must lie at a multiple of 16 bytes; else "".
    view: the member. maps: each tensor map with its address in the parameter.
    """

    place: int
    aligned: str
    view: Any
    maps: list[tuple[TensorMap, int]]


def _slots(bindings: Bindings, struct: type[ctypes.Structure], base: int) -> list[_Slot]:
    """Return the slots of a parameter at `base`, those of tensor maps first."""
    slots = []
    for mapped in bindings.mapped:
        maps = [(described, base + offset_of(struct, member)) for member, described in mapped.maps]
        slots.append(_Slot(mapped.place, mapped.name, None, maps))
    for pointer in bindings.pointers:
        view = _view(ctypes.c_uint64, struct, base, pointer.member)
        slots.append(_Slot(pointer.place, pointer.aligned, view, []))
    return slots


def _view(kind: Any, struct: type[ctypes.Structure], base: int, member: str) -> Any:
    """Return a member of a struct at `base` as an object to assign to."""
    return kind.from_address(base + offset_of(struct, member))


def offset_of(struct: type[ctypes.Structure], member: str) -> int:
    """Return the offset of a member; dotted: of a member's member."""
    offset: int = 0
    kind: Any = struct
    for name in member.split("."):
        offset += getattr(kind, name).offset
        kind = dict(kind._fields_)[name]
    return offset
