// The math warpgroups of gemm_sm90: wgmma, promotion, the sum over a cluster, the store.
#pragma once
#include "deep_gemm/epilogue/finish.cuh"
#include "deep_gemm/epilogue/scales.cuh"
#include "deep_gemm/epilogue/store.cuh"
#include "deep_gemm/kernels/gemm_plan.cuh"
#include "deep_gemm/mma/descriptor.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/ptx/tma.cuh"
#include "deep_gemm/ptx/wgmma.cuh"

namespace deep_gemm {

// A math warpgroup: where its rows lie, and the steps of its loop over k-blocks.
template <class C, class Mma>
struct MathWarpgroup {
    using P = Plan<C>;
    using Sum = typename Mma::Sum;
    using Out = typename P::Out;
    using Value = typename P::Value;
    using BlockScales = typename Choose<C::kSwapped, epilogue::ColumnScales<P::kElements, P::kTokenScales>,
                                        epilogue::RowScales<P::kElements, P::kMain, P::kScaleBlocks, P::kTokenScales>>::Type;
    using Scales = typename Choose<C::kPromotion == kBlock, BlockScales, epilogue::UnitScales<P::kElements>>::Type;

    const Cta<C>& cta;
    uint32_t warpgroup, thread, lane;
    uint32_t first_row;                // of this warpgroup, in the tile
    uint32_t base_rows, base_columns;  // descriptors of stage 0
    uint32_t base_scales;              // of the rows' scales where they are an operand
    pipeline::Position<C::kStages> at;
    uint32_t tile_row = 0;  // first of the tile
    uint32_t weight = 0;    // first of the tile, in its block of 128
    uint32_t buffer = 0;    // store slab to be written next
    // Of the tile, where there are groups: the group, the end of its tokens, and of the rows of D to be stored.
    uint32_t group = 0, of_tile_end = 0, of_tile_stored = 0;

    __device__ __forceinline__ MathWarpgroup(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread)
        : cta(cta), warpgroup(warpgroup), thread(thread), lane(thread % kWarpThreads) {
        first_row = C::kPingPong ? 0 : warpgroup * P::kWaves * 64;
        // NOTE: from a register that differs by thread, every MMA would be preceded by R2UR; the shuffle
        // tells the compiler that the value is the same for the warp.
        base_rows = __shfl_sync(~0u, mma::descriptor_low<C::kRowsMnMajor>(cta.stage_rows(0) + first_row * kRowBytes), 0);
        base_columns = __shfl_sync(~0u, mma::descriptor_low<C::kColumnsMnMajor>(cta.stage_columns(0)), 0);
        base_scales = __shfl_sync(~0u, mma::descriptor_low<false>(cta.scales(0) + first_row * P::kOuter), 0);
    }

    __device__ __forceinline__ void begin(const typename Cta<C>::Tile& tile) {
        tile_row = cta.row(tile);
        weight = cta.weight(tile) % 128;
        if constexpr (P::kGrouped) group = cta.group(tile), of_tile_end = cta.end(tile), of_tile_stored = cta.stored_end(tile);
    }
    __device__ __forceinline__ uint32_t end() const { return P::kGrouped ? of_tile_end : cta.m(); }
    __device__ __forceinline__ uint32_t stored_end() const { return P::kGrouped ? of_tile_stored : cta.m(); }

    // Every math warp tells every CTA that loads into this one's stage that it has read it.
    __device__ __forceinline__ void release(uint32_t stage) const {
        if constexpr (P::kMulticast == 1) {
            if (lane == 0) ptx::mbarrier_arrive(cta.barriers.empty(stage));
        } else {
            if (lane < P::kMulticast) ptx::mbarrier_arrive_remote(cta.barriers.empty(stage), cta.first_sharer + lane);
        }
    }

