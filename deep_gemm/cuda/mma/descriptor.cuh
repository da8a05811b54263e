// Shared-memory matrix descriptors for operands in rows of 128 swizzled bytes.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
//
// K-major, a row is 128 bytes along K. MN-major (16-bit elements only), a row is 64 elements along the other
// dimension, and boxes of 64 such rows, one for each element of a k-block, follow one another.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::mma {

constexpr uint32_t kRowBytes = 128;
constexpr uint32_t kAtomBytes = 8 * kRowBytes;  // the swizzle repeats every 8 rows
constexpr uint32_t kBoxBytes = 64 * kRowBytes;
constexpr uint32_t kBoxWidth = 64;                                    // MN-major elements of a box
constexpr uint32_t kDescriptorHigh = (kAtomBytes >> 4) | (1u << 30);  // stride between atoms; 128-byte swizzle

// The low word carries the address in units of 16 bytes, advancing it stays inside its field, and the stride between
// boxes, which K-major operands do not use.
// NOTE: addresses of a cluster's CTAs carry their rank above the 18 bits of an offset; it would change the stride.
template <bool kMnMajor>
__device__ __forceinline__ uint32_t descriptor_low(uint32_t smem) {
    return ((smem & 0x3ffff) >> 4) | (kMnMajor ? kBoxBytes >> 4 : 1u) << 16;
}

__device__ __forceinline__ uint64_t descriptor(uint32_t low) {
    return (static_cast<uint64_t>(kDescriptorHigh) << 32) | low;
}

// The same of an operand that is one MMA of 16-bit elements deep: K-major, in rows of 32 swizzled bytes.
constexpr uint32_t kShallowHigh = (8 * 32 >> 4) | (3u << 30);
__device__ __forceinline__ uint64_t shallow_descriptor(uint32_t low) { return (static_cast<uint64_t>(kShallowHigh) << 32) | low; }

// From one MMA's part of K to the next, in units of 16 bytes: 32 bytes of every row, or 16 rows.
template <bool kMnMajor>
constexpr uint32_t kStep = (kMnMajor ? 16 * kRowBytes : 32) >> 4;
constexpr uint32_t kSteps = 4;  // of a k-block

}  // namespace deep_gemm::mma
