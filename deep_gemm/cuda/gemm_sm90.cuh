// gemm_sm90: D[M, N] = epilogue(A[M, K] . B[N, K]), D row-major of 16- or 32-bit elements; persistent and warp-specialized.
//
// A and B are 8-bit and K-major, or 16-bit in either order. Scales along K belong to 1x128 of A with 128x128 or 1x128 of B and are
// applied by the main loop; one scale for each m and each n, alpha and beta * C are ops of the epilogue. With groups, rows of A
// belong to one of several B, or parts of K to one of several D, as only the device knows (GroupKind).
//
// Roles (one CTA)
//   producer warpgroup   warp 0        loads A and B of a k-block (128 bytes of K) by TMA, multicast over the cluster
//                        warps 1, 2    1D2D: load scales along K, alternating k-blocks
//                        warps 1 to 3  1D1D: load scales along K, each a third of every k-block
//                        warp 1        epilogue scales: loads those of each tile
//                        warp 3        groups: runs the tile scheduler and broadcasts its tiles (1D1D: warp 0 does)
//   math warpgroups      consumers: the main loop (wgmma, promotion) over kMSlices slices of 64 rows, then the epilogue
// CTAs of a cluster share tiles of A or of B by multicast (kClusterM, kClusterN), or compute one tile together, a part of K each
// (kSplitK), or both; split-K partial sums are reduced through distributed shared memory before the epilogue.
//
// Pipelines             filled by                              arrivals         freed by                       arrivals
//   stage               TMA bytes; one lane of warp 0 and      1 + 1 (1D2D)     each math warp of the tile,    math warps of a tile
//   (A, B, scales)      of the scale warps                     or + 3 (1D1D)    of all CTAs that share it      * kMulticast
//   epilogue scales     one lane of warp 1                     1                each math warp of the tile     math warps of a tile
//   work tiles          one lane of the scheduler warp         1                each other warp with a role    kNumTileConsumerWarps
//   split-K reduction   bytes of the other CTAs' partial sums  1                each math warp of the          math warps * kSplitK
//                                                                               CTAs of the same tile
//   store stage         a math warpgroup (named barrier)                        TMA store has read it (bulk groups)
//   order (kPingPong)   the warpgroup before (named barrier)
//
// Timeline of a math warpgroup with two slices, promoted; the other warpgroup's MMAs run while this one promotes:
//   wait full | mma slice 0 | promote slice 0 | mma slice 1 | release stage | promote slice 1 | ...
// With kPingPong each math warpgroup has its own tiles, and one's main loop runs under the other's epilogue:
//   order wait | mma of all k-blocks | order arrive | epilogue | skip the stages of the other's tile | order wait | ...
//
// Programmatic dependent launch: set-up overlaps the kernel ahead. All roles wait for its end before they access global memory,
// except that warp 0 first loads early_k_blocks of B, where the caller has said that no kernel in flight writes B.
#pragma once
#include "deep_gemm/epilogue/epilogue.cuh"
#include "deep_gemm/gemm/load.cuh"
#include "deep_gemm/mainloop/direct.cuh"
#include "deep_gemm/mainloop/scaled_1d1d.cuh"
#include "deep_gemm/mainloop/scaled_1d2d.cuh"

