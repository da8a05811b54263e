"""KernelSpec: one declaration of a kernel, shared by the GEMM, the casts and all other kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import UnsupportedError
from ..jit import build, driver, key_of, tensor_map
from ..jit.driver import Function
from ..jit.launch import LaunchShape
from ..jit.source import Constant, params_bytes, render
from ..jit.unit import OPTIONS, Built, TranslationUnit

Field = tuple[str, type]


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """One kernel: what its source is made of, how it is launched, and what it costs.

    A spec is its own key, so each is made once.

    name: the entry point's; it heads the cache folder and compile errors.
    header: under cuda/, the header that defines `function`, a template over <Config>.
    constants: members of Config, by name.
    params: the host's struct of the one parameter; params_type: what device code calls it.
    launch: its CTAs.
    cost: returns predicted microseconds; its arguments are those of the kernel's kind.
    structs: further structs that Config names, by their members.
    """

    name: str
    header: str
    function: str
    constants: tuple[tuple[str, Constant], ...]
    params: type[ctypes.Structure]
    params_type: str
    launch: LaunchShape
    cost: Callable[..., float]
    structs: tuple[tuple[str, tuple[Field, ...]], ...] = field(default=())

    @cached_property
    def unit(self) -> TranslationUnit:
        """What to compile."""
        source = render(
            header=f"deep_gemm/{self.header}",
            function=self.function,
            entry=self.name,
            constants=dict(self.constants),
            params=self.params,
            params_type=self.params_type,
            launch_bounds=(self.launch.threads, self.launch.ctas_per_sm),
            structs=dict(self.structs),
        )
        return TranslationUnit(name=self.name, entry=self.name, source=source, options=OPTIONS)

    def build(self) -> Built:
        """Return the compiled kernel, from the cache or from NVRTC; needs no GPU."""
        return build(self.unit)

    def load(self, device_index: int, may_load: bool = True) -> Function:
        """Return the kernel on a device, compiled and loaded where it was not yet.

        may_load: False while a graph is being captured, when a module cannot be loaded; a kernel
            that is not there yet is then an UnsupportedError.
        """
        if not may_load and not driver.is_loaded(key_of(self.unit), device_index):
            reason = f"kernel {self.name} is not loaded yet: call once, or warmup(), before capture"
            raise UnsupportedError("a first call inside a CUDA graph capture", [reason])
        return driver.load(self.build(), device_index)

    def resident_clusters(self, function: Function) -> int:
        """Return how many clusters of its CTAs fit the device at once."""
        launch = self.launch
        return driver.max_active_clusters(
            function, launch.cluster, launch.threads, launch.smem_bytes
        )

    def new_params(self) -> tuple[Any, int]:
        """Return a parameter, all zeros, where a tensor map may begin, and its address."""
        return tensor_map.aligned(self.params, params_bytes(self.params))
