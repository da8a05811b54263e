// The producer warps of gemm_sm90: operands by TMA, scales through registers.
#pragma once
#include "deep_gemm/kernels/gemm_plan.cuh"
#include "deep_gemm/mma/descriptor.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/ptx/tma.cuh"

namespace deep_gemm {

// One operand, the tile's rows (kOfRows) or columns, of a k-block. CTAs that need the same ones load a share each
// and multicast it; of those with the same part of K, ranked rank_m + rank_n * kClusterM, rows are shared by those
// that differ in rank_n.
template <class C, bool kOfRows>
struct OperandLoader {
    static constexpr uint32_t kSharers = kOfRows ? C::kClusterN : C::kClusterM;
    static constexpr uint32_t kExtent = kOfRows ? C::kBlockM : Plan<C>::kMain, kShare = kExtent / kSharers;
    static constexpr bool kMnMajor = kOfRows ? C::kRowsMnMajor : C::kColumnsMnMajor;
    static_assert(!kMnMajor || kSharers == 1 || kShare % mma::kBoxWidth == 0, "a share is whole boxes");
    static constexpr uint32_t kExtraShare = kOfRows ? 0 : Plan<C>::kExtra / kSharers;
    static constexpr bool kOfTokens = kOfRows != C::kSwapped;
    // A matrix for each group.
    static constexpr bool kStacked = kOfTokens ? Plan<C>::kStacksTokens : Plan<C>::kStacksWeights;

    // Rows or columns of a box, of several to a tile, where those may not exist: all but the first are then left out.
    static constexpr uint32_t kSome = kOfRows ? C::kSomeRows : C::kSomeColumns, kBox = kSome > 0 ? kSome : kShare;
    static_assert(kShare % kBox == 0 && (kSome == 0 || !kMnMajor));

    const Cta<C>& cta;
    const TensorMap* map;
    uint32_t rank;
    uint16_t sharers;

    __device__ __forceinline__ OperandLoader(const Cta<C>& cta, const TensorMap* map) : cta(cta), map(map) {
        rank = kOfRows ? cta.rank_n : cta.rank_m;
        sharers = kOfRows ? (C::kClusterN > 1 ? 1u | 1u << C::kClusterM : 1u) << (cta.first_sharer + cta.rank_m)
                          : ((1u << C::kClusterM) - 1) << (cta.first_sharer + cta.rank_n * C::kClusterM);
    }

    // To be called before a tile's loads: K that belongs to groups has a map for each.
    __device__ __forceinline__ void begin(const typename Cta<C>::Tile& tile) {
        if constexpr (C::kGrouping == scheduler::kAlongK) {
            const TensorMap* of_group = cta.params.group_maps + tile.group * 2 + (kOfTokens ? 0 : 1);
            if (of_group != map) ptx::tensor_map_acquire(of_group);
            map = of_group;
        }
    }

    __device__ __forceinline__ void load(uint32_t stage, const typename Cta<C>::Tile& tile, uint32_t block) const {
        const Columns<C> columns = cta.columns(tile);
        const uint32_t smem = kOfRows ? cta.stage_rows(stage) : cta.stage_columns(stage);
        const uint32_t share = rank * kShare, extra = rank * kExtraShare;
        const uint32_t first = (kOfRows ? cta.row(tile) : columns.main) + share, k = (cta.part(tile).first + block) * Plan<C>::kBlockK;
        if constexpr (kMnMajor) {
#pragma unroll
            for (uint32_t i = 0; i < kShare; i += mma::kBoxWidth) load_box(map, tile, smem + (share + i) * kRowBytes, stage, first + i, k);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < kShare; i += kBox) {
                if (share + i < existing(tile)) load_box(map, tile, smem + (share + i) * kRowBytes, stage, k, first + i);
            }
        }
        if constexpr (kExtraShare > 0) {
            load_box(&cta.params.map_extra, tile, smem + (Plan<C>::kMain + extra) * kRowBytes, stage, k, columns.extra + extra);
        }
    }

