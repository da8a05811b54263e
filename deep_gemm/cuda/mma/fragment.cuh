// Accumulator layout of a 64 x N wgmma: which element of the slice a thread's i-th register holds.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#wgmma-64n16-d (register fragments of D)
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::mma {

constexpr uint32_t kSliceM = 64;  // rows of one wgmma

// Row and column of a thread's first element; `thread` counts within the warpgroup.
__device__ __forceinline__ uint32_t thread_row(uint32_t thread) { return thread / kWarpThreads * 16 + thread % kWarpThreads / 4; }
__device__ __forceinline__ uint32_t thread_col(uint32_t thread) { return thread % 4 * 2; }

// Offset of its i-th element from there.
constexpr __device__ __forceinline__ uint32_t row_offset(uint32_t i) { return i / 2 % 2 * 8; }
constexpr __device__ __forceinline__ uint32_t col_offset(uint32_t i) { return i / 4 * 8 + i % 2; }

// The accumulators of a slice's first kCount * 2 columns.
template <int kCount, class Accum, int kAll>
__device__ __forceinline__ auto first_columns(Accum (&accum)[kAll]) -> Accum (&)[kCount] {
    return reinterpret_cast<Accum(&)[kCount]>(accum);
}

}  // namespace deep_gemm::mma
