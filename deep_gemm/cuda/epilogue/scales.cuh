// The scales of one k-block as a thread of the MMA needs them: read from a stage, multiplied, applied.
//
// Token scales lie first in a stage's scale region, one float each; those of the weights follow, one a block or one each.
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

// Scales of each row and of each column. Their outer product is an MMA of its own: its operands are the scales, each cut
// into three bf16 of 8 bits (x = x1 + x2 + x3, exactly), and their order along K pairs
//     r1 r1 r2 r2 r1 r3   of a row with
//     c1 c2 c1 c2 c3 c1   of a column, whose products sum up to r c (1 +- 2^-21).
// Multiplied by the CUDA cores, a k-block's scales would be read and written as registers once more for every element,
// beside the tensor core's own traffic, and a column's would be read by eight lanes of every warp.
struct OuterScales {
    static constexpr uint32_t kBytes = 32;  // of a row or a column: 16 bf16, of which the second half are zeros

    // Where the first half of a row's lies: rows of 32 bytes, whose halves trade places in every other group of four.
    static __device__ __forceinline__ uint32_t place(uint32_t row) { return row * kBytes + (row / 4 % 2) * 16; }

    static __device__ __forceinline__ bool is_finite(float scale) { return (__float_as_uint(scale) & 0x7f800000) != 0x7f800000; }

    static __device__ __forceinline__ void store(uint32_t place, float scale, bool of_row) {
        const uint32_t x1 = __float_as_uint(scale);
        const float rest = scale - __uint_as_float(x1 & 0xffff0000);
        const uint32_t x2 = __float_as_uint(rest), x3 = __float_as_uint(rest - __uint_as_float(x2 & 0xffff0000));
        // Upper halves, named by their bytes: 32 of the first operand, 76 of the second.
        ptx::store_shared(place, int(__byte_perm(x1, x2, of_row ? 0x3232 : 0x7632)), int(__byte_perm(x1, x2, of_row ? 0x7676 : 0x7632)),
                          int(__byte_perm(x1, x3, of_row ? 0x7632 : 0x3276)), 0);
    }

    // NOTE: no infinity may meet a zero, so one stands alone; and cut off, the payload of a NaN may be all of it.
    static __device__ __forceinline__ void store_any(uint32_t place, float scale, bool of_row) {
        if (is_finite(scale)) return store(place, scale, of_row);
        ptx::store_shared(place, scale == scale ? int(__float_as_uint(scale) >> 16) : 0x7fc0, 0, 0, 0);
    }
};

// No scales along K.
template <int kElements>
struct UnitScales {
    __device__ __forceinline__ void load(uint32_t, uint32_t, uint32_t) {}

    __device__ __forceinline__ void promote(float (&total)[kElements], const float (&partial)[kElements]) const {
        promote_unit(total, partial);
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
