// The scales of one k-block as a thread of the MMA needs them: read from a stage, multiplied, applied.
//
// Token scales lie first in a stage's scale region, one float each; block scales of the weights follow.
#pragma once
#include "deep_gemm/epilogue/promote.cuh"
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::epilogue {

// Tokens are rows, weights columns: two token scales per thread, and one for each part of the weights.
template <int kElements, int kMain, int kParts, uint32_t kTokenScales>
struct RowScales {
    float row0[kParts], row8[kParts];

    // row: the thread's first row in the tile.
    __device__ __forceinline__ void load(uint32_t scales, uint32_t row, uint32_t) {
        const float sfa0 = ptx::load_shared(scales + row * 4);
        const float sfa8 = ptx::load_shared(scales + (row + 8) * 4);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            const float sfb = ptx::load_shared(scales + kTokenScales + i * 4);
            row0[i] = sfa0 * sfb;
            row8[i] = sfa8 * sfb;
        }
    }

    __device__ __forceinline__ void promote(float (&total)[kElements], const float (&partial)[kElements]) const {
        epilogue::promote<kMain>(total, partial, row0, row8);
    }
};

// Tokens are columns: a token scale for each of the thread's columns; the 64 rows of a wave share one of the weights.
template <int kElements, uint32_t kTokenScales>
struct ColumnScales {
    float column[kElements / 2];

    // block: which of the tile's blocks of 128 weights the wave lies in.
    __device__ __forceinline__ void load(uint32_t scales, uint32_t lane, uint32_t block) {
        const float sfb = ptx::load_shared(scales + kTokenScales + block * 4);
#pragma unroll
        for (int i = 0; i < kElements / 2; i += 2) {
            float pair[2];
            ptx::load_shared(scales + (i * 4 + lane % 4 * 2) * 4, pair);
            column[i] = pair[0] * sfb;
            column[i + 1] = pair[1] * sfb;
        }
    }

    __device__ __forceinline__ void promote(float (&total)[kElements], const float (&partial)[kElements]) const {
        promote_columns(total, partial, column);
    }
};

}  // namespace deep_gemm::epilogue
