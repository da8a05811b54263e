"""Interleave long runs of FFMA in a finished cubin with chances for other warps to issue.

Promotion adds a scaled partial sum to its total in dozens of consecutive FFMA. Each keeps the scale
in the operand cache for the next (its reuse flag), and by that asks the scheduler to stay with the
warp. The pass makes every other one yield instead:

    before   FFMA.reuse  FFMA.reuse  FFMA.reuse  FFMA.reuse
    after    FFMA.yield  FFMA.reuse  FFMA.yield  FFMA.reuse

ptxas writes the same pattern by itself into the loops of kernels for more than 256 threads an SM
(NVRTC 13.0); what alternates already stays as it is.

An instruction of sm_70 and later has 128 bits, two little-endian words. The upper word holds what
the pass reads and writes, the lower one the opcode:

| word | bits | field |
|---|---|---|
| lower | 0-11 | opcode and operand form; 0x223 is FFMA with three registers |
| upper | 45 | stay: where cleared, the scheduler may turn to another warp (the yield hint) |
| upper | 58-60 | reuse: keep source A, B, C in the operand cache for the next instruction |

It is safe because it only takes away. A cleared reuse flag means that the next instruction reads
the register itself; a cleared stay bit changes when instructions issue, not which. No reuse flag
is ever set, and none is left on an instruction that yields, which could lose the operand. Stall
counts, barriers and everything else keep their bits.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import DeepGemmError

VERSION = 1
MIN_RUN = 8  # consecutive FFMA that make a run; a tile of 16 columns is promoted with 8

_OPCODE, _FFMA = 0xFFF, 0x223
_STAY = 1 << 45
_REUSE = 0b111 << 58

_INSTRUCTION = struct.Struct("<QQ")
_CONTROL = struct.Struct("<Q")
_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")
_ELF_64_LITTLE, _MACHINE_CUDA = b"\x7fELF\2\1", 190


@dataclass(frozen=True)
class Report:
    """What the runs of FFMA of a cubin look like.

    runs, ffmas: runs of at least MIN_RUN, and the instructions in them.
    reusing, yielding: instructions with a reuse flag, and with the yield hint.
    missing: instructions that interleave() would make yield.
    """

    runs: int
    ffmas: int
    reusing: int
    yielding: int
    missing: int


def interleave(cubin: bytes) -> bytes:
    """Return the cubin with its runs of FFMA interleaved; a second application changes nothing.

    Raises DeepGemmError for what is not a whole cubin: it comes straight from the compiler, and
    passed on untouched it would be kept under the key of a cubin that the pass has seen. A cubin
    without such runs is returned as it is. Costs about a millisecond.
    """
    result = bytearray(cubin)
    for start, controls in _runs(cubin):
        for i, control in enumerate(_interleaved(controls)):
            _CONTROL.pack_into(result, start + i * _INSTRUCTION.size + 8, control)
    return bytes(result)


def report(cubin: bytes) -> Report:
    """Return what the runs of a cubin look like; raises as interleave() does."""
    runs = [controls for _, controls in _runs(cubin)]
    controls = list(itertools.chain.from_iterable(runs))
    after = itertools.chain.from_iterable(map(_interleaved, runs))
    return Report(
        runs=len(runs),
        ffmas=len(controls),
        reusing=sum(1 for control in controls if control & _REUSE),
        yielding=sum(1 for control in controls if not control & _STAY),
        missing=sum(1 for old, new in zip(controls, after, strict=True) if old != new),
    )


def is_interleaved(cubin: bytes) -> bool:
    """Return whether interleave() has nothing to do; true also where there is no run."""
    return report(cubin).missing == 0


def _interleaved(controls: Sequence[int]) -> list[int]:
    """Return a run's upper words where an FFMA whose neighbours stay yields and reuses nothing."""
    result = list(controls)
    for i, control in enumerate(result):
        if all(word & _STAY for word in result[max(i - 1, 0) : i + 2]):
            result[i] = control & ~(_REUSE | _STAY)
    return result


def _runs(cubin: bytes) -> Iterator[tuple[int, list[int]]]:
    """Yield where each run of FFMA starts in the file, and the upper words of its instructions."""
    for start, size in _code_sections(cubin):
        instructions = _INSTRUCTION.iter_unpack(cubin[start : start + size])
        for is_ffma, group in itertools.groupby(instructions, lambda i: i[0] & _OPCODE == _FFMA):
            controls = [control for _, control in group]
            if is_ffma and len(controls) >= MIN_RUN:
                yield start, controls
            start += len(controls) * _INSTRUCTION.size


def _code_sections(cubin: bytes) -> list[tuple[int, int]]:
    """Return offset and size of the sections .text.<function> of an ELF file for the GPU."""
    if not cubin.startswith(_ELF_64_LITTLE):
        raise DeepGemmError("not a cubin: no 64-bit little-endian ELF file")
    try:
        return _read_sections(cubin)
    except (struct.error, IndexError, ValueError) as error:
        raise DeepGemmError(f"damaged cubin: {error}") from error


def _read_sections(cubin: bytes) -> list[tuple[int, int]]:
    header = _ELF_HEADER.unpack_from(cubin)
    machine, segments_at, sections_at = header[2], header[5], header[6]
    segment_bytes, segments, section_bytes, sections, names_index = header[9:]
    if machine != _MACHINE_CUDA:
        raise DeepGemmError(f"not a cubin: ELF machine {machine}, not {_MACHINE_CUDA}")
    end = max(segments_at + segment_bytes * segments, sections_at + section_bytes * sections)
    if end > len(cubin):
        raise ValueError(f"{len(cubin)} bytes where its tables end at {end}")
    table = [
        _ELF_SECTION.unpack_from(cubin, sections_at + i * section_bytes) for i in range(sections)
    ]
    names_at = table[names_index][4]
    found = []
    for name, _, _, _, offset, size, *_ in table:
        if cubin.startswith(b".text.", names_at + name):
            if offset + size > len(cubin) or size % _INSTRUCTION.size:
                raise ValueError(f"code of {size} bytes at {offset} is cut short")
            found.append((offset, size))
    return found