    // Warpgroups with tiles of their own take turns at the tensor core, tile by tile.
    // NOTE: a parity tells a stage's round from the next, not from the one after that. A turn is passed on when all of its
    // stages have been full, so whoever takes it is in the round that it waits for.
    __device__ __forceinline__ void begin_turns() const {
        if (warpgroup == C::kMathWarpgroups - 1) pass_turn();
    }
    __device__ __forceinline__ void wait_turn() const {
        if constexpr (C::kPingPong) ptx::named_barrier_sync(kTurnBarrier + warpgroup, 2 * kWarpgroupThreads);
    }
    __device__ __forceinline__ void pass_turn() const {
        const uint32_t next = warpgroup + 1 == C::kMathWarpgroups ? 0 : warpgroup + 1;
        if constexpr (C::kPingPong) ptx::named_barrier_arrive(kTurnBarrier + next, 2 * kWarpgroupThreads);
    }

    // Starts sums = rows . columns over one k-block of a stage, for one wave, or adds it to the sums; of the first columns, where
    // the shape has fewer.
    template <bool kAdd, class Shape = Mma, int kCount>
    __device__ __forceinline__ void issue(Sum (&sums)[kCount], uint32_t stage, uint32_t wave) const {
        const uint32_t rows = base_rows + stage * (P::kStageRows >> 4) + wave * (64 * kRowBytes >> 4);
        const uint32_t columns = base_columns + stage * (P::kStageColumns >> 4);
        ptx::fence_registers(sums);
        ptx::wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < mma::kSteps; ++k) {
            Shape::issue(sums, mma::descriptor(rows + k * mma::kStep<C::kRowsMnMajor>),
                         mma::descriptor(columns + k * mma::kStep<C::kColumnsMnMajor>), kAdd || k > 0);
        }
        ptx::wgmma_commit();
        ptx::fence_registers(sums);
    }

    __device__ __forceinline__ void load_scales(Scales& scales, uint32_t stage, uint32_t wave) const {
        if constexpr (C::kSwapped) scales.load(cta.scales(stage), lane, (weight + first_row + wave * 64) / 128);
        else scales.load(cta.scales(stage), first_row + wave * 64 + thread / kWarpThreads * 16 + lane / 4, lane);
    }

    // Ends a wave's k-block, of which at most kPending started later may still run: total += scales * partial.
    template <uint32_t kPending>
    __device__ __forceinline__ void finish(Sum (&total)[P::kElements], Sum (&partial)[P::kElements], const Scales& scales,
                                           uint32_t stage, bool last_wave) const {
        ptx::wgmma_wait<kPending>();
        ptx::fence_registers(partial);
        if (last_wave) release(stage);
        scales.promote(total, partial);
    }

