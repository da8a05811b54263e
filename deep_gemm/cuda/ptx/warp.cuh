// Operations of a converged warp.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-elect-sync
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

// True in one lane.
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(elected));
    return elected;
}

// Broadcast of lane 0. The compiler then knows that the value is warp-uniform, and may keep it, and what is computed
// from it, in uniform registers.
__device__ __forceinline__ uint32_t warp_uniform(uint32_t value) { return __shfl_sync(~0u, value, 0); }

// Whether the condition holds in any lane; a branch on the answer does not diverge.
__device__ __forceinline__ bool warp_any(bool condition) { return __any_sync(~0u, condition); }

// Sum over the lanes.
__device__ __forceinline__ uint32_t warp_sum(uint32_t value) { return __reduce_add_sync(~0u, value); }

// First index in [begin, end) for which the predicate holds, or `end`. Each lane tests one index at a time.
template <class Predicate>
__device__ __forceinline__ uint32_t warp_find_first(uint32_t begin, uint32_t end, Predicate predicate) {
    for (; warp_any(begin < end); begin += kWarpThreads) {
        const uint32_t index = begin + threadIdx.x % kWarpThreads;
        const uint32_t found = __ballot_sync(~0u, index < end && predicate(index));
        if (warp_any(found != 0)) return begin + __ffs(found) - 1;
    }
    return end;
}

}  // namespace deep_gemm::ptx
