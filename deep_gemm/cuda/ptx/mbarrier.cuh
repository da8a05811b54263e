// mbarriers, each named by its 32-bit shared-memory address.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the inits visible to the cluster and to the asynchronous proxy.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and expects `bytes` from bulk copies before the phase completes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier with this address in CTA `rank` of the cluster.
// NOTE: with .release.cluster the compiler puts MEMBAR.ALL.GPU before every arrival; consumers only read, so none is needed.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier, uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// Waits until the phase with this parity has completed; try_wait suspends the thread in hardware.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t phase) {
    uint32_t done = 0;
    while (!done) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.b32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(barrier), "r"(phase)
            : "memory");
    }
}

// mbarrier_wait() that also acquires what other CTAs of the cluster have written.
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t phase) {
    uint32_t done = 0;
    while (!done) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.b32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(barrier), "r"(phase)
            : "memory");
    }
}

}  // namespace deep_gemm::ptx
