// Second level of the accumulation: tensor-core partial sums of one k-block, scaled, into FP32.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::epilogue {

// Element i of a thread's fragment lies in row (i / 2 % 2) * 8 + lane / 4 of its warp's 16 rows, and in
// column i / 4 * 8 + lane % 4 * 2 + i % 2 of the tile.
//
// row0, row8: scales of the thread's two rows, for the first kMain columns and for the others.
template <int kMain, int kElements, int kParts>
__device__ __forceinline__ void promote(float (&total)[kElements], const float (&partial)[kElements], const float (&row0)[kParts],
                                        const float (&row8)[kParts]) {
#pragma unroll
    for (int i = 0; i < kElements; i += 4) {
        const int part = i * 2 < kMain ? 0 : 1;
        total[i + 0] = __fmaf_rn(partial[i + 0], row0[part], total[i + 0]);
        total[i + 1] = __fmaf_rn(partial[i + 1], row0[part], total[i + 1]);
        total[i + 2] = __fmaf_rn(partial[i + 2], row8[part], total[i + 2]);
        total[i + 3] = __fmaf_rn(partial[i + 3], row8[part], total[i + 3]);
    }
}

// The same where each column has its scale: column[2 * j + {0, 1}] are those of the thread's columns in
// column group j of 8.
template <int kElements>
__device__ __forceinline__ void promote_columns(float (&total)[kElements], const float (&partial)[kElements],
                                                const float (&column)[kElements / 2]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
        const float scale = column[i / 4 * 2 + i % 2];
        total[i] = __fmaf_rn(partial[i], scale, total[i]);
    }
}

// The same where each element has its scale.
template <int kElements>
__device__ __forceinline__ void promote_each(float (&total)[kElements], const float (&partial)[kElements],
                                             const float (&scale)[kElements]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) total[i] = __fmaf_rn(partial[i], scale[i], total[i]);
}

// The same without scales.
template <int kElements>
__device__ __forceinline__ void promote_unit(float (&total)[kElements], const float (&partial)[kElements]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) total[i] += partial[i];
}

}  // namespace deep_gemm::epilogue
