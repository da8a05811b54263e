"""Machine code of several kernels through one process of nvdisasm, which takes 0.4 s to start."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deep_gemm.jit import ffma_interleave, sass


def disassemble_all(cubins: Sequence[bytes], folder: Path) -> list[list[sass.Instruction]]:
    """Return what sass.disassemble() returns of each cubin, which has one function.

    Addresses continue from one cubin to the next, in the operands of branches too.
    """
    codes = [_code(cubin) for cubin in cubins]
    path = folder / "code"
    path.write_bytes(b"".join(codes))
    command = [str(sass._nvdisasm()), "-json", "-b", "SM90a", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, (function,) = json.loads(done.stdout)
    instructions = iter(sass._instructions(function))
    return [[next(instructions) for _ in range(len(code) // 16)] for code in codes]


def _code(cubin: bytes) -> bytes:
    ((start, size),) = ffma_interleave._code_sections(cubin)
    return cubin[start : start + size]
