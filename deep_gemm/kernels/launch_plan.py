"""LaunchPlan: a kernel with all that a call does not change; called with tensors, it launches.

A warm call writes addresses and scalars into the kernel's parameter and launches; it formats no
text, hashes no source and allocates nothing.
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
    absent: the address where the tensor is None.
    aligned: what errors call it, where it must lie at a multiple of 16 bytes; else "".
    """

    place: int
    member: str
    absent: int = 0
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
        "_mapped",
        "_params",
        "_pointers",
        "_scalars",
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
        self._mapped = [
            (
                mapped.place,
                [(described, base + offset_of(kernel.params, m)) for m, described in mapped.maps],
            )
            for mapped in bindings.mapped
        ]
        self._pointers = [
            (
                pointer.place,
                _view(ctypes.c_uint64, kernel.params, base, pointer.member),
                pointer.absent,
                TMA_ALIGNMENT_BYTES - 1 if pointer.aligned else 0,
            )
            for pointer in bindings.pointers
        ]
        self._scalars = [
            (i, _view(ctypes.c_float, kernel.params, base, member))
            for i, member in enumerate(bindings.scalars)
            if member
        ]
        self._addresses: list[int] | None = None
        self._launcher = Launcher(function, kernel.launch, grid, pdl, base)

    def __call__(self, tensors: Any, *scalars: float) -> None:
        """Launch on the current stream of the tensors' device.

        Raises ArgumentError for an address that TMA cannot take.
        """
        for step in self._steps:
            tensors = step(tensors)
        device = self._device
        if current_device() != device:
            with torch.cuda.device(device):
                self._launch(tensors, scalars)
        else:
            self._launch(tensors, scalars)

    def _launch(self, tensors: Any, scalars: tuple[float, ...]) -> None:
        mapped = [tensors[index].data_ptr() for index, _ in self._mapped]
        bits = 0
        for address in mapped:
            bits |= address
        stream = current_stream(self._device)
        with self._lock:
            for index, view, absent, mask in self._pointers:
                tensor = tensors[index]
                address = absent if tensor is None else tensor.data_ptr()
                bits |= address & mask
                view.value = address
            if bits % TMA_ALIGNMENT_BYTES:
                self._check_alignment(tensors)
            for i, view in self._scalars:
                view.value = scalars[i]
            try:
                self._point_maps(mapped)
                self._launcher.launch(stream)
            except CudaError as error:
                driver.make_current_after(error, self._device)
                self._point_maps(mapped)
                self._launcher.launch(stream)

    def _check_alignment(self, tensors: Any) -> None:
        """Raise ArgumentError for the first tensor that does not lie at a multiple of 16 bytes."""
        named = [(mapped.place, mapped.name) for mapped in self.bindings.mapped]
        named += [(pointer.place, pointer.aligned) for pointer in self.bindings.pointers]
        for index, name in named:
            if name and tensors[index] is not None:
                checks.address(name, tensors[index].data_ptr())

    def _point_maps(self, wanted: list[int]) -> None:
        """Point the tensor maps at the mapped tensors; those that did not move stay as they are."""
        last = self._addresses
        if last is None:
            for (_, maps), address in zip(self._mapped, wanted, strict=True):
                for described, place in maps:
                    described.encode(address, place)
        elif last != wanted:
            for (_, maps), address, before in zip(self._mapped, wanted, last, strict=True):
                if address != before:
                    for _, place in maps:
                        tensor_map.patch(place, address)
        self._addresses = wanted


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
