// Values of a fragment, rounded to the output type, to swizzled shared memory in the layout of TMA store boxes.
#pragma once
#include "deep_gemm/mma/fragment.cuh"
#include "deep_gemm/ptx/convert.cuh"
#include "deep_gemm/ptx/matrix.cuh"
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::epilogue {

// The swizzle of a box whose rows are kRowBytes wide, 128, 64 or 32: units of 16 bytes are permuted by the row number. Rows of an
// odd number of units have no bank conflicts without it.
template <uint32_t kRowBytes>
__device__ __forceinline__ uint32_t swizzle(uint32_t offset) {
    if constexpr (kRowBytes % 32 != 0) return offset;
    else return offset ^ ((offset >> 3) & (kRowBytes - 16));
}

// 16-bit elements, by stmatrix.
template <class Out, int kFirst, int kColumns, int kBoxColumns, int kCount>
__device__ __forceinline__ void store_16bit(const float (&value)[kCount], uint32_t smem, uint32_t thread) {
    constexpr uint32_t kRowBytes = kBoxColumns * 2, kBoxBytes = mma::kSliceM * kRowBytes;
    const uint32_t row = thread / 32 * 16 + thread % 16;  // lanes 0 to 15 address rows, lanes 16 to 31 the next 8 columns
    const uint32_t half = thread % 32 / 16;
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
        const float* v = &value[(kFirst + column) / 2];
        const bool is_x4 = column + 8 < kColumns;
        const uint32_t own = column + (is_x4 ? 8 * half : 0), box = own / kBoxColumns, in_box = own % kBoxColumns;
        const uint32_t address = smem + box * kBoxBytes + swizzle<kRowBytes>(row * kRowBytes + in_box * 2);
        if (is_x4) {
            ptx::stmatrix_x4(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]), ptx::pack<Out>(v[4], v[5]),
                             ptx::pack<Out>(v[6], v[7]));
        } else {
            ptx::stmatrix_x2(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]));
        }
    }
}

// 32-bit elements, two neighbours at a time.
template <int kFirst, int kColumns, int kBoxColumns, class Value, int kCount>
__device__ __forceinline__ void store_32bit(const Value (&value)[kCount], uint32_t smem, uint32_t thread) {
    constexpr uint32_t kRowBytes = kBoxColumns * 4, kBoxBytes = mma::kSliceM * kRowBytes;
    const uint32_t row = mma::thread_row(thread);
#pragma unroll
    for (int column = 0; column < kColumns; column += 8) {
        const Value* v = &value[(kFirst + column) / 2];
        const uint32_t box = smem + column / kBoxColumns * kBoxBytes;
        const uint32_t in_row = (column % kBoxColumns + mma::thread_col(thread)) * 4;
        ptx::store_shared(box + swizzle<kRowBytes>(row * kRowBytes + in_row), v[0], v[1]);
        ptx::store_shared(box + swizzle<kRowBytes>((row + 8) * kRowBytes + in_row), v[2], v[3]);
    }
}

// 16-bit elements transposed: one box of 64 elements a row.
template <class Out, int kCount>
__device__ __forceinline__ void store_16bit_transposed(const float (&value)[kCount], uint32_t smem, uint32_t thread) {
    constexpr int kColumns = kCount * 2;
    // Lanes 0 to 7 and 8 to 15 address 8 columns in the first and next 8 rows of the warp's 16, lanes 16 to 31 the next 8 columns.
    const uint32_t column = thread % 32 / 16 * 8 + thread % 8;
    const uint32_t row = thread / 32 * 16 + thread % 16 / 8 * 8;
#pragma unroll
    for (int first = 0; first < kColumns; first += 16) {
        const float* v = &value[first / 2];
        const bool is_x4 = first + 8 < kColumns;
        const uint32_t own = first + (is_x4 ? column : thread % 8);
        const uint32_t address = smem + swizzle<128>(own * 128 + row * 2);
        if (is_x4) {
            ptx::stmatrix_x4_transposed(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]), ptx::pack<Out>(v[4], v[5]),
                                        ptx::pack<Out>(v[6], v[7]));
        } else {
            ptx::stmatrix_x2_transposed(address, ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]));
        }
    }
}

// 32-bit elements transposed: two boxes, each with 32 of the fragment's rows.
template <class Value, int kCount>
__device__ __forceinline__ void store_32bit_transposed(const Value (&value)[kCount], uint32_t smem, uint32_t thread) {
    constexpr uint32_t kBoxBytes = kCount * 2 * 128;
    const uint32_t first_row = mma::thread_row(thread);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const uint32_t row = first_row + mma::row_offset(i), column = i / 4 * 8 + mma::thread_col(thread) + i % 2;
        ptx::store_shared(smem + row / 32 * kBoxBytes + swizzle<128>(column * 128 + row % 32 * 4), value[i]);
    }
}

// Columns [kFirst, kFirst + kColumns) of a 64-row fragment, as consecutive boxes of kBoxColumns. smem is aligned to 1024 bytes;
// `thread` counts within the warpgroup.
template <class Out, int kFirst, int kColumns, int kBoxColumns, class Value, int kCount>
__device__ __forceinline__ void fragment_to_smem(const Value (&value)[kCount], uint32_t smem, uint32_t thread) {
    if constexpr (sizeof(Out) == 4) store_32bit<kFirst, kColumns, kBoxColumns>(value, smem, thread);
    else store_16bit<Out, kFirst, kColumns, kBoxColumns>(value, smem, thread);
}

// All kCount * 2 columns of a 64-row fragment transposed: as rows of 64 elements, in boxes whose rows have 128 bytes.
template <class Out, class Value, int kCount>
__device__ __forceinline__ void fragment_to_smem_transposed(const Value (&value)[kCount], uint32_t smem, uint32_t thread) {
    if constexpr (sizeof(Out) == 4) store_32bit_transposed(value, smem, thread);
    else store_16bit_transposed<Out>(value, smem, thread);
}

}  // namespace deep_gemm::epilogue
