"""DeviceSpec: what choosing a configuration needs to know of a GPU, by name or from a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ..errors import ArgumentError

RESERVED_SMEM = 1024  # bytes of every resident CTA, for the system


@dataclass(frozen=True)
class DeviceSpec:
    """One kind of GPU.

    sm_count: streaming multiprocessors.
    smem_bytes: shared memory one CTA can have.
    hbm_bytes_per_us: device-memory rate that our kernels reach, bytes per microsecond.
    """

    name: str
    sm_count: int
    smem_bytes: int
    hbm_bytes_per_us: float

    def budget(self, cap: int) -> int:
        """Return how many SMs a grid may use under a cap; 0 means no cap."""
        return min(cap or self.sm_count, self.sm_count)

    def smem_per_cta(self, ctas_per_sm: int) -> int:
        """Return the shared memory that each of so many CTAs on an SM can have, in bytes.

        The SM has RESERVED_SMEM more than one CTA can have, and each CTA takes that much of it.
        """
        return (self.smem_bytes + RESERVED_SMEM) // ctas_per_sm // 1024 * 1024 - RESERVED_SMEM


# H200: the rate is fitted with the cost model (NVIDIA H200, CUDA 13.0, 2026-11-29).
# The others: the same chip with the rate scaled by its data sheet's memory; not measured.
H200 = DeviceSpec("h200", 132, 232448, 4.47e6)
H100 = replace(H200, name="h100", hbm_bytes_per_us=2.7e6)
H800 = replace(H200, name="h800", hbm_bytes_per_us=2.7e6)
H20 = replace(H200, name="h20", sm_count=78, hbm_bytes_per_us=3.2e6)

_KNOWN = {spec.name: spec for spec in (H200, H100, H800, H20)}


def by_name(name: str) -> DeviceSpec:
    """Return the spec of a GPU called "h200", "h100", "h800" or "h20"; no GPU is needed.

    Raises ArgumentError for another name.
    """
    try:
        return _KNOWN[name.lower()]
    except KeyError:
        raise ArgumentError("device", "name", f"one of {sorted(_KNOWN)}", repr(name)) from None


@cache
def from_index(index: int) -> DeviceSpec:
    """Return the spec of CUDA device `index`: rates by its name, counts as the driver says.

    Raises CudaError where the driver cannot be asked.
    """
    from ..jit import driver

    attributes = driver.device_attributes(index)
    known = next((s for n, s in _KNOWN.items() if n in attributes.name.lower().split()), None)
    base = known or next((s for n, s in _KNOWN.items() if n in attributes.name.lower()), H200)
    return replace(base, sm_count=attributes.sm_count, smem_bytes=attributes.smem_per_block_optin)
