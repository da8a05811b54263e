// Named barriers, register budgets (setmaxnreg), programmatic dependent launch (griddepcontrol).
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-griddepcontrol
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ void named_barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at a named barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// NOTE: if the budgets of all warpgroups together exceed the registers that the CTA was launched with, the increase
// waits for ever. The host chooses budgets that fit (config/gemm_config.py).
template <int kRegisters>
__device__ __forceinline__ void registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Waits until the kernels this one depends on are complete and their writes are visible.
__device__ __forceinline__ void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the dependent kernel start its set-up once every CTA of this grid has called it or exited.
__device__ __forceinline__ void dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace deep_gemm::ptx