    // Rows or columns of the tile in boxes of which some exist, and in the first one.
    __device__ __forceinline__ uint32_t existing(const typename Cta<C>::Tile& tile) const {
        if constexpr (kSome == 0) return kExtent;
        const uint32_t first = kOfRows ? cta.row(tile) : cta.columns(tile).main, end = kOfTokens ? cta.end(tile) : cta.n();
        const uint32_t boxed = first + kBox < end ? round_up(end - first, kBox) : kBox;
        return boxed < kExtent ? boxed : kExtent;
    }
    // Bytes of a stage that nobody loads.
    __device__ __forceinline__ uint32_t missing_bytes(const typename Cta<C>::Tile& tile) const {
        return (kExtent - existing(tile)) * kRowBytes;
    }

    __device__ __forceinline__ void load_box(const TensorMap* box, const typename Cta<C>::Tile& tile, uint32_t smem, uint32_t stage,
                                             uint32_t inner, uint32_t outer) const {
        const uint32_t full = cta.barriers.full(stage);
        if constexpr (kStacked && kSharers == 1) ptx::tma_load(smem, box, full, inner, outer, int(cta.group(tile)));
        else if constexpr (kStacked) ptx::tma_load_multicast(smem, box, full, inner, outer, int(cta.group(tile)), sharers);
        else if constexpr (kSharers == 1) ptx::tma_load(smem, box, full, inner, outer);
        else ptx::tma_load_multicast(smem, box, full, inner, outer, sharers);
    }
};

// Brings a tile's part of C to L2 while its sums are being computed.
template <class C>
__device__ __forceinline__ void prefetch_addend(const Cta<C>& cta, const typename Cta<C>::Tile& tile) {
    using Out = typename Plan<C>::Out;
    constexpr uint32_t kTokens = Plan<C>::kTokens, kColumns = C::kSwapped ? C::kBlockM : Plan<C>::kMain;
    constexpr uint32_t kLine = 128 / sizeof(Out), kLines = ceil_div(kColumns, kLine);
    if (cta.rank_k > 0) return;
    const uint32_t row = cta.token(tile), column = cta.weight(tile);
    for (uint32_t i = threadIdx.x % kWarpThreads; i < kTokens * kLines; i += kWarpThreads) {
        const uint32_t r = row + i / kLines, s = column + i % kLines * kLine;
        if (r < cta.m() && s < cta.n()) ptx::prefetch_l2(static_cast<const Out*>(cta.params.c) + r * cta.params.c_stride + s);
    }
}

// The same of D, where the store adds to it, by whole boxes: one with every second of a tile's last k-blocks.
// NOTE: not earlier, lest A and B be driven out of L2; not together, lest their copies wait.
template <class C>
__device__ __forceinline__ void prefetch_sum(const Cta<C>& cta, const typename Cta<C>::Tile& tile, uint32_t block) {
    constexpr uint32_t kBox = C::kBoxColumns, kAcross = C::kBlockN / kBox, kBoxes = C::kBlockM / 64 * kAcross;
    const uint32_t left = cta.part(tile).blocks - block;
    if (left % 2 != 0 || left / 2 > kBoxes) return;
    const uint32_t box = kBoxes - left / 2;
    const uint32_t row = cta.row(tile) + box / kAcross * 64, column = cta.columns(tile).at(box % kAcross * kBox);
    if (row >= cta.end(tile) || column >= cta.n()) return;
    if constexpr (Plan<C>::kStacksOutput) ptx::tma_prefetch(&cta.params.map_d, column, row, int(cta.group(tile)));
    else ptx::tma_prefetch(&cta.params.map_d, column, row);
}

// The tiles of the copy warp, which walks over groups itself where no other warp can.
template <class C>
__device__ __forceinline__ auto tiles_of_copies(const Cta<C>& cta) {
    if constexpr (Plan<C>::kGrouped && !Plan<C>::kHasWalker) return cta.walk();
    else return cta.tiles();
}

