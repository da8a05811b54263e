// Epilogue: from a warpgroup's accumulators to D, one store stage at a time: the chain of ops, rounding, shared memory, store.
#pragma once
#include "deep_gemm/epilogue/ops.cuh"
#include "deep_gemm/epilogue/scale_producer.cuh"
#include "deep_gemm/epilogue/store.cuh"

namespace deep_gemm::epilogue {

template <class Traits>
struct Epilogue {
    using Chain = typename Traits::EpilogueChain;
    using Prefetched = typename Chain::template Prefetched<Traits>;
    using Accum = typename Traits::Accum;
    using Out = typename Traits::Out;
    using Value = typename Traits::Value;
    using Range = SplitRange<CtaContext<Traits>::kNHead>;
    static constexpr uint32_t kSlices = Traits::kMSlices, kAccums = Traits::kSliceAccums;

    const CtaContext<Traits>& cta;
    uint32_t warpgroup, thread, lane;
    DStore<Traits> d_store;
    uint32_t store_stage = 0;  // to be written next
    uint32_t tile_mma_m = 0;

    __device__ __forceinline__ Epilogue(const CtaContext<Traits>& cta, uint32_t warpgroup, uint32_t thread)
        : cta(cta), warpgroup(warpgroup), thread(thread), lane(thread % kWarpThreads), d_store{cta, thread} {}

    __device__ __forceinline__ void begin_tile(const typename Traits::Tile& tile) {
        tile_mma_m = cta.mma_m_idx(tile);
        d_store.begin_tile(tile);
    }

    // Stores this warpgroup's slices of a tile, the first of which begins at mma_m.
    __device__ __forceinline__ void store_tile(const Accum (&accum)[kSlices][kAccums], uint32_t mma_m, const Range& mma_n) {
        if constexpr (Traits::kHalfN > 0) {
            if (cta.is_half_n(mma_n.head)) return store_slice(mma::first_columns<Traits::kHalfAccums>(accum[0]), mma_m, mma_n, 0);
        }
#pragma unroll
        for (uint32_t slice = 0; slice < kSlices; ++slice) store_slice(accum[slice], mma_m + slice * mma::kSliceM, mma_n, 0);
    }

    // Stores the results of one slice: row mma_m on, and from the tile's column `col` on.
    template <int kCount>
    __device__ __forceinline__ void store_slice(const Accum (&accum)[kCount], uint32_t mma_m, const Range& mma_n, uint32_t col) {
        if ((Traits::kSwapAB ? mma_n.at(col) : mma_m) >= d_store.m_store_end()) return;
        Prefetched prefetched;
        Chain::template prefetch<stage_columns<kCount>(0) / 2>(prefetched, coord(mma_m, mma_n, col));
        store_stages<kCount, 0>(accum, mma_m, mma_n, col, prefetched);
    }

private:
    __device__ __forceinline__ FragmentCoord<Traits> coord(uint32_t mma_m, const Range& mma_n, uint32_t col) const {
        const uint32_t row = thread / kWarpThreads * 16 + lane / 4;
        return {cta, Traits::kPingPong ? warpgroup : 0, tile_mma_m, mma_m, mma_n, col, row, mma::thread_col(lane)};
    }

    // Columns of the store stage that begins with column `from` of kCount * 2.
    template <int kCount>
    static constexpr uint32_t stage_columns(uint32_t from) {
        return kCount * 2 - from < Traits::kStoreStageMmaN ? kCount * 2 - from : Traits::kStoreStageMmaN;
    }

