// Tensor copies by the TMA unit. Coordinates: elements (inner, outer), then the matrix of a 3D map.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-tensor
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ void tma_prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Acquires a map in global memory that an earlier kernel has written, for copies of this thread.
__device__ __forceinline__ void tensor_map_acquire(const TensorMap* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Loads one box. Elements out of bounds arrive as zeros, and their bytes count on the barrier.
__device__ __forceinline__ void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(smem),
        "l"(map), "r"(barrier), "r"(inner), "r"(outer)
        : "memory");
}

// Loads one box into this offset of every CTA in `cta_mask`, and signals the barrier at this offset in each.
__device__ __forceinline__ void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer,
                                                   uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem),
        "l"(map), "r"(barrier), "r"(inner), "r"(outer), "h"(cta_mask)
        : "memory");
}

// Both of a 3D map.
__device__ __forceinline__ void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem),
        "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(matrix)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix,
                                                   uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem),
        "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(matrix), "h"(cta_mask)
        : "memory");
}

// Stores one box; elements out of bounds are not written.
__device__ __forceinline__ void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(smem), "r"(inner),
                 "r"(outer)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(smem), "r"(inner),
                 "r"(outer), "r"(matrix)
                 : "memory");
}

// Prefetches one box into L2.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map, int inner, int outer) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(inner), "r"(outer) : "memory");
}

__device__ __forceinline__ void tma_prefetch(const TensorMap* map, int inner, int outer, int matrix) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(inner), "r"(outer), "r"(matrix)
                 : "memory");
}

// Adds one box to the tensor, in the map's element type; elements out of bounds are not written.
__device__ __forceinline__ void tma_reduce_add(const TensorMap* map, uint32_t smem, int inner, int outer) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(smem),
                 "r"(inner), "r"(outer)
                 : "memory");
}

__device__ __forceinline__ void tma_reduce_add(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(smem),
                 "r"(inner), "r"(outer), "r"(matrix)
                 : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but kPending of this thread's store groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Orders this thread's writes to shared memory before later accesses by TMA and wgmma (the async proxy).
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace deep_gemm::ptx
