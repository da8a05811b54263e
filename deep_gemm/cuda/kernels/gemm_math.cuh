// The math warpgroups of gemm_sm90: wgmma, promotion, the sum over a cluster, the store.
#pragma once
#include "deep_gemm/epilogue/scales.cuh"
#include "deep_gemm/epilogue/store.cuh"
#include "deep_gemm/kernels/gemm_plan.cuh"
#include "deep_gemm/mma/descriptor.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/ptx/tma.cuh"
#include "deep_gemm/ptx/wgmma.cuh"

namespace deep_gemm {

template <bool kFirst, class First, class Second>
struct Choose {
    using Type = First;
};
template <class First, class Second>
struct Choose<false, First, Second> {
    using Type = Second;
};

// A math warpgroup: where its rows lie, and the steps of its loop over k-blocks.
template <class C, class Mma>
struct MathWarpgroup {
    using P = Plan<C>;
    using Scales = typename Choose<C::kSwapped, epilogue::ColumnScales<P::kElements, P::kTokenScales>,
                                   epilogue::RowScales<P::kElements, P::kMain, P::kScaleBlocks, P::kTokenScales>>::Type;

    const Cta<C>& cta;
    uint32_t warpgroup, thread, lane;
    uint32_t first_row;                // of this warpgroup, in the tile
    uint32_t base_rows, base_columns;  // descriptors of stage 0
    pipeline::Position<C::kStages> at;
    uint32_t weight = 0;  // first of the tile, in its block of 128
    uint32_t buffer = 0;  // store slab to be written next

    __device__ __forceinline__ MathWarpgroup(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread)
        : cta(cta), warpgroup(warpgroup), thread(thread), lane(thread % kWarpThreads) {
        first_row = warpgroup * P::kWaves * 64;
        // NOTE: from a register that differs by thread, every MMA would be preceded by R2UR; the shuffle
        // tells the compiler that the value is the same for the warp.
        base_rows = __shfl_sync(~0u, mma::descriptor_low(cta.stage_rows(0) + first_row * kBlockK), 0);
        base_columns = __shfl_sync(~0u, mma::descriptor_low(cta.stage_columns(0)), 0);
    }

    // Every math warp tells every CTA that loads into this one's stage that it has read it.
    __device__ __forceinline__ void release(uint32_t stage) const {
        if constexpr (P::kMulticast == 1) {
            if (lane == 0) ptx::mbarrier_arrive(cta.barriers.empty(stage));
        } else {
            if (lane < P::kMulticast) ptx::mbarrier_arrive_remote(cta.barriers.empty(stage), cta.first_sharer + lane);
        }
    }

    // Starts partial = rows . columns over one k-block of a stage, for one wave.
    __device__ __forceinline__ void issue(float (&partial)[P::kElements], uint32_t stage, uint32_t wave) const {
        const uint32_t rows = base_rows + stage * (P::kStageRows >> 4) + wave * (64 * kBlockK >> 4);
        const uint32_t columns = base_columns + stage * (P::kStageColumns >> 4);
        ptx::fence_registers(partial);
        ptx::wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < kBlockK / Mma::kK; ++k) {
            Mma::issue(partial, mma::descriptor(rows + (k * Mma::kK >> 4)), mma::descriptor(columns + (k * Mma::kK >> 4)), k > 0);
        }
        ptx::wgmma_commit();
        ptx::fence_registers(partial);
    }

    __device__ __forceinline__ void load_scales(Scales& scales, uint32_t stage, uint32_t wave) const {
        if constexpr (C::kSwapped) scales.load(cta.scales(stage), lane, (weight + first_row + wave * 64) / 128);
        else scales.load(cta.scales(stage), first_row + wave * 64 + thread / kWarpThreads * 16 + lane / 4, 0);
    }

    // Ends a wave's k-block, of which at most kPending started later may still run: total += scales * partial.
    template <uint32_t kPending>
    __device__ __forceinline__ void finish(float (&total)[P::kElements], float (&partial)[P::kElements], const Scales& scales,
                                           uint32_t stage, bool last_wave) const {
        ptx::wgmma_wait<kPending>();
        ptx::fence_registers(partial);
        if (last_wave) release(stage);
        scales.promote(total, partial);
    }

