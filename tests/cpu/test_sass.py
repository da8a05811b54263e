"""Resources out of the ptxas log, instructions out of the cubin."""

from __future__ import annotations

import importlib.metadata

import pytest

from deep_gemm.errors import DeepGemmError, UnsupportedError
from deep_gemm.jit import nvrtc, sass

OPTIONS = ("--gpu-architecture=sm_90a", "--std=c++20", nvrtc.REPORT_OPTION)

SPILLING = """
extern "C" __global__ void gemm_small(float* p) { p[threadIdx.x] = 1.0f; }
extern "C" __global__ void __launch_bounds__(1024, 2) gemm_large(float* p, int n) {
    __shared__ float s[256];
    s[threadIdx.x % 256] = p[n];
    __syncthreads();
    float a[100];
    #pragma unroll
    for (int i = 0; i < 100; ++i) a[i] = p[i * n];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 100; ++i) p[i * n] = a[i] * a[99 - i] + s[i];
}
"""


def wgmma_kernel(count: int) -> str:
    """Return a kernel of `count` wgmma m64n16k32 on one accumulator."""
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(8))
    registers = ", ".join(f"%{i}" for i in range(8))
    issue = f"""asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
        "{{{registers}}}, %8, %9, 1, 1, 1;" : {outputs} : "l"(a + 2 * step), "l"(b + 2 * step));"""
    issues = "\n".join(issue.replace("step", str(step)) for step in range(count))
    return f"""
extern "C" __global__ void __launch_bounds__(128)
gemm_wgmma(float* p, unsigned long long a, unsigned long long b) {{
    float d[8] = {{}};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    {issues}
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        : {outputs} :: "memory");
    for (int i = 0; i < 8; ++i) p[threadIdx.x * 8 + i] = d[i];
}}
"""


def test_resources_are_those_of_the_named_kernel() -> None:
    compiled = nvrtc.compile_cubin(SPILLING, headers={}, options=OPTIONS, name="gemm_two")
    small = sass.resources(compiled.log, "gemm_small")
    large = sass.resources(compiled.log, "gemm_large")
    assert 0 < small.registers < large.registers == 32  # 65536 registers / 2048 threads
    assert (small.shared_bytes, small.barriers, small.stack_bytes) == (0, 0, 0)
    assert not small.spills
    assert large.spills
    assert large.spill_store_bytes > 0
    assert large.spill_load_bytes > 0
    assert large.stack_bytes > 0
    assert (large.shared_bytes, large.barriers) == (1024, 1)


@pytest.mark.parametrize("log", ["", "ptxas info : 0 bytes gmem"])
def test_a_log_that_says_nothing_gives_unknowns_not_zeros(log: str) -> None:
    unknown = sass.resources(log, "gemm_k")
    assert unknown == sass.Resources(-1, -1, -1, -1, -1, -1)


def test_disassemble_finds_every_qgmma_and_what_lies_between() -> None:
    compiled = nvrtc.compile_cubin(wgmma_kernel(4), headers={}, options=OPTIONS, name="gemm_wgmma")
    instructions = sass.disassemble(compiled.cubin)
    qgmma = [i for i in instructions if i.opcode.startswith("QGMMA")]
    assert [i.opcode for i in qgmma] == ["QGMMA.64x16x32.F32.E4M3.E4M3"] * 4
    assert all("gdesc[" in i.text for i in qgmma)
    assert [i.address for i in instructions] == [16 * i for i in range(len(instructions))]
    gaps = sass.between(instructions, "QGMMA")
    assert len(gaps) == 3
    spans = zip(qgmma, qgmma[1:], strict=False)
    assert [len(gap) for gap in gaps] == [(b.address - a.address) // 16 - 1 for a, b in spans]


def test_predicates_are_part_of_the_text_only() -> None:
    source = """extern "C" __global__ void gemm_branch(float* p, int n) {
        if (threadIdx.x < n) p[threadIdx.x] = 0.0f;
    }"""
    compiled = nvrtc.compile_cubin(source, headers={}, options=OPTIONS, name="gemm_branch")
    guarded = [i for i in sass.disassemble(compiled.cubin) if i.text.startswith("@")]
    assert guarded
    assert not any("@" in i.opcode for i in guarded)


def test_between_counts_whole_opcodes() -> None:
    names = ["MOV", "QGMMA.A", "R2UR", "QGMMAX", "QGMMA.B", "QGMMA", "EXIT"]
    instructions = [sass.Instruction(16 * i, name, name) for i, name in enumerate(names)]
    assert sass.between(instructions, "QGMMA") == [["R2UR", "QGMMAX"], []]
    assert sass.between(instructions, "HGMMA") == []


def test_disassemble_refuses_what_is_no_cubin() -> None:
    with pytest.raises(DeepGemmError, match="nvdisasm failed"):
        sass.disassemble(b"not a cubin")


def test_absent_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(UnsupportedError, match="nvidia-cuda-nvdisasm"):
        sass.disassemble(b"")
