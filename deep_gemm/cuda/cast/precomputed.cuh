// The caller's scales, for any granularity of rows, and of columns a multiple of a chunk (or, with
// kElementwise, one column). A thread has kChunks chunks in flight.
#pragma once
#include "deep_gemm/cast/common.cuh"

namespace deep_gemm {

template <class C>
__device__ __forceinline__ void cast_precomputed(const CastParams& p) {
    constexpr uint32_t kChunkSize = cast::kChunkSize<C>, kChunks = C::kChunks;
    ptx::dependency_wait();
    ptx::dependency_launch();

    uint32_t rows[kChunks], columns[kChunks];
    uint4 chunks[kChunks];
#pragma unroll
    for (uint32_t i = 0; i < kChunks; ++i) {
        const uint32_t index = (blockIdx.x * kChunks + i) * C::kThreads + threadIdx.x;
        rows[i] = p.per_row.quotient(index);
        columns[i] = (index - rows[i] * p.per_row.divisor) * kChunkSize;
        chunks[i] = cast::load_chunk<C>(p, rows[i], columns[i]);
    }
    uint32_t overflows = 0;
#pragma unroll
    for (uint32_t i = 0; i < kChunks; ++i) {
        if (rows[i] >= p.rows) continue;
        const float* row_scales = p.scales + p.gran_rows.quotient(rows[i]) * p.scale_row;
        if constexpr (C::kElementwise) {
            cast::Scales<kChunkSize> scales;
#pragma unroll
            for (uint32_t j = 0; j < kChunkSize; ++j) {
                const uint32_t column = columns[i] + j;
                scales.set(j, cast::Scale(column < p.columns ? row_scales[column * p.scale_column] : 1.0f));
            }
            overflows += cast::cast_chunk<C, true>(p, rows[i], columns[i], chunks[i], scales);
        } else {
            const cast::Scale scale(row_scales[p.gran_columns.quotient(columns[i]) * p.scale_column]);
            overflows += cast::cast_chunk<C, true>(p, rows[i], columns[i], chunks[i], scale);
        }
    }
    cast::add_overflows(p, overflows);
}

}  // namespace deep_gemm
