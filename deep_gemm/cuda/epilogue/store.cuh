// Accumulator fragment -> bf16 -> swizzled shared memory, in the layout of a TMA box.
#pragma once
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::epilogue {

// The XOR pattern of a box whose rows are kRowBytes wide: 16-byte units trade places with the row
// number, over 8, 4 or 2 units. Rows of an odd number of units lie in different banks without.
template <uint32_t kRowBytes>
__device__ __forceinline__ uint32_t swizzle(uint32_t offset) {
    if constexpr (kRowBytes % 32 != 0) return offset;
    else return offset ^ ((offset >> 3) & (kRowBytes - 16));
}

// Writes columns [kFirst, kFirst + kColumns) of a 64-row slab as consecutive boxes of kBoxColumns.
// `slab` is aligned to 1024 bytes, `thread` counts inside the warpgroup.
template <int kFirst, int kColumns, int kBoxColumns, int kElements>
__device__ __forceinline__ void store_slab(const float (&total)[kElements], uint32_t slab, uint32_t thread) {
    constexpr uint32_t kRowBytes = kBoxColumns * 2, kBoxBytes = 64 * kRowBytes;
    const uint32_t row = thread / 32 * 16 + thread % 16;  // lanes 0-15 address rows, 16-31 the next 8 columns
    const uint32_t half = thread % 32 / 16;
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
        const int i = (kFirst + column) / 2;
        if (column + 8 < kColumns) {
            const uint32_t own = column + 8 * half;
            const uint32_t box = own / kBoxColumns, in_box = own % kBoxColumns;
            const uint32_t address = slab + box * kBoxBytes + swizzle<kRowBytes>(row * kRowBytes + in_box * 2);
            ptx::stmatrix_x4(address, ptx::pack_bf16(total[i], total[i + 1]), ptx::pack_bf16(total[i + 2], total[i + 3]),
                             ptx::pack_bf16(total[i + 4], total[i + 5]), ptx::pack_bf16(total[i + 6], total[i + 7]));
        } else {
            const uint32_t box = column / kBoxColumns, in_box = column % kBoxColumns;
            const uint32_t address = slab + box * kBoxBytes + swizzle<kRowBytes>(row * kRowBytes + in_box * 2);
            ptx::stmatrix_x2(address, ptx::pack_bf16(total[i], total[i + 1]), ptx::pack_bf16(total[i + 2], total[i + 3]));
        }
    }
}

// The transpose: writes kElements * 2 columns of the fragment as rows of 64 elements, a box of 128-byte rows.
template <int kElements>
__device__ __forceinline__ void store_slab_transposed(const float (&total)[kElements], uint32_t slab, uint32_t thread) {
    constexpr int kColumns = kElements * 2;
    // Lanes 0-7 and 8-15 address 8 columns in the first and next 8 rows of the warp's 16, lanes 16-31 the next 8 columns.
    const uint32_t column = thread % 32 / 16 * 8 + thread % 8;
    const uint32_t row = thread / 32 * 16 + thread % 16 / 8 * 8;
#pragma unroll
    for (int first = 0; first < kColumns; first += 16) {
        const int i = first / 2;
        const bool four = first + 8 < kColumns;
        const uint32_t own = first + (four ? column : thread % 8);
        const uint32_t address = slab + swizzle<128>(own * 128 + row * 2);
        if (four) {
            ptx::stmatrix_x4_transposed(address, ptx::pack_bf16(total[i], total[i + 1]), ptx::pack_bf16(total[i + 2], total[i + 3]),
                                        ptx::pack_bf16(total[i + 4], total[i + 5]), ptx::pack_bf16(total[i + 6], total[i + 7]));
        } else {
            ptx::stmatrix_x2_transposed(address, ptx::pack_bf16(total[i], total[i + 1]), ptx::pack_bf16(total[i + 2], total[i + 3]));
        }
    }
}

}  // namespace deep_gemm::epilogue
