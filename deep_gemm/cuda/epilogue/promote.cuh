// Second level of the accumulation: tensor-core partial sums of one k-block, scaled, into FP32.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::epilogue {

// Element i of a thread's fragment lies in row (i / 2 % 2) * 8 + lane / 4 of its warp's 16 rows, and in
// column i / 4 * 8 + lane % 4 * 2 + i % 2 of the tile.
//
// row0, row8: scales of the thread's two rows, each for up to kNumBlocks scale blocks along N.
// split: first column group of 8 that takes the next block's scale; only looked at if kNumBlocks > 1.
template <int kElements, int kNumBlocks, int kGranularity>
__device__ __forceinline__ void promote(float (&total)[kElements], const float (&partial)[kElements], const float (&row0)[kNumBlocks],
                                        const float (&row8)[kNumBlocks], uint32_t split) {
    float scale0 = row0[0], scale8 = row8[0];
#pragma unroll
    for (int i = 0; i < kElements; i += 4) {
        if constexpr (kNumBlocks > 1) {
            // The two candidates change hands at a column that is a multiple of kGranularity.
            if (i / 4 * 8 % kGranularity == 0 && i > 0) {
                const int column = i / 4 * 8;
#pragma unroll
                for (int block = 1; block < kNumBlocks; ++block) {
                    const bool next = column >= split + 128 * (block - 1);
                    scale0 = next ? row0[block] : scale0;
                    scale8 = next ? row8[block] : scale8;
                }
            }
        }
        total[i + 0] = __fmaf_rn(partial[i + 0], scale0, total[i + 0]);
        total[i + 1] = __fmaf_rn(partial[i + 1], scale0, total[i + 1]);
        total[i + 2] = __fmaf_rn(partial[i + 2], scale8, total[i + 2]);
        total[i + 3] = __fmaf_rn(partial[i + 3], scale8, total[i + 3]);
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

}  // namespace deep_gemm::epilogue
