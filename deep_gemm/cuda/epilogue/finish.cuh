// From sums over K to results: alpha, scales of rows and columns, beta * C. What is not asked for is not compiled.
#pragma once
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::epilogue {

// C, row-major. Its elements are read by the threads that hold their sums; beyond m and n nothing is.
template <class Out>
struct Addend {
    const Out* c;
    int64_t stride;
    uint32_t m, n;

    template <class Value>
    __device__ __forceinline__ void one(uint32_t row, uint32_t column, Value& value) const {
        using Bits = typename Choose<sizeof(Out) == 4, uint32_t, uint16_t>::Type;
        const bool exists = row < m && column < n;
        value = exists ? ptx::widen<Out>(ptx::load_l2(reinterpret_cast<const Bits*>(c + row * stride + column))) : 0;
    }
    // Two neighbours, of which the first's column is even: both are there or neither.
    template <class Value>
    __device__ __forceinline__ void two(uint32_t row, uint32_t column, Value& first, Value& second) const {
        const auto* address = reinterpret_cast<const uint32_t*>(c + row * stride + column);
        uint32_t bits[2] = {};
        if (row < m && column < n) {
            if constexpr (sizeof(Out) == 4) ptx::load_l2(address, bits);
            else bits[0] = ptx::load_l2(address), bits[1] = bits[0] >> 16, bits[0] &= 0xffff;
        }
        first = ptx::widen<Out>(bits[0]), second = ptx::widen<Out>(bits[1]);
    }
};

// Element i of a thread's fragment lies in row i / 2 % 2 * 8 of the thread's first one, and in column i / 4 * 8 + i % 2.
constexpr __device__ __forceinline__ uint32_t row_of(uint32_t i) { return i / 2 % 2 * 8; }
constexpr __device__ __forceinline__ uint32_t column_of(uint32_t i) { return i / 4 * 8 + i % 2; }

// Multiplies by alpha and, if kScaled, by a scale of A's row and then one of B's row, of which the tile's lie in shared
// memory at `rows` and `columns`, from the thread's first row and column on. Rows are B's where kSwapped.
template <bool kScaled, bool kSwapped, int kCount>
__device__ __forceinline__ void scale(float (&value)[kCount], float alpha, uint32_t rows, uint32_t columns) {
    if constexpr (kScaled) {
        float row[2] = {ptx::load_shared(rows), ptx::load_shared(rows + 8 * 4)};
        if constexpr (!kSwapped) row[0] *= alpha, row[1] *= alpha;
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
            float column[2];
            ptx::load_shared(columns + column_of(i) * 4, column);
            if constexpr (kSwapped) column[0] *= alpha, column[1] *= alpha;
#pragma unroll
            for (int j = i; j < i + 4; ++j) {
                const float of_row = row[j / 2 % 2], of_column = column[j % 2];
                value[j] = kSwapped ? value[j] * of_column * of_row : value[j] * of_row * of_column;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) value[i] *= alpha;
    }
}

// Reads the elements of C that belong to a thread's values. row: of the first value in the product;
// column_at: of the product, of a value's column, by the offset from the first.
template <bool kSwapped, class Out, class Value, int kCount, class ColumnAt>
__device__ __forceinline__ void read(Value (&values)[kCount], const Addend<Out>& addend, uint32_t row, ColumnAt column_at) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
        const uint32_t r = row + row_of(i), s = column_at(column_of(i));
        if constexpr (kSwapped) addend.one(s, r, values[i]), addend.one(column_at(column_of(i + 1)), r, values[i + 1]);
        else addend.two(r, s, values[i], values[i + 1]);
    }
}

// Adds beta * C to a value; to exact sums, alpha and beta being 1, C.
__device__ __forceinline__ void add(float& value, float c, float beta) { value = __fmaf_rn(beta, c, value); }
__device__ __forceinline__ void add(int& value, int c, float) { value += c; }

}  // namespace deep_gemm::epilogue