// NOTE: the loops belong to the whole warp and only the issue to one lane; a loop of one lane keeps its addresses
// in vector registers, and each copy is then wrapped in R2UR and a vote.
template <class C>
__device__ __forceinline__ void produce_operands(const Cta<C>& cta) {
    OperandLoader<C, !C::kSwapped> tokens(cta, &cta.params.map_a);
    OperandLoader<C, C::kSwapped> weights(cta, &cta.params.map_b);
    if constexpr (Plan<C>::kGrouped) ptx::dependency_wait();
    auto tile = tiles_of_copies(cta);
    const auto bytes = [&] { return cta.params.stage_bytes - tokens.missing_bytes(tile) - weights.missing_bytes(tile); };
    bool more = tile.next();
    // k-blocks whose weights need not wait for the kernel ahead
    const uint32_t ahead = Plan<C>::kGrouped || !more ? 0 : cta.params.early_blocks;
    uint32_t early = cta.whole.blocks < ahead ? cta.whole.blocks : ahead;
    for (uint32_t block = 0; block < early; ++block) {
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(cta.barriers.full(block), bytes());
            weights.load(block, tile, block);
        }
    }
    if constexpr (!Plan<C>::kGrouped) ptx::dependency_wait();
    pipeline::Position<C::kStages> at;
    for (; more; more = tile.next()) {
        const uint32_t blocks = cta.blocks(tile);
        if (blocks > 0) tokens.begin(tile), weights.begin(tile);
        for (uint32_t block = 0; block < blocks; ++block, at.advance()) {
            cta.barriers.wait_empty(at);
            if (C::kAddend == kRead && block == 0) prefetch_addend(cta, tile);
            if (ptx::elect_one()) {
                if (early == 0) {
                    ptx::mbarrier_arrive_expect_tx(cta.barriers.full(at.stage), bytes());
                    weights.load(at.stage, tile, block);
                }
                tokens.load(at.stage, tile, block);
                if constexpr (Plan<C>::kPrefetchesSum) prefetch_sum(cta, tile, block);
            }
            early -= early > 0;
        }
    }
    // A CTA may not end while another can still signal in its shared memory: wait for the last releases.
    if constexpr (Plan<C>::kMulticast > 1) {
        for (uint32_t stage = 0; stage < C::kStages; ++stage, at.advance()) cta.barriers.wait_empty(at);
    }
}

// Shows the tiles of groups to all other roles.
template <class C>
__device__ __forceinline__ void walk_groups(const Cta<C>& cta) {
    for (auto tile = cta.walk(); tile.next();) {
    }
}

// One lane of a scale warp: its token scales, and perhaps one of a block of weights. The warps take turns at the k-blocks,
// counted over all tiles; one has twice the time of a k-block.
template <class C>
struct BlockLane {
    // Two groups, one being stored and one being loaded, must outlast a load: more k-blocks where those are short.
    static constexpr uint32_t kBlocks = Plan<C>::kTokens <= 64 ? 4 : Plan<C>::kTokens <= 128 ? 2 : 1;
    static constexpr uint32_t kTokens = ceil_div(Plan<C>::kTokens, kWarpThreads);
    static constexpr uint32_t kTurns = kScaleWarps;
    struct Group {
        float a[kBlocks][kTokens], b[kBlocks];
    };

    const Cta<C>& cta;
    uint32_t turn, lane;
    const float *sfa, *sfb;  // in the next k-block to be loaded
    uint32_t tokens;         // that exist from the lane's first one on
    bool has_b;

    // Returns how many k-blocks of a tile are this warp's.
    __device__ __forceinline__ uint32_t begin(const typename Cta<C>::Tile& tile) {
        const GemmParams& p = cta.params;
        const Part part = cta.part(tile);
        const uint32_t token = cta.token(tile) + lane, of_b = cta.scale_block(tile, lane), first = part.first + turn;
        tokens = token < cta.end(tile) ? cta.end(tile) - token : 0;
        has_b = lane < Plan<C>::kScaleBlocks && of_b < ceil_div(cta.n(), 128);
        sfa = cta.sfa(tile) + token * p.sfa_stride_m + first * p.sfa_stride_k;
        sfb = cta.sfb(tile) + of_b * p.sfb_stride_n + first * p.sfb_stride_k;
        const uint32_t blocks = (part.blocks + 1 - turn) / 2;
        turn ^= part.blocks % 2;
        return blocks;
    }

