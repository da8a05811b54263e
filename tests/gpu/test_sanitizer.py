"""compute-sanitizer over a ragged sample of calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("sanitizer_sample.py")
ROOT = Path(__file__).resolve().parents[2]
FOUND_ERRORS = 97
TOOLKIT = "/usr/local/cuda/bin"
# cuda-bindings asks the driver for functions that only newer drivers have; that is no error.
TOOLS = {"memcheck": ("--report-api-errors", "no"), "synccheck": ()}


def find_tool() -> str | None:
    """Return the path of compute-sanitizer, on PATH or where the toolkit puts it."""
    path = os.pathsep.join((os.environ.get("PATH", ""), TOOLKIT))
    return shutil.which("compute-sanitizer", path=path)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_sanitizer_finds_nothing_in_a_ragged_sample(tool):
    path = find_tool()
    if path is None:
        pytest.skip("compute-sanitizer is not installed")
    command = [path, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), *TOOLS[tool]]
    # Without its cache torch gives each tensor its own allocation, so that overruns show.
    environment = os.environ | {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    }
    done = subprocess.run(
        [*command, sys.executable, str(SAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    output = done.stdout + done.stderr
    if "Device not supported" in output:
        pytest.skip("compute-sanitizer does not support this device or its virtualization")
    assert done.returncode == 0, output[-6000:]
    assert re.search(r"ERROR SUMMARY: 0 errors", output), output[-6000:]
    calls = re.search(r"^calls: (\d+)$", output, re.MULTILINE)
    assert calls and int(calls[1]) > 20, output[-6000:]