    // One partial sum for all waves: a wave's promotion waits for its own MMAs, and another warpgroup's run meanwhile.
    __device__ __forceinline__ void accumulate(Sum (&total)[P::kWaves][P::kElements], uint32_t blocks) {
        float partial[P::kElements];
        Scales scales;
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_full(at);
#pragma unroll
            for (uint32_t wave = 0; wave < P::kWaves; ++wave) {
                load_scales(scales, at.stage, wave);
                issue<false>(partial, at.stage, wave);
                finish<0>(total[wave], partial, scales, at.stage, wave == P::kWaves - 1);
            }
        }
    }

    // One partial sum, and a scale for each of its elements, which is the work of one MMA more.
    template <class Shape, class Outer, int kCount>
    __device__ __forceinline__ void accumulate_outer(Sum (&total)[kCount], uint32_t blocks) {
        Sum partial[kCount], scale[kCount];
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_full(at);
            issue_scales<Outer>(scale, at.stage);
            issue<false, Shape>(partial, at.stage, 0);
            ptx::wgmma_wait<0>();
            ptx::fence_registers(scale);
            ptx::fence_registers(partial);
            release(at.stage);
            epilogue::promote_each(total, partial, scale);
        }
    }

    // The same of what a tile has: nothing where this warpgroup's rows do not exist, or only its first columns.
    __device__ __forceinline__ void accumulate_existing(Sum (&total)[P::kElements], uint32_t row, uint32_t column, uint32_t blocks) {
        if (!P::kGrouped && row >= cta.m()) return pass_over(blocks);
        if constexpr (C::kHalfColumns > 0) {
            if (is_narrow(column)) return accumulate_outer<typename C::Half, typename C::HalfOuter>(narrow(total), blocks);
        }
        accumulate_outer<Mma, typename C::Outer>(total, blocks);
    }

    __device__ __forceinline__ void pass_over(uint32_t blocks) {
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_full(at);
            release(at.stage);
        }
    }

    // Whether of the tile that begins at a column only the first kHalfColumns exist, and the sums of these.
    __device__ __forceinline__ bool is_narrow(uint32_t column) const { return column + C::kHalfColumns >= cta.n(); }
    template <class Of>
    static __device__ __forceinline__ auto narrow(Of (&total)[P::kElements]) -> Of (&)[P::kNarrowElements] {
        return reinterpret_cast<Of(&)[P::kNarrowElements]>(total);
    }

    // Starts scale = scales of rows . scales of columns, of a stage.
    template <class Outer, int kCount>
    __device__ __forceinline__ void issue_scales(Sum (&scale)[kCount], uint32_t stage) const {
        const uint32_t rows = base_scales + stage * (P::kScales >> 4);
        const uint32_t columns = rows + ((P::kTokenScales - first_row * P::kOuter) >> 4);
        ptx::fence_registers(scale);
        ptx::wgmma_fence();
        Outer::issue(scale, mma::shallow_descriptor(rows), mma::shallow_descriptor(columns), false);
        ptx::wgmma_commit();
        ptx::fence_registers(scale);
    }

    // Starts the MMAs of the next k-block into `next`, then promotes those of the one before from `current`.
    // NOTE: scales are loaded before MMAs are started; beside running MMAs they arrive after those have ended.
    __device__ __forceinline__ void overlap(float (&total)[P::kElements], float (&next)[P::kElements], Scales& next_scales,
                                            float (&current)[P::kElements], const Scales& current_scales, uint32_t& stage) {
        cta.barriers.wait_full(at);
        load_scales(next_scales, at.stage, 0);
        issue<false>(next, at.stage, 0);
        finish<1>(total, current, current_scales, stage, true);
        stage = at.stage;
        at.advance();
    }

    // Two partial sums, where registers allow: the MMAs of one k-block run while the one before is promoted.
    __device__ __forceinline__ void accumulate_overlapped(float (&total)[P::kElements], uint32_t blocks) {
        if ((C::kSplitK > 1 || P::kGrouped) && blocks == 0) return;
        float even[P::kElements], odd[P::kElements];
        Scales even_scales, odd_scales;
        cta.barriers.wait_full(at);
        load_scales(even_scales, at.stage, 0);
        issue<false>(even, at.stage, 0);
        uint32_t stage = at.stage;
        at.advance();
        for (uint32_t left = blocks - 1;; left -= 2) {
            if (left == 0) return finish<0>(total, even, even_scales, stage, true);
            overlap(total, odd, odd_scales, even, even_scales, stage);
            if (left == 1) return finish<0>(total, odd, odd_scales, stage, true);
            overlap(total, even, even_scales, odd, odd_scales, stage);
        }
    }

    // The sums stay in the tensor core over all of K; a k-block's MMAs are started before those of the one before have ended.
    __device__ __forceinline__ void accumulate_directly(Sum (&total)[P::kWaves][P::kElements], uint32_t blocks) {
        uint32_t stage = at.stage;
        wait_turn();
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_full(at);
#pragma unroll
            for (uint32_t wave = 0; wave < P::kWaves; ++wave) issue<true>(total[wave], at.stage, wave);
            if (block > 0) {
                ptx::wgmma_wait<P::kWaves>();
                release(stage);
            }
            stage = at.stage;
        }
        pass_turn();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave) ptx::fence_registers(total[wave]);
        if (blocks > 0) release(stage);
    }

    // Waits until the slab to be written next has been read by the store before; returns its address.
    __device__ __forceinline__ uint32_t claim_slab() const {
        if (thread == 0) ptx::tma_store_wait_read<C::kStoreBuffers - 1>();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        return cta.smem + P::kOffsetSlabs + (warpgroup * C::kStoreBuffers + buffer) * P::kSlab;
    }

    // Sends a written slab off by send(), which one thread calls, or all, and which then copies itself.
    template <class Send>
    __device__ __forceinline__ void send_slab(Send send, bool by_all = false) {
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
        if (thread == 0 || by_all) send();
        if (thread == 0) ptx::tma_store_commit();
        buffer = buffer + 1 == C::kStoreBuffers ? 0 : buffer + 1;
    }

    // Results of a slab's sums, of which `first` is the first of the tile's columns; row: of the product, for these 64 rows;
    // c: what to add, where it has been read ahead.
    template <uint32_t kFirst, int kCount, int kSums>
    __device__ __forceinline__ void finish_slab(Value (&value)[kCount], const Sum (&sums)[kSums], uint32_t row, uint32_t first,
                                                const Columns<C>& columns, const Value (&c)[P::kSlabValues]) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) value[i] = static_cast<Value>(sums[kFirst / 2 + i]);
        if constexpr (kSame<Value, float>) {
            const uint32_t vectors = cta.vectors(C::kPingPong ? warpgroup : 0);
            const uint32_t rows = vectors + (row - tile_row + own_row()) * 4;
            const uint32_t of_columns = vectors + (C::kBlockM + first + own_column()) * 4;
            epilogue::scale<P::kScaled, C::kSwapped>(value, cta.params.alpha, rows, of_columns);
        }
        if constexpr (C::kAddend == kRead) {
#pragma unroll
            for (int i = 0; i < kCount; i += 4) {
                Value four[4];
                if constexpr (!C::kReadsAhead) read_addend(four, row, first + i * 2, columns);
#pragma unroll
                for (int j = 0; j < 4; ++j) epilogue::add(value[i + j], C::kReadsAhead ? c[i + j] : four[j], cta.params.beta);
            }
        }
    }

    // The thread's first row and column in a fragment.
    __device__ __forceinline__ uint32_t own_row() const { return thread / kWarpThreads * 16 + lane / 4; }
    __device__ __forceinline__ uint32_t own_column() const { return lane % 4 * 2; }

    // Starts reading what of C is to be added to the thread's values from the tile's column `first` on.
    template <int kCount>
    __device__ __forceinline__ void read_addend(Value (&c)[kCount], uint32_t row, uint32_t first, const Columns<C>& columns) const {
        const epilogue::Addend<Out> addend{static_cast<const Out*>(cta.params.c), cta.params.c_stride, cta.m(), cta.n()};
        epilogue::read<C::kSwapped>(c, addend, row + own_row(), [&](uint32_t i) { return columns.at(first + own_column() + i); });
    }

    template <int kCount>
    __device__ __forceinline__ void read_ahead(Value (&c)[P::kSlabValues], uint32_t row, uint32_t first, const Columns<C>& columns) const {
        if constexpr (C::kAddend == kRead && C::kReadsAhead) read_addend(reinterpret_cast<Value(&)[kCount]>(c), row, first, columns);
    }

    __device__ __forceinline__ void send_box(const TensorMap* map, uint32_t smem, uint32_t inner, uint32_t outer) const {
        constexpr bool kAdds = C::kAddend == kReduce;
        if constexpr (kAdds && P::kStacksOutput) ptx::tma_reduce_add(map, smem, inner, outer, int(group));
        else if constexpr (kAdds) ptx::tma_reduce_add(map, smem, inner, outer);
        else if constexpr (P::kStacksOutput) ptx::tma_store(map, smem, inner, outer, int(group));
        else ptx::tma_store(map, smem, inner, outer);
    }

    // Whether so many rows of D are not all this tile's tokens.
    __device__ __forceinline__ bool is_ragged(uint32_t row, uint32_t rows) const { return P::kStoresRows && row + rows > end(); }

    // Stores the rows of a box in shared memory that are this tile's, 16 bytes a thread; zeros for those without tokens.
    template <uint32_t kBytes>
    __device__ __forceinline__ void store_rows(uint32_t smem, uint32_t row, uint32_t column, uint32_t rows) const {
        constexpr uint32_t kUnit = 16 / sizeof(Out), kUnits = kBytes / 16;
        Out* d = static_cast<Out*>(cta.params.d) + (P::kStacksOutput ? group * cta.params.d_stride_group : 0);
        for (uint32_t i = thread; i < rows * kUnits; i += kWarpgroupThreads) {
            const uint32_t r = row + i / kUnits, c = column + i % kUnits * kUnit;
            if (r >= stored_end() || c >= cta.n()) continue;
            int unit[4] = {};
            if (r < end()) ptx::load_shared(smem + epilogue::swizzle<kBytes>(i * 16), unit);
            ptx::store_global(d + r * cta.params.d_stride + c, unit);
        }
    }

    // Stores 64 rows of results, from `row` of the product and `first` of the tile's columns on.
    template <int kCount>
    __device__ __forceinline__ void store(const Sum (&sums)[kCount], uint32_t row, const Columns<C>& columns, uint32_t first) {
        if ((C::kSwapped ? columns.at(first) : row) >= stored_end()) return;
        Value c[P::kSlabValues];
        read_ahead<columns_of_slab<kCount>(0) / 2>(c, row, first, columns);
        store_slabs<kCount, 0>(sums, row, columns, first, c);
    }

    // Stores this warpgroup's rows of a tile, or of its first columns.
    __device__ __forceinline__ void store_tile(const Sum (&total)[P::kWaves][P::kElements], uint32_t row, const Columns<C>& columns) {
        if constexpr (C::kHalfColumns > 0) {
            if (is_narrow(columns.main)) return store(narrow(total[0]), row, columns, 0);
        }
#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave) store(total[wave], row + wave * 64, columns, 0);
    }

    // Columns of the slab that begins with column `from` of kCount * 2.
    template <int kCount>
    static constexpr uint32_t columns_of_slab(uint32_t from) {
        return kCount * 2 - from < C::kSlabColumns ? kCount * 2 - from : C::kSlabColumns;
    }

    // Slab by slab, what is to be added to the next one being read meanwhile. A slab is boxes of kBox columns; the last one
    // ends with a box of what is left, as extra columns are.
    template <int kCount, uint32_t kFirst>
    __device__ __forceinline__ void store_slabs(const Sum (&sums)[kCount], uint32_t row, const Columns<C>& columns, uint32_t first,
                                                const Value (&c)[P::kSlabValues]) {
        constexpr uint32_t kColumns = columns_of_slab<kCount>(kFirst), kNext = kFirst + kColumns;
        constexpr bool kLast = kNext == kCount * 2;
        constexpr uint32_t kBox = C::kBoxColumns, kRest = kLast ? C::kRestColumns : 0, kBoxed = kColumns - kRest;
        Value value[kColumns / 2], next[P::kSlabValues];
        if constexpr (!kLast) read_ahead<columns_of_slab<kCount>(kNext) / 2>(next, row, first + kNext, columns);
        finish_slab<kFirst>(value, sums, row, first + kFirst, columns, c);
        const uint32_t slab = claim_slab();
        if constexpr (C::kSwapped) {
            // Boxes of 128 bytes of D's columns, and as many rows as the slab has tokens.
            epilogue::store_slab_transposed<Out>(value, slab, thread);
            const uint32_t token = columns.at(first);
            const bool ragged = is_ragged(token, kColumns);
            send_slab([&] {
#pragma unroll
                for (uint32_t i = 0; i < 64; i += kBox) {
                    const uint32_t box = slab + i / kBox * kColumns * 128;
                    if (ragged) store_rows<128>(box, token, row + i, kColumns);
                    else send_box(&cta.params.map_d, box, row + i, token);
                }
            }, ragged);
        } else {
            constexpr uint32_t kColumnBytes = 64 * sizeof(Out);
            epilogue::store_slab<Out, 0, kBoxed, kBox>(value, slab, thread);
            if constexpr (kRest > 0) epilogue::store_slab<Out, kBoxed, kRest, kRest>(value, slab + kBoxed * kColumnBytes, thread);
            const bool ragged = is_ragged(row, 64);
            send_slab([&] {
#pragma unroll
                for (uint32_t i = 0; i < kBoxed; i += kBox) {
                    const uint32_t box = slab + i * kColumnBytes, column = columns.at(first + kFirst + i);
                    if (ragged) store_rows<kBox * sizeof(Out)>(box, row, column, 64);
                    else send_box(&cta.params.map_d, box, column, row);
                }
                if constexpr (kRest > 0) {
                    const uint32_t box = slab + kBoxed * kColumnBytes, column = columns.at(first + kFirst + kBoxed);
                    if (ragged) store_rows<kRest * sizeof(Out)>(box, row, column, 64);
                    else send_box(&cta.params.map_rest, box, column, row);
                }
            }, ragged);
            if constexpr (!kLast) store_slabs<kCount, kNext>(sums, row, columns, first, next);
        }
    }
};

