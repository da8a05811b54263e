"""What ptxas made of a kernel, read without a GPU: resources from its log, instructions from
the cubin through nvdisasm."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DeepGemmError, UnsupportedError
from .unit import Resources

DISASSEMBLER = "nvidia-cuda-nvdisasm"  # the pip package

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FIELDS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
}
# ptxas leaves these out where they are zero.
_OPTIONAL = {
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
    "barriers": re.compile(r"used (\d+) barriers"),
}


def resources(log: str, entry: str) -> Resources:
    """Return the resources of kernel `entry` from an NVRTC log made with `--ptxas-options=-v`.

    The log is the source because spill counts are nowhere in the cubin. A field the log does not
    give is -1.
    """
    section = _section(log, entry)
    values = {field: _number(pattern, section, -1) for field, pattern in _FIELDS.items()}
    missing = 0 if section else -1
    values |= {field: _number(pattern, section, missing) for field, pattern in _OPTIONAL.items()}
    return Resources(**values)


def _section(log: str, entry: str) -> str:
    parts = _ENTRY.split(log)  # text, entry, text, entry, text, ...
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(entry, "")


def _number(pattern: re.Pattern[str], text: str, default: int) -> int:
    match = pattern.search(text)
    return int(match.group(1)) if match else default


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    address: in bytes from the start of its function.
    opcode: with its modifiers, e.g. "QGMMA.64x128x32.F32.E4M3.E4M3".
    text: predicate, opcode and operands.
    """

    address: int
    opcode: str
    text: str


def disassemble(cubin: bytes) -> list[Instruction]:
    """Return the instructions of every function in a cubin, in order.

    Raises UnsupportedError, naming the pip package, where nvdisasm is not installed. Costs a
    process of about a second for a large kernel.
    """
    with tempfile.TemporaryDirectory(prefix="deep_gemm-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(_nvdisasm()), "-json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeepGemmError(f"nvdisasm failed: {done.stderr.strip()}")
    _, functions = json.loads(done.stdout)
    return [instruction for function in functions for instruction in _instructions(function)]


def between(instructions: Sequence[Instruction], opcode: str) -> list[list[str]]:
    """Return the opcodes between each two consecutive instructions of an opcode, in order.

    opcode: without modifiers, e.g. "QGMMA"; n of them give n - 1 lists.
    """
    gaps: list[list[str]] = []
    for instruction in instructions:
        if instruction.opcode.split(".")[0] == opcode:
            gaps.append([])
        elif gaps:
            gaps[-1].append(instruction.opcode)
    return gaps[:-1]


def _instructions(function: dict[str, Any]) -> list[Instruction]:
    listed = function["sass-instructions"]
    step = function["length"] // max(len(listed), 1)  # 16 bytes on every GPU served
    result = []
    for index, raw in enumerate(listed):
        parts = (raw.get("predicate", ""), raw["opcode"], raw.get("operands", ""))
        text = " ".join(part for part in parts if part)
        result.append(Instruction(index * step, raw["opcode"], text))
    return result


def _nvdisasm() -> Path:
    try:
        files = importlib.metadata.files(DISASSEMBLER) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.stem == "nvdisasm":
            return Path(str(file.locate()))
    raise UnsupportedError("disassembling a kernel", [f"install the pip package {DISASSEMBLER}"])
