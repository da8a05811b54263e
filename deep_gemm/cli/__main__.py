"""Run the command line from a source tree: python -m deep_gemm.cli."""

from __future__ import annotations

from . import main

main()
