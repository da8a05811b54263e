// Clusters, named barriers, register budgets, dependent launch.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::ptx {

// True in one lane of a converged warp.
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

// A value, or a condition, that is the same for the warp, made known as such to the compiler: it then may keep others in
// uniform registers across a branch on it, and loops that depend on it do not diverge.
__device__ __forceinline__ uint32_t uniform(uint32_t value) { return __shfl_sync(~0u, value, 0); }
__device__ __forceinline__ bool uniformly(bool holds) { return __any_sync(~0u, holds); }

// The sum over a converged warp.
__device__ __forceinline__ uint32_t sum_of_lanes(uint32_t value) { return __reduce_add_sync(~0u, value); }

// The first index from `from` on that holds, or `count`: the lanes of a converged warp look at one each.
template <class Holds>
__device__ __forceinline__ uint32_t first_of(uint32_t from, uint32_t count, Holds holds) {
    for (; uniformly(from < count); from += kWarpThreads) {
        const uint32_t index = from + threadIdx.x % kWarpThreads;
        const uint32_t found = __ballot_sync(~0u, index < count && holds(index));
        if (uniformly(found != 0)) return from + __ffs(found) - 1;
    }
    return count;
}

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all CTAs of the cluster meet. Orders only what a fence before it has released.
// NOTE: without .relaxed this is preceded by MEMBAR.ALL.GPU.
__device__ __forceinline__ void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ __forceinline__ void named_barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts this warp at a barrier that others wait at.
__device__ __forceinline__ void named_barrier_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// NOTE: the counts of all warpgroups together may not exceed what the CTA was launched with;
// otherwise the increase waits for ever.
template <int kRegisters>
__device__ __forceinline__ void registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Waits until the kernels this one depends on are complete and their writes visible.
__device__ __forceinline__ void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets a dependent kernel start its set-up once every CTA of this grid has called it or exited.
__device__ __forceinline__ void dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace deep_gemm::ptx
