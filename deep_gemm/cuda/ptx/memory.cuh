// Loads and stores of shared and global memory.
#pragma once
#include "deep_gemm/common/types.cuh"

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

// Two elements, at an address aligned to both together.
__device__ __forceinline__ void store_shared(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, int x, int y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, int x, int y, int z, int w) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

// One or two elements of global memory, at an address aligned to all of them together.
// NOTE: ld.global.cg reads L2. A plain load may hit a line of L1 that is older than what the bulk stores of the kernel
// before have written.
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
__device__ __forceinline__ void store_global(void* address, const int (&words)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

}  // namespace deep_gemm::ptx