    // blocks: how many of its own there are from the group's first on.
    __device__ __forceinline__ void load(Group& group, uint32_t blocks) {
        const GemmParams& p = cta.params;
#pragma unroll
        for (uint32_t j = 0; j < kBlocks; ++j) {
#pragma unroll
            for (uint32_t i = 0; i < kTokens; ++i) {
                const bool exists = j < blocks && i * kWarpThreads < tokens;
                group.a[j][i] = exists ? sfa[i * kWarpThreads * p.sfa_stride_m + j * kTurns * p.sfa_stride_k] : 0.0f;
            }
            group.b[j] = has_b && j < blocks ? sfb[j * kTurns * p.sfb_stride_k] : 0.0f;
        }
        sfa += kBlocks * kTurns * p.sfa_stride_k;
        sfb += kBlocks * kTurns * p.sfb_stride_k;
    }

    __device__ __forceinline__ void store(const Group& group, uint32_t block, uint32_t stage) const {
        const uint32_t scales = cta.scales(stage);
#pragma unroll
        for (uint32_t i = 0; i < kTokens; ++i) ptx::store_shared(scales + (i * kWarpThreads + lane) * 4, group.a[block][i]);
        if (lane < Plan<C>::kScaleBlocks) ptx::store_shared(scales + Plan<C>::kTokenScales + lane * 4, group.b[block]);
    }
};

// One lane's rows and columns of those of an outer warp, by groups of 32 of either. The warps share every k-block: math warps
// of a scheduler wait while it issues a producer's instructions, and all of them for the last.
template <class C>
struct OuterLane {
    using Scales = epilogue::OuterScales;
    static constexpr uint32_t kRowGroups = ceil_div(C::kBlockM, kWarpThreads);
    static constexpr uint32_t kGroups = kRowGroups + ceil_div(C::kBlockN, kWarpThreads);
    static constexpr uint32_t kOwn = ceil_div(kGroups, kOuterWarps);
    // Two groups, one being stored and one being loaded, must outlast a load.
    static constexpr uint32_t kBlocks = C::kBlockM <= 64 ? 4 : 2;
    static constexpr uint32_t kTurns = 1;
    struct Group {
        float scale[kBlocks][kOwn];
    };

    const Cta<C>& cta;
    uint32_t warp, lane;
    const float* source[kOwn];  // in the next k-block to be loaded
    bool exists[kOwn];

    __device__ __forceinline__ bool of_row(uint32_t i) const { return i * kOuterWarps + warp < kRowGroups; }
    __device__ __forceinline__ uint32_t index(uint32_t i) const {
        return (i * kOuterWarps + warp - (of_row(i) ? 0 : kRowGroups)) * kWarpThreads + lane;
    }
    __device__ __forceinline__ bool in_tile(uint32_t i) const { return index(i) < (of_row(i) ? C::kBlockM : C::kBlockN); }
    __device__ __forceinline__ int64_t stride_k(uint32_t i) const { return of_row(i) ? cta.params.sfa_stride_k : cta.params.sfb_stride_k; }

    // Returns how many k-blocks of a tile are this warp's: all.
    __device__ __forceinline__ uint32_t begin(const typename Cta<C>::Tile& tile) {
        const GemmParams& p = cta.params;
        const Part part = cta.part(tile);
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
            const uint32_t at = index(i) + (of_row(i) ? cta.row(tile) : cta.columns(tile).main);
            exists[i] = in_tile(i) && at < (of_row(i) ? cta.end(tile) : cta.n());
            source[i] = (of_row(i) ? cta.sfa(tile) + at * p.sfa_stride_m : cta.sfb(tile) + at * p.sfb_stride_n) + part.first * stride_k(i);
        }
        return part.blocks;
    }

    // blocks: how many there are from the group's first on.
    __device__ __forceinline__ void load(Group& group, uint32_t blocks) {
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
#pragma unroll
            for (uint32_t j = 0; j < kBlocks; ++j) {
                group.scale[j][i] = exists[i] && j < blocks ? *source[i] : 0.0f;
                source[i] += stride_k(i);
            }
        }
    }

    __device__ __forceinline__ void store(const Group& group, uint32_t block, uint32_t stage) const {
        const float(&scale)[kOwn] = group.scale[block];
        bool finite = true;
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) finite = finite && Scales::is_finite(scale[i]);
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
            const uint32_t place = cta.scales(stage) + (of_row(i) ? 0 : Plan<C>::kTokenScales) + Scales::place(index(i));
            if (!in_tile(i)) continue;
            if (finite) Scales::store(place, scale[i], of_row(i));
            else Scales::store_any(place, scale[i], of_row(i));
        }
        ptx::fence_async_proxy();  // to be read by MMAs
    }
};