namespace deep_gemm {

// --- producer: operands ---------------------------------------------------------------------------

// NOTE: the loops belong to the whole warp and only the issue to one elected lane. In a loop of one lane the compiler keeps
// addresses in vector registers and wraps each copy in R2UR and a vote.
template <class Traits>
__device__ __forceinline__ void load_operands(const CtaContext<Traits>& cta) {
    OperandLoader<Traits, true> load_a(cta, &cta.params.map_a);
    OperandLoader<Traits, false> load_b(cta, &cta.params.map_b);
    if constexpr (Traits::kIsGrouped) ptx::dependency_wait();
    auto tile = [&] {
        if constexpr (Traits::kIsGrouped && !Traits::kHasSchedulerWarp) return cta.tile_producer();
        else return cta.tile_scheduler();
    }();
    const auto expect_stage = [&](uint32_t stage) {
        const uint32_t bytes = cta.params.stage_bytes - load_a.skipped_bytes(tile) - load_b.skipped_bytes(tile);
        ptx::mbarrier_arrive_expect_tx(cta.barriers.full(stage), bytes);
    };
    bool has_tile = tile.next();

    // Before the dependency wait: k-blocks of B for the first tile.
    const uint32_t allowed = Traits::kIsGrouped || !has_tile ? 0 : cta.params.early_k_blocks;
    uint32_t early = cta.k_range.count < allowed ? cta.k_range.count : allowed;
    for (uint32_t k_block = 0; k_block < early; ++k_block) {
        if (ptx::elect_one()) {
            expect_stage(k_block);
            load_b.load(k_block, tile, k_block);
        }
    }
    if constexpr (!Traits::kIsGrouped) ptx::dependency_wait();

    pipeline::PipelineState<Traits::kNumStages> state;
    for (; has_tile; has_tile = tile.next()) {
        const uint32_t k_blocks = cta.num_k_blocks(tile);
        if (k_blocks > 0) load_a.begin_tile(tile), load_b.begin_tile(tile);
        for (uint32_t k_block = 0; k_block < k_blocks; ++k_block, state.advance()) {
            cta.barriers.wait_empty(state);
            if (k_block == 0) Traits::EpilogueChain::prefetch_tile(cta, tile);
            if (ptx::elect_one()) {
                if (early == 0) {
                    expect_stage(state.stage);
                    load_b.load(state.stage, tile, k_block);
                }
                load_a.load(state.stage, tile, k_block);
                if constexpr (Traits::kPrefetchesD) epilogue::prefetch_d(cta, tile, k_block);
            }
            early -= early > 0;
        }
    }
    // A CTA must not exit while another can still arrive at its barriers: wait for the last releases.
    if constexpr (Traits::kMulticast > 1) {
        for (uint32_t i = 0; i < Traits::kNumStages; ++i, state.advance()) cta.barriers.wait_empty(state);
    }
}

// --- producer: other warps ------------------------------------------------------------------------

template <class Traits>
__device__ __forceinline__ void run_scheduler_warp(const CtaContext<Traits>& cta) {
    for (auto tile = cta.tile_producer(); tile.next();) {
    }
}

template <class Traits>
__device__ __forceinline__ void run_producer_warp(const CtaContext<Traits>& cta, uint32_t warp, uint32_t lane) {
    if (warp == 0) return load_operands(cta);
    ptx::dependency_wait();
    if constexpr (Traits::kHasSchedulerWarp) {
        if (warp == 3) return run_scheduler_warp(cta);
    }
    if constexpr (Traits::kIs1d1d) {
        mainloop::run_scale_warp_1d1d(cta, warp - 1, lane);
    } else if constexpr (Traits::kIs1d2d) {
        if (warp <= Traits::kNumScaleWarps) mainloop::run_scale_warp_1d2d(cta, warp - 1, lane);
    } else if constexpr (Traits::kHasEpilogueScales) {
        if (warp == 1) epilogue::run_scale_warp(cta, lane);
    }
}

// --- consumers ------------------------------------------------------------------------------------

template <class Traits>
struct SelectMainloop {
    using Scales = typename Conditional<Traits::kIs1d2d, mainloop::Scales1d2d<Traits>, mainloop::Unscaled<Traits>>::Type;
    using Promoted = mainloop::PromotedMainloop<Traits, Scales>;
    using Unpromoted = mainloop::DirectMainloop<Traits>;
    using Type = typename Conditional<Traits::kIs1d1d, mainloop::Mainloop1d1d<Traits>,
                                      typename Conditional<Traits::kMainloop == Mainloop::kDirect, Unpromoted, Promoted>::Type>::Type;
};

template <class Traits>
__device__ __forceinline__ void consume(const CtaContext<Traits>& cta, uint32_t warpgroup, uint32_t thread) {
    using Accum = typename Traits::Accum;
    typename SelectMainloop<Traits>::Type mainloop(cta, warpgroup, thread);
    epilogue::Epilogue<Traits> epilogue(cta, warpgroup, thread);
    auto reduce = cta.cluster_reduce();
    pipeline::PipelineState<Traits::kTilesInFlight> in_flight;  // kPingPong: whose tile it is
    uint32_t epilogue_scale_phase = 0;
    Accum accum[Traits::kMSlices][Traits::kSliceAccums];

    mainloop.order.init();
    for (auto tile = cta.tile_scheduler(); tile.next(); in_flight.advance()) {
        const uint32_t k_blocks = cta.num_k_blocks(tile);
        if (Traits::kPingPong && in_flight.stage != warpgroup) {
            mainloop.state.skip(k_blocks);
            continue;
        }
        const uint32_t mma_m = cta.mma_m_idx(tile) + mainloop.first_row;
        const auto mma_n = cta.mma_n_range(tile);
        epilogue.begin_tile(tile);
#pragma unroll
        for (uint32_t slice = 0; slice < Traits::kMSlices; ++slice)
#pragma unroll
            for (uint32_t i = 0; i < Traits::kSliceAccums; ++i) accum[slice][i] = 0;

        constexpr bool kMaySkipRows = Traits::kIsGrouped && !Traits::kSwapAB && !Traits::kPingPong;
        if (kMaySkipRows && ptx::warp_any(mma_m >= epilogue.d_store.m_end())) mainloop.drain(k_blocks);
        else mainloop.run(accum, tile, k_blocks);

        const uint32_t slot = Traits::kPingPong ? warpgroup : 0;
        if constexpr (Traits::kHasEpilogueScales) cta.epilogue_scale_barriers().wait_full({slot, epilogue_scale_phase});
        if constexpr (Traits::kSplitK > 1) {
            reduce.send(accum[0], warpgroup, thread);
            if (reduce.is_owner()) {
                Accum sum[Traits::kReduceMmaN / 2];
                reduce.receive(accum[0], sum, warpgroup, thread);
                epilogue.store_slice(sum, mma_m, mma_n, reduce.first_group(cta.rank_k) * 8);
            }
            reduce.release(mainloop.lane);
        } else {
            epilogue.store_tile(accum, mma_m, mma_n);
        }
        if constexpr (Traits::kHasEpilogueScales) {
            __syncwarp();
            if (mainloop.lane == 0) ptx::mbarrier_arrive(cta.epilogue_scale_barriers().empty(slot));
            epilogue_scale_phase ^= 1;
        }
    }
    if constexpr (Traits::kSplitK > 1) reduce.wait_all_read();
    if (thread == 0) ptx::tma_store_wait_read<0>();
}

// --- entry ----------------------------------------------------------------------------------------

// Called by one thread.
template <class Traits>
__device__ __forceinline__ void init_barriers(const CtaContext<Traits>& cta) {
    constexpr uint32_t kScaleArrivals = Traits::kIs1d1d ? Traits::kNumScaleWarps : Traits::kIs1d2d ? 1 : 0;  // at each stage
    if constexpr (Traits::kSplitK > 1) cta.cluster_reduce().init();
    if constexpr (Traits::kHasEpilogueScales) cta.epilogue_scale_barriers().init(1, Traits::kMathWarpsPerTile);
    if constexpr (Traits::kIsGrouped) cta.work_tiles().barriers.init(1, Traits::kNumTileConsumerWarps);
    cta.barriers.init(1 + kScaleArrivals, Traits::kMathWarpsPerTile * Traits::kMulticast);
}

template <class Config>
__device__ __forceinline__ void gemm_sm90(const typename GemmTraits<Config>::Params& params) {
    using Traits = GemmTraits<Config>;
    extern __shared__ __align__(1024) uint8_t shared[];
    const CtaContext<Traits> cta(params, ptx::shared_address(shared));
    const uint32_t warp = ptx::warp_uniform(threadIdx.x / kWarpThreads), lane = threadIdx.x % kWarpThreads;

    if (threadIdx.x == 0) {
        ptx::tma_prefetch_map(&params.map_b);
        if constexpr (Traits::kNTail > 0) ptx::tma_prefetch_map(&params.map_b_tail);
        if constexpr (Traits::kStoreTailN > 0) ptx::tma_prefetch_map(&params.map_d_tail);
        ptx::tma_prefetch_map(&params.map_a);
        ptx::tma_prefetch_map(&params.map_d);
        init_barriers(cta);
    }
    if constexpr (Traits::kIs1d1d) mainloop::clear_scales_1d1d(cta);
    if constexpr (Traits::kClusterSize > 1) ptx::cluster_sync_relaxed();
    else __syncthreads();
    ptx::dependency_launch();

    if (warp >= Traits::kNumMathWarps) {
        if constexpr (Traits::kProducerRegisters > 0) ptx::registers_decrease<Traits::kProducerRegisters>();
        run_producer_warp(cta, warp - Traits::kNumMathWarps, lane);
    } else {
        if constexpr (Traits::kMathRegisters > 0) ptx::registers_increase<Traits::kMathRegisters>();
        ptx::dependency_wait();
        consume(cta, warp / 4, threadIdx.x % kWarpgroupThreads);
    }
}

}  // namespace deep_gemm
