"""Text of a kernel's translation unit: constants, the one wgmma it needs, and the entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WGMMA_M = 64
WGMMA_K_BYTES = 32


@dataclass(frozen=True)
class MmaShape:
    """A warpgroup MMA of 8-bit floats: m64, n, k32, FP32 accumulators, both operands K-major."""

    n: int
    a_type: str
    b_type: str


def render(
    *,
    header: str,
    body: str,
    params: str,
    entry: str,
    constants: Mapping[str, int],
    mma: MmaShape,
    threads: int,
    ctas_per_sm: int = 1,
) -> str:
    """Return the source of one kernel.

    header: the include that defines `body`, a device function template over <Config, Mma>.
    params: type of the kernel's one parameter.
    constants: members of Config, by name.
    threads: of a CTA. ctas_per_sm: so many are to fit an SM, which caps the registers.
    """
    members = "\n".join(f"    static constexpr uint32_t {k} = {v};" for k, v in constants.items())
    return f"""#include "{header}"

namespace deep_gemm {{

struct Config {{
{members}
}};

{render_mma(mma)}
}}  // namespace deep_gemm

extern "C" __global__ void __launch_bounds__({threads}, {ctas_per_sm})
{entry}(const __grid_constant__ deep_gemm::{params} params) {{
    deep_gemm::{body}<deep_gemm::Config, deep_gemm::Mma>(params);
}}
"""


def render_mma(mma: MmaShape) -> str:
    """Return struct Mma, whose issue() is the wgmma of this shape (PTX ISA, "wgmma.mma_async")."""
    count = mma.n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    instruction = (
        f"wgmma.mma_async.sync.aligned.m{WGMMA_M}n{mma.n}k32.f32.{mma.a_type}.{mma.b_type}"
    )
    return f"""struct Mma {{
    static constexpr uint32_t kK = {WGMMA_K_BYTES};

    // d = a . b, plus d itself where `accumulate` is true.
    static __device__ __forceinline__ void issue(float (&d)[{count}], uint64_t a, uint64_t b,
                                                 bool accumulate) {{
        asm volatile(
            "{{\\n"
            ".reg .pred p;\\n"
            "setp.ne.b32 p, %{count + 2}, 0;\\n"
            "{instruction} {{{registers}}}, %{count}, %{count + 1}, p, 1, 1;\\n"
            "}}\\n"
            : {outputs}
            : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)));
    }}
}};
"""
