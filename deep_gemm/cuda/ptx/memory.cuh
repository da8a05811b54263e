// Shared memory: accesses, matrix stores, and stores into other CTAs of the cluster.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ float load_shared(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// Two and four floats at an address aligned to their size.
__device__ __forceinline__ void load_shared(uint32_t address, float (&value)[2]) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "r"(address) : "memory");
}

__device__ __forceinline__ void load_shared(uint32_t address, float (&value)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

// Stores 8x8 blocks of 16-bit elements; lane i gives the address of row i % 8 of block i / 8.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1) : "memory");
}

// The same with every 8x8 block transposed: row i of a block in shared memory is its column i.
__device__ __forceinline__ void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1) : "memory");
}

// Address, in the cluster's window, of the same place in the shared memory of CTA `rank`.
__device__ __forceinline__ uint32_t shared_address_of(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Writes 16 bytes into the shared memory of a CTA of the cluster, and counts them on a barrier there.
__device__ __forceinline__ void store_shared_async(uint32_t remote, uint32_t remote_barrier, float x, float y, float z, float w) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote), "f"(x),
                 "f"(y), "f"(z), "f"(w), "r"(remote_barrier)
                 : "memory");
}

// Two floats to packed bf16, round to nearest even; `low` lands in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

}  // namespace deep_gemm::ptx