    // One store stage, then those behind it. Operands of the next one are prefetched before this one is finished.
    template <int kCount, uint32_t kFirst>
    __device__ __forceinline__ void store_stages(const Accum (&accum)[kCount], uint32_t mma_m, const Range& mma_n, uint32_t col,
                                                 const Prefetched& prefetched) {
        constexpr uint32_t kColumns = stage_columns<kCount>(kFirst), kNext = kFirst + kColumns;
        constexpr bool kIsLast = kNext == kCount * 2;
        Value value[kColumns / 2];
        Prefetched next;
        if constexpr (!kIsLast) Chain::template prefetch<stage_columns<kCount>(kNext) / 2>(next, coord(mma_m, mma_n, col + kNext));
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) value[i] = static_cast<Value>(accum[kFirst / 2 + i]);
        Chain::apply(value, prefetched, coord(mma_m, mma_n, col + kFirst));
        const uint32_t smem = acquire_store_stage();
        if constexpr (Traits::kSwapAB) store_stage_transposed<kColumns>(value, smem, mma_m, mma_n.at(col));
        else store_stage_boxes<kColumns, kIsLast ? Traits::kStoreTailN : 0>(value, smem, mma_m, mma_n, col + kFirst);
        if constexpr (!kIsLast) store_stages<kCount, kNext>(accum, mma_m, mma_n, col, next);
    }

    // Boxes of kStoreBoxN columns, then one of kTail: what whole boxes leave over, or the N tail.
    template <uint32_t kColumns, uint32_t kTail>
    __device__ __forceinline__ void store_stage_boxes(const Value (&value)[kColumns / 2], uint32_t smem, uint32_t m, const Range& n,
                                                      uint32_t col) {
        constexpr uint32_t kBox = Traits::kStoreBoxN, kBoxed = kColumns - kTail, kColumnBytes = mma::kSliceM * sizeof(Out);
        fragment_to_smem<Out, 0, kBoxed, kBox>(value, smem, thread);
        if constexpr (kTail > 0) fragment_to_smem<Out, kBoxed, kTail, kTail>(value, smem + kBoxed * kColumnBytes, thread);
        const bool is_ragged = d_store.is_ragged(m, mma::kSliceM);
        commit_store_stage(is_ragged, [&] {
#pragma unroll
            for (uint32_t i = 0; i < kBoxed; i += kBox) {
                const uint32_t box = smem + i * kColumnBytes, box_n = n.at(col + i);
                if (is_ragged) d_store.template store_rows<kBox * sizeof(Out)>(box, box_n, m, mma::kSliceM);
                else d_store.store_box(&cta.params.map_d, box, box_n, m);
            }
            if constexpr (kTail > 0) {
                const uint32_t box = smem + kBoxed * kColumnBytes, box_n = n.at(col + kBoxed);
                if (is_ragged) d_store.template store_rows<kTail * sizeof(Out)>(box, box_n, m, mma::kSliceM);
                else d_store.store_box(&cta.params.map_d_tail, box, box_n, m);
            }
        });
    }

    // Swap-AB: boxes of 128 bytes along n, with a row for each m of the stage.
    template <uint32_t kColumns>
    __device__ __forceinline__ void store_stage_transposed(const Value (&value)[kColumns / 2], uint32_t smem, uint32_t n, uint32_t m) {
        fragment_to_smem_transposed<Out>(value, smem, thread);
        const bool is_ragged = d_store.is_ragged(m, kColumns);
        commit_store_stage(is_ragged, [&] {
#pragma unroll
            for (uint32_t i = 0; i < mma::kSliceM; i += Traits::kStoreBoxN) {
                const uint32_t box = smem + i / Traits::kStoreBoxN * kColumns * 128;
                if (is_ragged) d_store.template store_rows<128>(box, n + i, m, kColumns);
                else d_store.store_box(&cta.params.map_d, box, n + i, m);
            }
        });
    }

    // Waits until the stage to be written next has been read by its last store; returns its shared address.
    __device__ __forceinline__ uint32_t acquire_store_stage() const {
        if (thread == 0) ptx::tma_store_wait_read<Traits::kNumStoreStages - 1>();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        return cta.store_stage(warpgroup, store_stage);
    }

    // Sends a written stage off: store() is called by one thread, or by all, which then copy it themselves.
    template <class Store>
    __device__ __forceinline__ void commit_store_stage(bool by_all, Store store) {
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        if (thread == 0 || by_all) store();
        if (thread == 0) ptx::tma_store_commit();
        store_stage = store_stage + 1 == Traits::kNumStoreStages ? 0 : store_stage + 1;
    }
};

}  // namespace deep_gemm::epilogue
