// The caller's scales, for any granularity of rows, and of columns a multiple of a chunk (or, with
// kElementwise, one column). A thread has four chunks under way.
#pragma once
#include "deep_gemm/kernels/cast.cuh"

namespace deep_gemm {

template <class C>
__device__ __forceinline__ void cast_given(const CastParams& p) {
    static_assert(sizeof(CastParams) == C::kParamsBytes, "the host has another parameter");
    constexpr uint32_t kVector = cast::kVector<C>, kChunks = C::kChunks;
    ptx::dependency_wait();
    ptx::dependency_launch();

    uint32_t rows[kChunks], columns[kChunks];
    uint4 chunks[kChunks];
#pragma unroll
    for (uint32_t i = 0; i < kChunks; ++i) {
        const uint32_t index = (blockIdx.x * kChunks + i) * C::kThreads + threadIdx.x;
        rows[i] = p.per_row.quotient(index);
        columns[i] = (index - rows[i] * p.per_row.divisor) * kVector;
        chunks[i] = cast::load_chunk<C>(p, rows[i], columns[i]);
    }
    uint32_t beyond = 0;
#pragma unroll
    for (uint32_t i = 0; i < kChunks; ++i) {
        if (rows[i] >= p.rows) continue;
        const float* of_row = p.scales + p.gran_rows.quotient(rows[i]) * p.scale_row;
        if constexpr (C::kElementwise) {
            cast::Scales<kVector> scales;
#pragma unroll
            for (uint32_t j = 0; j < kVector; ++j) {
                const uint32_t column = columns[i] + j;
                scales.set(j, cast::Scale(column < p.columns ? of_row[column * p.scale_column] : 1.0f));
            }
            beyond += cast::cast_chunk<C, true>(p, rows[i], columns[i], chunks[i], scales);
        } else {
            const cast::Scale scale(of_row[p.gran_columns.quotient(columns[i]) * p.scale_column]);
            beyond += cast::cast_chunk<C, true>(p, rows[i], columns[i], chunks[i], scale);
        }
    }
    cast::count_beyond(p, beyond);
}

}  // namespace deep_gemm
