"""Text of a kernel's translation unit: constants, the one wgmma it needs, and the entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WGMMA_M = 64
WGMMA_K_BYTES = 32  # of each operand, per instruction


@dataclass(frozen=True)
class MmaShape:
    """A warpgroup MMA of m64, n and 32 bytes of k, both operands in shared memory.

    a_type, b_type: what wgmma calls the operands' types.
    a_transposed, b_transposed: the operand lies with its rows, not K, innermost; 16-bit types only.
    """

    n: int
    a_type: str
    b_type: str
    a_transposed: bool = False
    b_transposed: bool = False

    @property
    def integer(self) -> bool:
        """Say whether sums are INT32; else they are FP32."""
        return self.a_type == "s8"

    @property
    def instruction(self) -> str:
        """The instruction, without operands."""
        bits = 16 if self.a_type in ("bf16", "f16") else 8
        sums = "s32" if self.integer else "f32"
        return (
            f"wgmma.mma_async.sync.aligned.m{WGMMA_M}n{self.n}k{WGMMA_K_BYTES * 8 // bits}."
            f"{sums}.{self.a_type}.{self.b_type}"
        )

    @property
    def modifiers(self) -> str:
        """What follows the predicate: signs of floats, and the order of 16-bit operands."""
        if self.integer:
            return ""
        if self.a_type in ("bf16", "f16"):
            return f", 1, 1, {int(self.a_transposed)}, {int(self.b_transposed)}"
        return ", 1, 1"


def render(
    *,
    header: str,
    body: str,
    params: str,
    entry: str,
    constants: Mapping[str, int | str],
    threads: int,
    mmas: Mapping[str, MmaShape] | None = None,
    ctas_per_sm: int = 1,
) -> str:
    """Return the source of one kernel.

    header: the include that defines `body`, a device function template over <Config>, or
        <Config, Mma> where there is one.
    mmas: MMAs by the name of the type to wrap them; Config may name them as well.
    params: type of the kernel's one parameter.
    constants: members of Config by name: unsigned numbers, or, as str, the types they stand for.
    threads: of a CTA. ctas_per_sm: so many are to fit an SM, which caps the registers.
    """
    members = "\n".join(_member(name, value) for name, value in constants.items())
    arguments = "deep_gemm::Config" + (", deep_gemm::Mma" if mmas else "")
    wrappers = "\n".join(render_mma(name, shape) for name, shape in (mmas or {}).items())
    return f"""#include "{header}"

namespace deep_gemm {{

{wrappers}
struct Config {{
{members}
}};

}}  // namespace deep_gemm

extern "C" __global__ void __launch_bounds__({threads}, {ctas_per_sm})
{entry}(const __grid_constant__ deep_gemm::{params} params) {{
    deep_gemm::{body}<{arguments}>(params);
}}
"""


def _member(name: str, value: int | str) -> str:
    if isinstance(value, str):
        return f"    using {name} = {value};"
    return f"    static constexpr uint32_t {name} = {value};"


def render_mma(name: str, mma: MmaShape) -> str:
    """Return a struct, whose issue() is the wgmma of this shape (PTX ISA, "wgmma.mma_async")."""
    count = mma.n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    letter, sums = ("r", "int") if mma.integer else ("f", "float")
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    return f"""struct {name} {{
    using Sum = {sums};

    // d = a . b, plus d itself where `accumulate` is true.
    static __device__ __forceinline__ void issue({sums} (&d)[{count}], uint64_t a, uint64_t b,
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
