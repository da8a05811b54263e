"""What diagnose, compile and demo share: compile a configuration ahead and tell its resources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from ..config import GemmConfig
from ..jit import Built
from ..kernels import gemm_sm90


@dataclass(frozen=True)
class Ahead:
    """One configuration, its compiled kernel, and the wall seconds until it was there."""

    config: GemmConfig
    built: Built
    seconds: float

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: static, and the dynamic part the kernel is launched with."""
        return (
            max(0, self.built.resources.shared_bytes)
            + gemm_sm90.spec(self.config).launch.smem_bytes
        )

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of registers spilled to local memory; None where the compiler did not say."""
        found = self.built.resources.spill_store_bytes, self.built.resources.spill_load_bytes
        return None if min(found) < 0 else sum(found)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of COLUMNS."""
        return (
            f"{self.seconds:.2f}",
            str(self.built.resources.registers),
            str(self.spill_bytes),
            f"{self.shared_bytes / 1024:.1f}",
        )


COLUMNS = ("ready after s", "registers", "spill bytes", "shared KiB")


def build_config(config: GemmConfig) -> Ahead:
    """Compile one configuration, or find it in the cache; needs no GPU."""
    start = time.perf_counter()
    built = gemm_sm90.spec(config).build()
    return Ahead(config, built, time.perf_counter() - start)


def build_all(configs: Iterable[GemmConfig], jobs: int) -> Iterator[Ahead]:
    """Compile configurations on `jobs` threads, yielding each as it is done.

    Threads suffice: NVRTC works outside the interpreter lock.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for future in as_completed([pool.submit(build_config, c) for c in configs]):
            yield future.result()