template <class C, class Mma>
__device__ __forceinline__ void compute(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread) {
    using P = Plan<C>;
    using Sum = typename Mma::Sum;
    MathWarpgroup<C, Mma> math(cta, warpgroup, thread);
    auto exchange = cta.template exchange<Sum>();
    const uint32_t set = C::kPingPong ? warpgroup : 0;
    uint32_t turn = 0, vector_parity = 0;
    Sum total[P::kWaves][P::kElements];

    math.begin_turns();
    for (auto tile = cta.tiles(); tile.next(); turn = turn + 1 == P::kTiles ? 0 : turn + 1) {
        const uint32_t blocks = cta.blocks(tile);
        if (C::kPingPong && turn != warpgroup) {
            math.at.skip(blocks);
            continue;
        }
        const uint32_t row = cta.row(tile) + math.first_row;
        const Columns<C> columns = cta.columns(tile);
        math.begin(tile);
#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave)
#pragma unroll
            for (uint32_t i = 0; i < P::kElements; ++i) total[wave][i] = 0;

        // Rows without tokens leave the tensor core to others.
        constexpr bool kPasses = P::kGrouped && !C::kSwapped && !C::kPingPong;
        if (kPasses && ptx::uniformly(row >= math.end())) math.pass_over(blocks);
        else if constexpr (C::kPromotion == kNone) math.accumulate_directly(total, blocks);
        else if constexpr (C::kPromotion == kRows) math.accumulate_existing(total[0], row, columns.main, blocks);
        else if constexpr (C::kPartials == 2) math.accumulate_overlapped(total[0], blocks);
        else math.accumulate(total, blocks);

        if constexpr (P::kScaled) cta.vector_barriers().wait_full({set, vector_parity});
        if constexpr (C::kSplitK > 1) {
            exchange.send(total[0], warpgroup, thread);
            if (exchange.owns()) {
                Sum sums[P::kPiece / 2];
                exchange.receive(total[0], sums, warpgroup, thread);
                math.store(sums, row, columns, exchange.first_group(cta.rank_k) * 8);
            }
            exchange.release(math.lane);
        } else {
            math.store_tile(total, row, columns);
        }
        if constexpr (P::kScaled) {
            __syncwarp();
            if (math.lane == 0) ptx::mbarrier_arrive(cta.vector_barriers().empty(set));
            vector_parity ^= 1;
        }
    }
    if constexpr (C::kSplitK > 1) exchange.drain();
    if (thread == 0) ptx::tma_store_wait_read<0>();
}

}  // namespace deep_gemm
