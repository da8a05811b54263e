// Shared-memory matrix descriptors for K-major operands in rows of 128 swizzled bytes.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::mma {

constexpr uint32_t kRowBytes = 128;                  // one k-block of 8-bit elements
constexpr uint32_t kAtomBytes = 8 * kRowBytes;       // the swizzle repeats every 8 rows
constexpr uint32_t kDescriptorHigh = (kAtomBytes >> 4) | (1u << 30);  // stride between atoms; 128-byte swizzle

// The low word carries the address in units of 16 bytes; advancing it stays inside the word.
__device__ __forceinline__ uint32_t descriptor_low(uint32_t smem) { return (smem >> 4) | (1u << 16); }

__device__ __forceinline__ uint64_t descriptor(uint32_t low) {
    return (static_cast<uint64_t>(kDescriptorHigh) << 32) | low;
}

}  // namespace deep_gemm::mma
