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

__device__ __forceinline__ void load_shared(uint32_t address, int (&value)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, int value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// Two neighbours, at an address aligned to both together.
__device__ __forceinline__ void store_shared(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, int x, int y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, int x, int y, int z, int w) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
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

__device__ __forceinline__ void store_shared_async(uint32_t remote, uint32_t remote_barrier, int x, int y, int z, int w) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote), "r"(x),
                 "r"(y), "r"(z), "r"(w), "r"(remote_barrier)
                 : "memory");
}

// Two floats to packed 16-bit ones, round to nearest even; `low` lands in the lower half.
template <class Out>
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    if constexpr (kSame<Out, BFloat16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// One or two neighbours of global memory, at an address aligned to them together.
// NOTE: from L2, because what bulk stores of the kernel ahead have written is not in L1.
__device__ __forceinline__ uint32_t load_l2(const uint16_t* address) {
    uint16_t bits;
    asm volatile("ld.global.cg.b16 %0, [%1];" : "=h"(bits) : "l"(__cvta_generic_to_global(address)));
    return bits;
}

__device__ __forceinline__ uint32_t load_l2(const uint32_t* address) {
    uint32_t bits;
    asm volatile("ld.global.cg.b32 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(address)));
    return bits;
}

__device__ __forceinline__ void load_l2(const uint32_t* address, uint32_t (&bits)[2]) {
    asm volatile("ld.global.cg.v2.b32 {%0, %1}, [%2];" : "=r"(bits[0]), "=r"(bits[1]) : "l"(__cvta_generic_to_global(address)));
}

// Writes 16 bytes of global memory.
__device__ __forceinline__ void store_global(void* address, const int (&unit)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(unit[0]), "r"(unit[1]),
                 "r"(unit[2]), "r"(unit[3])
                 : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

// The value of an output element, from its bits.
template <class Out>
__device__ __forceinline__ auto widen(uint32_t bits) {
    if constexpr (kSame<Out, int>) {
        return static_cast<int>(bits);
    } else if constexpr (kSame<Out, float>) {
        return __uint_as_float(bits);
    } else if constexpr (kSame<Out, BFloat16>) {
        return __uint_as_float(bits << 16);
    } else {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<uint16_t>(bits)));
        return wide;
    }
}

}  // namespace deep_gemm::ptx
