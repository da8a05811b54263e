"""Text of a kernel's translation unit: its wgmma wrappers, constants, parameter and entry point."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

WGMMA_M = 64
WGMMA_K_BYTES = 32  # of each operand, per instruction
_CUDA_TYPES: dict[type, str] = {
    ctypes.c_float: "float",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_void_p: "const void*",
}


@dataclass(frozen=True)
class MmaShape:
    """A warpgroup MMA of m64, n and 32 bytes of k, both operands in shared memory.

    a_type, b_type: what wgmma calls the operands' types.
    a_transposed, b_transposed: the operand is MN-major, not K-major; 16-bit types only.
    """

    n: int
    a_type: str
    b_type: str
    a_transposed: bool = False
    b_transposed: bool = False

    @cached_property
    def is_integer(self) -> bool:
        """Say whether accumulators are INT32; else they are FP32."""
        return self.a_type == "s8"

    @cached_property
    def k(self) -> int:
        """Elements of K of one instruction."""
        return WGMMA_K_BYTES * 8 // (16 if self.a_type in ("bf16", "f16") else 8)

    @cached_property
    def name(self) -> str:
        """Name of the struct that wraps it."""
        majors = "".join("t" if t else "n" for t in (self.a_transposed, self.b_transposed))
        suffix = f"_{majors}" if "t" in majors else ""
        return f"Wgmma{WGMMA_M}x{self.n}x{self.k}_{self.a_type}_{self.b_type}{suffix}"

    @cached_property
    def instruction(self) -> str:
        """The instruction, without operands."""
        accumulators = "s32" if self.is_integer else "f32"
        return (
            f"wgmma.mma_async.sync.aligned.m{WGMMA_M}n{self.n}k{self.k}."
            f"{accumulators}.{self.a_type}.{self.b_type}"
        )

    @cached_property
    def modifiers(self) -> str:
        """What follows the predicate: signs of floats, and the majors of 16-bit operands."""
        if self.is_integer:
            return ""
        if self.a_type in ("bf16", "f16"):
            return f", 1, 1, {int(self.a_transposed)}, {int(self.b_transposed)}"
        return ", 1, 1"


class CudaName(NamedTuple):
    """The value of a constant that is no number: `cuda` is what device code calls it."""

    cuda: str
    is_type: bool = False


Constant = int | CudaName | MmaShape


def render(
    *,
    header: str,
    function: str,
    entry: str,
    constants: Mapping[str, Constant],
    params: type[ctypes.Structure],
    params_type: str,
    launch_bounds: tuple[int, int],
    structs: Mapping[str, Sequence[tuple[str, type]]] | None = None,
) -> str:
    """Return the source of one kernel.

    header: the include that defines `function`, a device function template over <Config>.
    constants: members of Config by name: numbers, enumerators, types, and MMAs to be wrapped.
    params: the host's struct of the kernel's one parameter, `params_type` in device code; the
        source asserts that both have the same members at the same offsets.
    launch_bounds: threads of a CTA, and CTAs that are to fit an SM, which caps the registers.
    structs: further structs that Config names, by their members.
    """
    mmas = {value for value in constants.values() if isinstance(value, MmaShape)}
    wrappers = "\n".join(render_mma(mma) for mma in sorted(mmas, key=lambda mma: mma.name))
    rendered = "\n".join(_struct(name, fields) for name, fields in (structs or {}).items())
    members = "\n".join(_member(name, value) for name, value in constants.items())
    asserts = "\n".join(_asserts(params))
    return f"""#include "{header}"

namespace deep_gemm {{

{wrappers}{rendered}
struct Config {{
{members}
}};

using Params = {params_type};
{asserts}

}}  // namespace deep_gemm

extern "C" __global__ void __launch_bounds__({launch_bounds[0]}, {launch_bounds[1]})
{entry}(const __grid_constant__ deep_gemm::Params params) {{
    deep_gemm::{function}<deep_gemm::Config>(params);
}}
"""


def _member(name: str, value: Constant) -> str:
    if isinstance(value, MmaShape):
        return f"    using {name} = {value.name};"
    if isinstance(value, CudaName) and value.is_type:
        return f"    using {name} = {value.cuda};"
    if isinstance(value, CudaName):
        return f"    static constexpr auto {name} = {value.cuda};"
    return f"    static constexpr uint32_t {name} = {value};"


def _struct(name: str, fields: Sequence[tuple[str, type]]) -> str:
    members = "\n".join(f"    {_CUDA_TYPES[kind]} {field};" for field, kind in fields)
    return f"struct {name} {{\n{members}\n}};\n" if fields else f"struct {name} {{}};\n"


def _asserts(params: type[ctypes.Structure]) -> Iterator[str]:
    message = '"the host has another parameter"'
    for name, offset in _offsets(params):
        yield f"static_assert(DG_OFFSETOF(Params, {name}) == {offset}, {message});"
    yield f"static_assert(sizeof(Params) == {params_bytes(params)}, {message});"


def _offsets(params: type[ctypes.Structure]) -> Iterator[tuple[str, int]]:
    """Yield each member, also of members that are structs, and its offset."""
    for name, kind in params._fields_:  # type: ignore[misc]
        offset = getattr(params, name).offset
        yield name, offset
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
            yield from ((f"{name}.{inner}", offset + at) for inner, at in _offsets(kind))


def params_bytes(params: type[ctypes.Structure]) -> int:
    """Return the size of a parameter on the device: a struct of tensor maps is aligned as they."""
    alignment = getattr(params, "ALIGNMENT", 1)
    return -(-ctypes.sizeof(params) // alignment) * alignment


def render_mma(mma: MmaShape) -> str:
    """Return a struct, whose issue() is the wgmma of this shape (PTX ISA, "wgmma.mma_async")."""
    count = mma.n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    letter, accum = ("r", "int") if mma.is_integer else ("f", "float")
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    return f"""struct {mma.name} {{
    using Accum = {accum};

    // d = a . b, plus d itself where `accumulate` is true.
    static __device__ __forceinline__ void issue({accum} (&d)[{count}], uint64_t a, uint64_t b,
                                                 bool accumulate) {{
        asm volatile(
            "{{\\n"
            ".reg .pred p;\\n"
            "setp.ne.b32 p, %{count + 2}, 0;\\n"
            "{mma.instruction} {{{registers}}}, %{count}, %{count + 1}, p{mma.modifiers};\\n"
            "}}\\n"
            : {outputs}
            : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
    }}
}};
"""
