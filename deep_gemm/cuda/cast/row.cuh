// A scale for each row. A team of kTeam threads has a row: 32 elements of each thread stay in
// registers; the rest is read twice, the second time from L1 or L2.
//
// Config: kTeam, a warp or the whole CTA.
#pragma once
#include "deep_gemm/cast/common.cuh"

namespace deep_gemm {

template <class C>
__device__ __forceinline__ void cast_row(const CastParams& p) {
    static_assert(C::kTeam == kWarpThreads || C::kTeam == C::kThreads, "a warp or the whole CTA");
    constexpr uint32_t kChunkSize = cast::kChunkSize<C>, kHeld = 32 / kChunkSize, kStep = C::kTeam * kChunkSize;
    ptx::dependency_wait();
    ptx::dependency_launch();

    const uint32_t row = blockIdx.x * (C::kThreads / C::kTeam) + threadIdx.x / C::kTeam;
    const uint32_t first = threadIdx.x % C::kTeam * kChunkSize, rest = first + kHeld * kStep;
    uint4 held[kHeld];
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) held[i] = cast::load_chunk<C>(p, row, first + i * kStep);
    bool infinite = false;
    float amax = cast::finite_amax<C>(held, infinite);
#pragma unroll 4
    for (uint32_t column = rest; column < p.columns; column += kStep) {
        const uint4 chunk[] = {cast::load_chunk<C>(p, row, column)};
        amax = ptx::max_nan(amax, cast::finite_amax<C>(chunk, infinite));
    }
    if constexpr (C::kTeam == kWarpThreads) {
        amax = cast::lane_amax<1, kWarpThreads>(amax);
    } else {
        amax = cast::cta_amax<C::kThreads>(amax);
    }
    const cast::Scale scale = cast::scale_for<C>(p, amax, infinite);
    if (first == 0 && row < p.rows) p.scales[row * p.scale_row] = scale.scale;

    uint32_t overflows = 0;
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
        // Whole teams leave out what no thread of them has.
        if (i * kStep < p.columns) overflows += cast::cast_chunk<C>(p, row, first + i * kStep, held[i], scale);
    }
#pragma unroll 2
    for (uint32_t column = rest; column < p.columns; column += kStep) {
        overflows += cast::cast_chunk<C>(p, row, column, cast::load_chunk<C>(p, row, column), scale);
    }
    cast::add_overflows(p, overflows);
}

}  // namespace deep_gemm
