"""Launches seen by a fake driver, and tensors that have addresses but no memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deep_gemm.jit import driver, launch
from deep_gemm.kernels import gemm_plan, launch_plan, spec
from deep_gemm.problem import CMode, GemmProblem, Major
from deep_gemm.problem.request import Tensors

from .config_kit import H200
from .fake_driver import ENCODE, LAUNCH, REPLACE, FakeDriver, forget_addresses

FUNCTION = driver.Function(0x1234, "kernel", 0, 168, 0, 0, H200.smem_bytes)
DEVICE = SimpleNamespace(refusal=None)


class Placed:
    """A tensor of the meta device that says it lies at an address of CUDA device 0."""

    device = SimpleNamespace(index=0)

    def __init__(self, address: int, tensor: torch.Tensor):
        self._address, self._tensor = address, tensor

    def data_ptr(self) -> int:
        return self._address

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._tensor[index]


@dataclass
class Launched:
    """A launch that the driver saw: its geometry, and a copy of the parameter."""

    geometry: launch.LaunchConfig
    content: bytes
    stream: int | None

    def params(self, struct: type[ctypes.Structure]) -> Any:
        """Return the parameter as its struct."""
        return struct.from_buffer_copy(self.content)


class Seen:
    """What the fake driver was told: launches, and the addresses that maps were given.

    encoded, patched: addresses by offset of the map in the parameter. fits: clusters that the
    device holds at a time. statuses: of the next launches, 0 where there is none.
    """

    def __init__(self) -> None:
        self.launches: list[Launched] = []
        self.encoded: dict[int, int] = {}
        self.patched: dict[int, int] = {}
        self.fits = 66
        self.statuses: list[int] = []
        self.params_bytes = 0
        self._maps: list[tuple[dict[int, int], int, int]] = []

    def forget_maps(self) -> None:
        """Forget which maps were written."""
        self.encoded.clear()
        self.patched.clear()

    def launch(self, config: int, handle: int, params: int, extra: int | None) -> int:
        """Stand in for cuLaunchKernelEx."""
        base = ctypes.c_void_p.from_address(params).value
        assert base is not None and base % 64 == 0 and handle == FUNCTION.handle
        content = ctypes.string_at(config, ctypes.sizeof(launch.LaunchConfig))
        geometry = launch.LaunchConfig.from_buffer_copy(content)
        found = Launched(geometry, ctypes.string_at(base, self.params_bytes), geometry.hStream)
        self.launches.append(found)
        for kept, place, address in self._maps:
            kept[place - base] = address
        self._maps.clear()
        return self.statuses.pop(0) if self.statuses else 0

    def encode(self, place: int, *arguments: Any) -> int:
        """Stand in for cuTensorMapEncodeTiled."""
        self._maps.append((self.encoded, place, arguments[2]))
        return 0

    def patch(self, place: int, address: int) -> int:
        """Stand in for cuTensorMapReplaceAddress."""
        self._maps.append((self.patched, place, address))
        return 0


def fake_device(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Let plans launch on device 0, an H200 that records what it is told."""
    fake, seen = FakeDriver(monkeypatch), Seen()
    fake.serve("cuLaunchKernelEx", LAUNCH, seen.launch)
    fake.serve("cuTensorMapEncodeTiled", ENCODE, seen.encode)
    fake.serve("cuTensorMapReplaceAddress", REPLACE, seen.patch)
    monkeypatch.setattr(driver, "max_active_clusters", lambda *args: seen.fits)
    monkeypatch.setattr(driver, "device_attributes", lambda index: DEVICE)
    monkeypatch.setattr(spec.KernelSpec, "load", lambda self, index, may_load=True: FUNCTION)
    monkeypatch.setattr(gemm_plan, "from_index", lambda index: H200)
    monkeypatch.setattr(launch_plan, "current_device", lambda: 0)
    monkeypatch.setattr(launch_plan, "current_stream", lambda index: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return seen


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Yield what a fake device 0 was told."""
    yield fake_device(monkeypatch)
    forget_addresses()


# --- tensors --------------------------------------------------------------------------------------


def tensors_of(problem: GemmProblem, **addresses: int) -> Tensors:
    """Return tensors of a dense problem; addresses by name, others are 0x1000 apart.

    C is D where the product is added to it. Rows of C are 8 elements farther apart than D's.
    """
    m, n, k = problem.m, problem.n, problem.k
    found: dict[str, Any] = {
        "a": _matrix(m, k, problem.a_dtype.torch, problem.a_major),
        "sfa": _scales(problem.scale_a, m, k),
        "b": _matrix(n, k, problem.b_dtype.torch, problem.b_major),
        "sfb": _scales(problem.scale_b, n, k),
        "d": _matrix(m, n, problem.d_dtype.torch, Major.K),
    }
    if problem.c_mode is CMode.READ:
        found["c"] = _matrix(m, n + 8, problem.d_dtype.torch, Major.K)[:, :n]
    placed = {
        name: Placed(addresses.get(name, 0x1000 * i), value)
        for i, (name, value) in enumerate(found.items(), 1)
        if value is not None
    }
    c = placed["d"] if problem.c_mode is CMode.REDUCE else placed.get("c")
    sfa, sfb = placed.get("sfa"), placed.get("sfb")
    return Tensors(placed["a"], sfa, placed["b"], sfb, c, placed["d"])  # type: ignore[arg-type]


def _matrix(mn: int, k: int, dtype: torch.dtype, major: Major) -> torch.Tensor:
    if major is Major.MN:
        return torch.empty(k, mn, dtype=dtype, device="meta").t()
    return torch.empty(mn, k, dtype=dtype, device="meta")


def _scales(recipe: Any, mn: int, k: int) -> torch.Tensor | None:
    if recipe is None:
        return None
    rows, along_k = recipe.shape(mn, k)
    return torch.empty(along_k, rows, device="meta").t()
