// What all main loops share: a math warpgroup's place in the tile, its wgmmas on a stage, and its end of the stage pipeline.
//
// A main loop is a struct over MainloopBase with
//   run(accum, tile, k_blocks)   the sums of a tile over this CTA's k-blocks, into zeroed accumulators
// and needs nothing from the epilogue or the tile scheduler.
#pragma once
#include "deep_gemm/gemm/cta.cuh"
#include "deep_gemm/ptx/wgmma.cuh"

namespace deep_gemm::mainloop {

template <class Traits>
struct MainloopBase {
    using Accum = typename Traits::Accum;
    using Tile = typename Traits::Tile;
    using Storage = SharedStorage<Traits>;
    static constexpr uint32_t kSlices = Traits::kMSlices, kAccums = Traits::kSliceAccums;
    static constexpr uint32_t kMmaStageBytesA =
        sizeof(typename Conditional<Traits::kSwapAB, typename Storage::B, typename Storage::A>::Type);
    static constexpr uint32_t kMmaStageBytesB =
        sizeof(typename Conditional<Traits::kSwapAB, typename Storage::A, typename Storage::B>::Type);

    const CtaContext<Traits>& cta;
    uint32_t thread, lane;
    uint32_t first_row;              // of this warpgroup along the tile's mma_m
    uint32_t descriptor_a, descriptor_b;  // low words for stage 0
    pipeline::PipelineState<Traits::kNumStages> state;
    typename Traits::OrderBarrier order;

    __device__ __forceinline__ MainloopBase(const CtaContext<Traits>& cta, uint32_t warpgroup, uint32_t thread)
        : cta(cta), thread(thread), lane(thread % kWarpThreads), order{warpgroup} {
        first_row = Traits::kPingPong ? 0 : warpgroup * kSlices * mma::kSliceM;
        const uint32_t a = Traits::kSwapAB ? cta.stage_b(0) : cta.stage_a(0), b = Traits::kSwapAB ? cta.stage_a(0) : cta.stage_b(0);
        // NOTE: a descriptor in a vector register costs an R2UR before every wgmma; the shuffle proves it warp-uniform.
        descriptor_a = ptx::warp_uniform(mma::descriptor_low<Traits::kMmaAIsMnMajor>(a + first_row * mma::kRowBytes));
        descriptor_b = ptx::warp_uniform(mma::descriptor_low<Traits::kMmaBIsMnMajor>(b));
    }

    // Starts the MMAs of one slice and one k-block into `accum`; kAccumulate: adds to it. Mma: the tile's, or one with fewer columns.
    template <bool kAccumulate, class Mma = typename Traits::Mma, int kCount>
    __device__ __forceinline__ void issue(Accum (&accum)[kCount], uint32_t stage, uint32_t slice) const {
        const uint32_t a = descriptor_a + stage * (kMmaStageBytesA >> 4) + slice * (mma::kSliceM * mma::kRowBytes >> 4);
        const uint32_t b = descriptor_b + stage * (kMmaStageBytesB >> 4);
        ptx::fence_registers(accum);
        ptx::wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < mma::kStepsPerKBlock; ++k) {
            Mma::issue(accum, mma::descriptor(a + k * mma::kStepK<Traits::kMmaAIsMnMajor>),
                       mma::descriptor(b + k * mma::kStepK<Traits::kMmaBIsMnMajor>), kAccumulate || k > 0);
        }
        ptx::wgmma_commit();
        ptx::fence_registers(accum);
    }

    // First row of the thread in the tile, of a slice.
    __device__ __forceinline__ uint32_t thread_row(uint32_t slice) const {
        return first_row + slice * mma::kSliceM + thread / kWarpThreads * 16 + lane / 4;
    }

    __device__ __forceinline__ void release(uint32_t stage) const { cta.release_stage(stage, lane); }

    // No valid rows in this warpgroup: releases the stages of a tile without an MMA.
    __device__ __forceinline__ void drain(uint32_t k_blocks) {
        for (uint32_t k_block = 0; k_block < k_blocks; ++k_block, state.advance()) {
            cta.barriers.wait_full(state);
            release(state.stage);
        }
    }
};

}  // namespace deep_gemm::mainloop
