// The producer warp that loads a tile's epilogue scales, one for each m and each n, to shared memory. The math warps read them
// after the last k-block.
#pragma once
#include "deep_gemm/gemm/cta.cuh"

namespace deep_gemm::epilogue {

template <class Traits>
__device__ __forceinline__ void run_scale_warp(const CtaContext<Traits>& cta, uint32_t lane) {
    const int64_t stride_m = cta.params.sfa_stride_m, stride_n = cta.params.sfb_stride_n;
    pipeline::PipelineState<Traits::kTilesInFlight> state;
    for (auto tile = cta.tile_scheduler(); tile.next(); state.advance()) {
        const float *sfa = cta.sfa(tile), *sfb = cta.sfb(tile);
        const uint32_t m_end = cta.m_end(tile), n_end = cta.n(), m = cta.m_idx(tile), n = cta.n_idx(tile);
        const uint32_t scales_m = cta.epilogue_scales_m(state.stage), scales_n = cta.epilogue_scales_n(state.stage);
        cta.epilogue_scale_barriers().wait_empty(state);
#pragma unroll 4
        for (uint32_t i = lane; i < Traits::kBlockM; i += kWarpThreads) {
            ptx::store_shared(scales_m + i * 4, m + i < m_end ? sfa[(m + i) * stride_m] : 0.0f);
        }
#pragma unroll 4
        for (uint32_t i = lane; i < Traits::kBlockN; i += kWarpThreads) {
            ptx::store_shared(scales_n + i * 4, n + i < n_end ? sfb[(n + i) * stride_n] : 0.0f);
        }
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(cta.epilogue_scale_barriers().full(state.stage));
    }
}

}  // namespace deep_gemm::epilogue
