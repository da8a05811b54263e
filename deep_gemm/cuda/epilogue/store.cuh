// Results of a fragment -> output type -> swizzled shared memory, in the layout of a TMA box.
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

// 16-bit elements, by matrix stores.
template <class Out, int kFirst, int kColumns, int kBoxColumns, int kElements>
__device__ __forceinline__ void store_narrow(const float (&value)[kElements], uint32_t slab, uint32_t thread) {
    constexpr uint32_t kRowBytes = kBoxColumns * 2, kBoxBytes = 64 * kRowBytes;
    const uint32_t row = thread / 32 * 16 + thread % 16;  // lanes 0-15 address rows, 16-31 the next 8 columns
    const uint32_t half = thread % 32 / 16;
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
        const float* v = &value[(kFirst + column) / 2];
        const bool four = column + 8 < kColumns;
        const uint32_t own = column + (four ? 8 * half : 0), box = own / kBoxColumns, in_box = own % kBoxColumns;
        const uint32_t address = slab + box * kBoxBytes + swizzle<kRowBytes>(row * kRowBytes + in_box * 2);
        if (four) {
            ptx::stmatrix_x4(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]), ptx::pack<Out>(v[4], v[5]),
                             ptx::pack<Out>(v[6], v[7]));
        } else {
            ptx::stmatrix_x2(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]));
        }
    }
}

// 32-bit elements, a thread's two neighbours at a time.
template <int kFirst, int kColumns, int kBoxColumns, class Value, int kElements>
__device__ __forceinline__ void store_wide(const Value (&value)[kElements], uint32_t slab, uint32_t thread) {
    constexpr uint32_t kRowBytes = kBoxColumns * 4, kBoxBytes = 64 * kRowBytes;
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int column = 0; column < kColumns; column += 8) {
        const Value* v = &value[(kFirst + column) / 2];
        const uint32_t box = slab + column / kBoxColumns * kBoxBytes;
        const uint32_t in_row = (column % kBoxColumns + thread % 4 * 2) * 4;
        ptx::store_shared(box + swizzle<kRowBytes>(row * kRowBytes + in_row), v[0], v[1]);
        ptx::store_shared(box + swizzle<kRowBytes>((row + 8) * kRowBytes + in_row), v[2], v[3]);
    }
}

// 16-bit elements transposed: one box.
template <class Out, int kElements>
__device__ __forceinline__ void store_transposed_narrow(const float (&value)[kElements], uint32_t slab, uint32_t thread) {
    constexpr int kColumns = kElements * 2;
    // Lanes 0-7 and 8-15 address 8 columns in the first and next 8 rows of the warp's 16, lanes 16-31 the next 8 columns.
    const uint32_t column = thread % 32 / 16 * 8 + thread % 8;
    const uint32_t row = thread / 32 * 16 + thread % 16 / 8 * 8;
#pragma unroll
    for (int first = 0; first < kColumns; first += 16) {
        const float* v = &value[first / 2];
        const bool four = first + 8 < kColumns;
        const uint32_t own = first + (four ? column : thread % 8);
        const uint32_t address = slab + swizzle<128>(own * 128 + row * 2);
        if (four) {
            ptx::stmatrix_x4_transposed(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]), ptx::pack<Out>(v[4], v[5]),
                                        ptx::pack<Out>(v[6], v[7]));
        } else {
            ptx::stmatrix_x2_transposed(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]));
        }
    }
}

// 32-bit elements transposed: two boxes, of 32 of the fragment's rows each.
template <class Value, int kElements>
__device__ __forceinline__ void store_transposed_wide(const Value (&value)[kElements], uint32_t slab, uint32_t thread) {
    constexpr uint32_t kBoxBytes = kElements * 2 * 128;
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
        const uint32_t own = row + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        ptx::store_shared(slab + own / 32 * kBoxBytes + swizzle<128>(column * 128 + own % 32 * 4), value[i]);
    }
}

// Writes columns [kFirst, kFirst + kColumns) of a 64-row slab as consecutive boxes of kBoxColumns.
// `slab` is aligned to 1024 bytes, `thread` counts inside the warpgroup.
template <class Out, int kFirst, int kColumns, int kBoxColumns, class Value, int kElements>
__device__ __forceinline__ void store_slab(const Value (&value)[kElements], uint32_t slab, uint32_t thread) {
    if constexpr (sizeof(Out) == 4) store_wide<kFirst, kColumns, kBoxColumns>(value, slab, thread);
    else store_narrow<Out, kFirst, kColumns, kBoxColumns>(value, slab, thread);
}

// The transpose: writes kElements * 2 columns of the fragment as rows of 64 elements, in boxes whose rows have 128 bytes.
template <class Out, class Value, int kElements>
__device__ __forceinline__ void store_slab_transposed(const Value (&value)[kElements], uint32_t slab, uint32_t thread) {
    if constexpr (sizeof(Out) == 4) store_transposed_wide(value, slab, thread);
    else store_transposed_narrow<Out>(value, slab, thread);
}

}  // namespace deep_gemm::epilogue
