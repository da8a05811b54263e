// Thread-block clusters: rank, cluster barrier, distributed shared memory (DSMEM).
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-barrier-cluster
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Barrier over all threads of the cluster, without a memory fence: orders only what an earlier fence has released.
// NOTE: without .relaxed the compiler puts MEMBAR.ALL.GPU before it, which waits for all outstanding memory operations.
__device__ __forceinline__ void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Shared-memory address `address` of CTA `rank`, in the cluster's window (mapa).
__device__ __forceinline__ uint32_t map_shared_address(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Stores 16 bytes into the shared memory of a CTA of the cluster; they count as bytes of a barrier there (st.async).
__device__ __forceinline__ void store_cluster_async(uint32_t remote, uint32_t remote_barrier, float x, float y, float z, float w) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote),
                 "f"(x), "f"(y), "f"(z), "f"(w), "r"(remote_barrier)
                 : "memory");
}

__device__ __forceinline__ void store_cluster_async(uint32_t remote, uint32_t remote_barrier, int x, int y, int z, int w) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote),
                 "r"(x), "r"(y), "r"(z), "r"(w), "r"(remote_barrier)
                 : "memory");
}

}  // namespace deep_gemm::ptx
