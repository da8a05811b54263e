"""Shared fixtures: a fresh seed each run, shown when a test fails, and the `gpu` marker."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

GPU_TESTS = Path(__file__).parent / "gpu"
SEED_VARIABLE = "DG_TEST_SEED"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and fix the run's seed; workers of one run take the same."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA Hopper GPU")
    os.environ.setdefault(SEED_VARIABLE, str(int.from_bytes(os.urandom(3), "little")))


def pytest_report_header() -> str:
    """Show the seed at the top of the run."""
    return f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/gpu, and skip it where there is no Hopper GPU."""
    gpu_items = [item for item in items if GPU_TESTS in item.path.parents]
    reason = _no_hopper() if gpu_items else ""
    for item in gpu_items:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Print how to draw the same data again under a failed test."""
    report = yield
    if report.failed:
        text = f"run again with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"
        report.sections.append(("seed", text))
    return report


@pytest.fixture(scope="session")
def run_seed() -> int:
    """Return the run's seed."""
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture
def seed(request: pytest.FixtureRequest, run_seed: int) -> int:
    """Return this test's seed: of the run's seed and the test's own name."""
    return zlib.crc32(f"{run_seed} {request.node.nodeid}".encode())


@pytest.fixture
def rng(seed: int) -> torch.Generator:
    """Return a CPU generator with this test's seed."""
    import torch  # not above: the process that hands tests to workers needs none

    return torch.Generator().manual_seed(seed)


def _no_hopper() -> str:
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device"
    capability = torch.cuda.get_device_capability()
    return "" if capability[0] == 9 else f"needs compute capability 9.x, this is {capability}"