// A warp's scales of its k-blocks, by groups: one is on its way from memory while another is stored. Every kTurns-th k-block is
// the warp's, from the first-th on.
template <class C, class Lane>
__device__ __forceinline__ void produce_scales(const Cta<C>& cta, Lane own, uint32_t first) {
    pipeline::Position<C::kStages> at;
    for (uint32_t i = 0; i < first; ++i) at.advance();
    for (auto tile = cta.tiles(); tile.next();) {
        uint32_t blocks = own.begin(tile);  // from the current group on
        typename Lane::Group current, next;
        own.load(current, blocks);
        while (blocks > 0) {
            own.load(next, blocks > Lane::kBlocks ? blocks - Lane::kBlocks : 0);
#pragma unroll
            for (uint32_t j = 0; j < Lane::kBlocks; ++j) {
                if (blocks > 0) {
                    cta.barriers.wait_empty(at);
                    own.store(current, j, at.stage);
                    __syncwarp();
                    if (own.lane == 0) ptx::mbarrier_arrive(cta.barriers.full(at.stage));
#pragma unroll
                    for (uint32_t i = 0; i < Lane::kTurns; ++i) at.advance();
                    --blocks;
                }
            }
            current = next;
        }
    }
}

template <class C>
__device__ __forceinline__ void produce_block_scales(const Cta<C>& cta, uint32_t warp, uint32_t lane) {
    produce_scales(cta, BlockLane<C>{cta, warp, lane}, warp);
}
template <class C>
__device__ __forceinline__ void produce_outer_scales(const Cta<C>& cta, uint32_t warp, uint32_t lane) {
    produce_scales(cta, OuterLane<C>{cta, warp, lane}, 0);
}

// Before any of it is used: the halves of outer scales that stay zeros.
template <class C>
__device__ __forceinline__ void clear_scales(const Cta<C>& cta) {
    constexpr uint32_t kThreads = Plan<C>::kMathThreads + kWarpgroupThreads;
    for (uint32_t i = threadIdx.x * 16; i < C::kStages * Plan<C>::kScales; i += kThreads * 16) {
        ptx::store_shared(cta.scales(0) + i, 0, 0, 0, 0);
    }
    ptx::fence_async_proxy();
}

// One warp keeps the scales of a tile's rows and columns in shared memory, for the math warps after the last k-block.
template <class C>
__device__ __forceinline__ void produce_vectors(const Cta<C>& cta, uint32_t lane) {
    const GemmParams& p = cta.params;
    const int64_t row_stride = C::kSwapped ? p.sfb_stride_n : p.sfa_stride_m;
    const int64_t column_stride = C::kSwapped ? p.sfa_stride_m : p.sfb_stride_n;
    pipeline::Position<Plan<C>::kTiles> at;
    for (auto tile = cta.tiles(); tile.next(); at.advance()) {
        const float *of_rows = C::kSwapped ? cta.sfb(tile) : cta.sfa(tile), *of_columns = C::kSwapped ? cta.sfa(tile) : cta.sfb(tile);
        const uint32_t rows = C::kSwapped ? cta.n() : cta.end(tile), columns = C::kSwapped ? cta.end(tile) : cta.n();
        const uint32_t row = cta.row(tile), column = cta.columns(tile).main, vectors = cta.vectors(at.stage);
        cta.vector_barriers().wait_empty(at);
#pragma unroll 4
        for (uint32_t i = lane; i < C::kBlockM; i += kWarpThreads) {
            ptx::store_shared(vectors + i * 4, row + i < rows ? of_rows[(row + i) * row_stride] : 0.0f);
        }
#pragma unroll 4
        for (uint32_t i = lane; i < C::kBlockN; i += kWarpThreads) {
            ptx::store_shared(vectors + (C::kBlockM + i) * 4, column + i < columns ? of_columns[(column + i) * column_stride] : 0.0f);
        }
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(cta.vector_barriers().full(at.stage));
    }
}

}  // namespace deep_gemm
