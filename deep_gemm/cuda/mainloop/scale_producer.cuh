// The loop of a producer warp that loads scales along K: from global memory through registers into the stages, so that any
// strides will do, and what lies beyond M and N is never read.
#pragma once
#include "deep_gemm/gemm/cta.cuh"

namespace deep_gemm::mainloop {

// Offset of B's scales in a stage.
template <class Traits>
constexpr uint32_t kScaleOffsetB = DG_OFFSETOF(typename SharedStorage<Traits>::StageScales, b);

// Lane: what one lane loads,
//   kBatch              k-blocks loaded at a time
//   kInterleave         the warp loads every kInterleave-th k-block, from the first-th on
//   Batch               their scales in registers
//   begin_tile(tile)    returns how many k-blocks of the tile are this warp's
//   load(batch, count)  the next kBatch k-blocks, of which `count` exist
//   store(batch, index, stage)
// One batch is on its way from global memory while another is stored.
template <class Traits, class Lane>
__device__ __forceinline__ void run_scale_warp(const CtaContext<Traits>& cta, Lane lane, uint32_t first) {
    pipeline::PipelineState<Traits::kNumStages> state;
    for (uint32_t i = 0; i < first; ++i) state.advance();
    for (auto tile = cta.tile_scheduler(); tile.next();) {
        uint32_t k_blocks = lane.begin_tile(tile);  // from the current batch on
        typename Lane::Batch current, next;
        lane.load(current, k_blocks);
        while (k_blocks > 0) {
            lane.load(next, k_blocks > Lane::kBatch ? k_blocks - Lane::kBatch : 0);
#pragma unroll
            for (uint32_t index = 0; index < Lane::kBatch; ++index) {
                if (k_blocks > 0) {
                    cta.barriers.wait_empty(state);
                    lane.store(current, index, state.stage);
                    __syncwarp();
                    if (lane.lane == 0) ptx::mbarrier_arrive(cta.barriers.full(state.stage));
#pragma unroll
                    for (uint32_t i = 0; i < Lane::kInterleave; ++i) state.advance();
                    --k_blocks;
                }
            }
            current = next;
        }
    }
}

}  // namespace deep_gemm::mainloop
