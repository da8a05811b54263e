// CUDA's variables, and the functions of cuda/ptx/warp.cuh and cuda/ptx/cluster.cuh, for threads that run one at a time: a warp
// is one thread.
#pragma once
#include "cuda.hpp"
#include "deep_gemm/common/types.cuh"

#define __shared__
struct Index {
    unsigned x;
};
inline Index threadIdx, blockIdx, gridDim;
static inline void __syncwarp() {}
static inline void __syncthreads() {}

namespace deep_gemm::ptx {

inline bool elect_one() { return true; }
inline uint32_t warp_uniform(uint32_t value) { return value; }
inline bool warp_any(bool condition) { return condition; }

template <class Predicate>
uint32_t warp_find_first(uint32_t begin, uint32_t end, Predicate predicate) {
    while (begin < end && !predicate(begin)) ++begin;
    return begin;
}

inline uint32_t rank;  // of the CTA that runs
inline uint32_t cluster_rank() { return rank; }
inline void cluster_sync_relaxed() {}
// Defined by programs that reduce over a cluster.
uint32_t map_shared_address(uint32_t address, uint32_t rank);
void store_cluster(uint32_t remote, uint32_t remote_barrier, const void* values);  // 16 bytes

inline void store_cluster_async(uint32_t remote, uint32_t remote_barrier, float x, float y, float z, float w) {
    const float values[4] = {x, y, z, w};
    store_cluster(remote, remote_barrier, values);
}
inline void store_cluster_async(uint32_t remote, uint32_t remote_barrier, int x, int y, int z, int w) {
    const int values[4] = {x, y, z, w};
    store_cluster(remote, remote_barrier, values);
}

}  // namespace deep_gemm::ptx
