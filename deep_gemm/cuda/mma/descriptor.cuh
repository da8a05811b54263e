// Shared-memory matrix descriptors of wgmma, for operands in rows of 128 swizzled bytes.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout
//
// K-major: a row is 128 bytes along K of one m or n. MN-major (16-bit elements only): a row is 64 elements along m or n
// of one k; 64 such rows, or as many as a k-block has, make a box, and boxes follow one another.
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::mma {

constexpr uint32_t kRowBytes = 128;
constexpr uint32_t kAtomBytes = 8 * kRowBytes;  // the 128-byte swizzle repeats every 8 rows
constexpr uint32_t kBoxMn = 64;                 // MN-major elements of a box
constexpr uint32_t kBoxBytes = 64 * kRowBytes;
constexpr uint32_t kDescriptorHigh = (kAtomBytes >> 4) | (1u << 30);  // stride between atoms; 128-byte swizzle

// Low word: the address in units of 16 bytes, and the stride between boxes, which K-major operands do not use. Adding to
// it advances the address.
// NOTE: a CTA's addresses in a cluster carry its rank above their 18 bits, which would change the stride: mask them.
template <bool kMnMajor>
__device__ __forceinline__ uint32_t descriptor_low(uint32_t smem) {
    return ((smem & 0x3ffff) >> 4) | (kMnMajor ? kBoxBytes >> 4 : 1u) << 16;
}

__device__ __forceinline__ uint64_t descriptor(uint32_t low) {
    return (static_cast<uint64_t>(kDescriptorHigh) << 32) | low;
}

// Descriptor of a K-major operand that is one MMA of 16-bit elements deep, in rows of 32 swizzled bytes.
constexpr uint32_t kDescriptorHigh32B = (8 * 32 >> 4) | (3u << 30);
__device__ __forceinline__ uint64_t descriptor_32b(uint32_t low) {
    return (static_cast<uint64_t>(kDescriptorHigh32B) << 32) | low;
}

// From one MMA of a k-block to the next, in units of 16 bytes: 32 bytes along each row, or 16 rows.
template <bool kMnMajor>
constexpr uint32_t kStepK = (kMnMajor ? 16 * kRowBytes : 32) >> 4;
constexpr uint32_t kStepsPerKBlock = 4;

}  // namespace deep_gemm::mma