    // One partial sum for all waves: a wave's promotion waits for its own MMAs, and another warpgroup's run meanwhile.
    __device__ __forceinline__ void accumulate(float (&total)[P::kWaves][P::kElements], uint32_t blocks) {
        float partial[P::kElements];
        Scales scales;
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_full(at);
#pragma unroll
            for (uint32_t wave = 0; wave < P::kWaves; ++wave) {
                load_scales(scales, at.stage, wave);
                issue(partial, at.stage, wave);
                finish<0>(total[wave], partial, scales, at.stage, wave == P::kWaves - 1);
            }
        }
    }

    // Starts the MMAs of the next k-block into `next`, then promotes those of the one before from `current`.
    // NOTE: scales are loaded before MMAs are started; beside running MMAs they arrive after those have ended.
    __device__ __forceinline__ void overlap(float (&total)[P::kElements], float (&next)[P::kElements], Scales& next_scales,
                                            float (&current)[P::kElements], const Scales& current_scales, uint32_t& stage) {
        cta.barriers.wait_full(at);
        load_scales(next_scales, at.stage, 0);
        issue(next, at.stage, 0);
        finish<1>(total, current, current_scales, stage, true);
        stage = at.stage;
        at.advance();
    }

    // Two partial sums, where registers allow: the MMAs of one k-block run while the one before is promoted.
    __device__ __forceinline__ void accumulate_overlapped(float (&total)[P::kElements], uint32_t blocks) {
        if (C::kSplitK > 1 && blocks == 0) return;
        float even[P::kElements], odd[P::kElements];
        Scales even_scales, odd_scales;
        cta.barriers.wait_full(at);
        load_scales(even_scales, at.stage, 0);
        issue(even, at.stage, 0);
        uint32_t stage = at.stage;
        at.advance();
        for (uint32_t left = blocks - 1;; left -= 2) {
            if (left == 0) return finish<0>(total, even, even_scales, stage, true);
            overlap(total, odd, odd_scales, even, even_scales, stage);
            if (left == 1) return finish<0>(total, odd, odd_scales, stage, true);
            overlap(total, even, even_scales, odd, odd_scales, stage);
        }
    }

    // Waits until the slab to be written next has been read by the store before; returns its address.
    __device__ __forceinline__ uint32_t claim_slab() const {
        if (thread == 0) ptx::tma_store_wait_read<C::kStoreBuffers - 1>();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        return cta.smem + P::kOffsetSlabs + (warpgroup * C::kStoreBuffers + buffer) * P::kSlab;
    }

    // Sends a written slab off by send(), which one thread calls.
    template <class Send>
    __device__ __forceinline__ void send_slab(Send send) {
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        if (thread == 0) {
            send();
            ptx::tma_store_commit();
        }
        buffer = buffer + 1 == C::kStoreBuffers ? 0 : buffer + 1;
    }

    // Stores 64 rows of results, from `row` of the product and `first` of the tile's columns on, slab by slab.
    template <int kCount, uint32_t kFirst = 0>
    __device__ __forceinline__ void store(const float (&total)[kCount], uint32_t row, const Columns<C>& columns, uint32_t first) {
        if ((C::kSwapped ? columns.at(first) : row) >= cta.m()) return;
        const uint32_t slab = claim_slab();
        if constexpr (C::kSwapped) {
            epilogue::store_slab_transposed(total, slab, thread);
            send_slab([&] { ptx::tma_store(&cta.params.map_d, slab, row, columns.at(first)); });
        } else {
            // Boxes of kBox columns, then one of as many as the tile's extra columns, which is those in the last piece.
            constexpr uint32_t kBox = C::kBoxColumns, kRest = P::kExtra, kBoxed = C::kSlabColumns - kRest;
            epilogue::store_slab<kFirst, kBoxed, kBox>(total, slab, thread);
            if constexpr (kRest > 0) epilogue::store_slab<kFirst + kBoxed, kRest, kRest>(total, slab + kBoxed * 128, thread);
            send_slab([&] {
#pragma unroll
                for (uint32_t i = 0; i < kBoxed; i += kBox) {
                    ptx::tma_store(&cta.params.map_d, slab + i * 128, columns.at(first + kFirst + i), row);
                }
                if constexpr (kRest > 0) {
                    ptx::tma_store(&cta.params.map_rest, slab + kBoxed * 128, columns.at(first + kFirst + kBoxed), row);
                }
            });
            if constexpr (kFirst + C::kSlabColumns < kCount * 2) store<kCount, kFirst + C::kSlabColumns>(total, row, columns, first);
        }
    }
};

template <class C, class Mma>
__device__ __forceinline__ void compute(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread) {
    using P = Plan<C>;
    MathWarpgroup<C, Mma> math(cta, warpgroup, thread);
    typename P::Exchange exchange = cta.exchange();
    float total[P::kWaves][P::kElements];

    for (auto tile = cta.tiles(); tile.next();) {
        const uint32_t row = cta.row(tile) + math.first_row;
        const Columns<C> columns = cta.columns(tile);
        math.weight = cta.weight(tile) % 128;
#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave)
#pragma unroll
            for (uint32_t i = 0; i < P::kElements; ++i) total[wave][i] = 0.0f;

        if constexpr (C::kPartials == 2) math.accumulate_overlapped(total[0], cta.k_blocks);
        else math.accumulate(total, cta.k_blocks);

        if constexpr (C::kSplitK > 1) {
            exchange.send(total[0], warpgroup, thread);
            if (exchange.owns()) {
                float sums[P::kPiece / 2];
                exchange.receive(total[0], sums, warpgroup, thread);
                math.store(sums, row, columns, exchange.first_group(cta.rank_k) * 8);
            }
            exchange.release(math.lane);
        } else {
#pragma unroll
            for (uint32_t wave = 0; wave < P::kWaves; ++wave) math.store(total[wave], row + wave * 64, columns, 0);
        }
    }
    if constexpr (C::kSplitK > 1) exchange.drain();
    if (thread == 0) ptx::tma_store_wait_read<0>();
}

}  // namespace deep_gemm
