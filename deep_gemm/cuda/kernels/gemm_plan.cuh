// What the roles of gemm_sm90 share: the parameter, everything that follows from the configuration, and
// where a CTA stands.
//
// Rows and columns here are those of the tensor core's product: a tile is BLOCK_M rows, 64 to a wgmma, by
// BLOCK_N columns. Plain, rows are rows of A (tokens) and columns are rows of B (weights); swapped, rows are
// those of B and columns those of A, and a tile is stored transposed: few tokens then waste no rows.
//
// Weights of a plain tile are columns, and those of one block of 128 share their scales. So that a tile's scales never
// change inside, it has kMain columns, a power of two, and kExtra columns from beyond all tiles' main ones: tile j of T
// has [kMain j, kMain (j + 1)) and [kMain T + kExtra j, kMain T + kExtra (j + 1)). As one contiguous range it could enter
// the next block anywhere, and to select scales would cost the promotion a quarter more instructions.
#pragma once
#include "deep_gemm/epilogue/scales.cuh"
#include "deep_gemm/pipeline/exchange.cuh"
#include "deep_gemm/pipeline/pipeline.cuh"
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/scheduler/dense.cuh"
#include "deep_gemm/scheduler/ring.cuh"

namespace deep_gemm {

// The kernel's one parameter. Strides count elements. Which members a kernel reads follows from its configuration.
struct GemmParams {
    TensorMap map_a, map_b, map_d;
    TensorMap map_extra;  // B again, in boxes of a tile's extra columns
    TensorMap map_rest;   // D again, in boxes of what whole boxes leave over of a tile's columns
    const float* sfa;  // [M, ceil(K / 128)], or [M], a stride of 0 standing for one scale
    const float* sfb;  // [ceil(N / 128), ceil(K / 128)], [N, ceil(K / 128)], or [N]
    const void* c;     // [M, N]
    void* d;           // where rows are stored one by one
    const TensorMap* group_maps;  // of A and B of every group, where K belongs to groups
    int64_t sfa_stride_m, sfa_stride_k, sfa_stride_group;
    int64_t sfb_stride_n, sfb_stride_k, sfb_stride_group;
    int64_t c_stride, d_stride, d_stride_group;
    float alpha, beta;
    uint32_t m, n, k;
    uint32_t stage_bytes;          // that the TMA boxes of A and B bring to one stage
    uint32_t early_blocks;         // so many k-blocks of B may be read while the kernel ahead runs; at most kStages
    scheduler::WalkParams tiles;   // over rows and columns
    scheduler::GroupParams groups;
};

// What becomes of the tensor core's sums: they stay there over all of K, or are added up in FP32 k-block by k-block, as
// they are, times a scale of the row of A and one of 128 x 128 of B, or times scales of the rows of both.
enum Promotion : uint32_t { kNone, kUnit, kBlock, kRows };
// C is not there, is read and added, or is what D holds, to which the store adds.
enum AddendMode : uint32_t { kNoAddend, kRead, kReduce };

constexpr uint32_t kRowBytes = 128;  // of a row, or a column, of operands in a stage
constexpr uint32_t kScaleWarps = 2, kOuterWarps = 3;  // of the producer, for scales along K: of blocks, of rows and columns
// Named barriers of math warpgroup 0, of three at most, whose others follow; 0 is the CTA's.
constexpr uint32_t kStoreBarrier = 1, kTurnBarrier = 4;

// Everything that follows from a configuration C (the constants rendered from Python).
template <class C>
struct Plan {
    using Out = typename C::Out;
    using Value = typename Choose<kSame<Out, int>, int, float>::Type;  // of a result before its rounding

    static constexpr uint32_t kBlockK = kRowBytes / C::kElementBytes;  // elements of K in a k-block
    static constexpr bool kScalesAlongK = C::kPromotion == kBlock || C::kPromotion == kRows;
    static constexpr uint32_t kScaleArrivals = C::kPromotion == kRows ? kOuterWarps : kScalesAlongK ? 1 : 0;  // at a stage
    static constexpr bool kScaled = C::kScaled;  // by a vector of scales for rows and one for columns, after all of K

    static constexpr uint32_t kMulticast = C::kClusterM * C::kClusterN;  // CTAs that share operands
    static constexpr uint32_t kCluster = kMulticast * C::kSplitK;
    static constexpr uint32_t kMathThreads = C::kMathWarpgroups * kWarpgroupThreads;
    static constexpr uint32_t kMathWarps = kMathThreads / kWarpThreads;
    // Math warpgroups share a tile, or work on tiles of their own by turns, one's MMAs under another's store.
    static constexpr uint32_t kTiles = C::kPingPong ? C::kMathWarpgroups : 1;
    static constexpr uint32_t kSharing = C::kMathWarpgroups / kTiles;  // warpgroups of a tile
    static constexpr uint32_t kReaders = kMathWarps / kTiles;          // warps that read a stage
    static constexpr uint32_t kWaves = C::kBlockM / (64 * kSharing);
    static constexpr uint32_t kElements = C::kBlockN / 2;  // of one 64-row wave, per thread
    static constexpr uint32_t kNarrowElements = (C::kHalfColumns > 0 ? C::kHalfColumns : C::kBlockN) / 2;  // of a tile with half its columns
    // Where there are groups: operands, and D, that have a matrix for each.
    static constexpr bool kGrouped = C::kGrouping != scheduler::kUngrouped;
    static constexpr bool kStacksTokens = C::kGrouping == scheduler::kMasked || C::kGrouping == scheduler::kBatched;
    static constexpr bool kStacksWeights = kGrouped && C::kGrouping != scheduler::kAlongK;
    static constexpr bool kStacksOutput = kStacksTokens || C::kGrouping == scheduler::kAlongK;

    // Where a tile's last tokens are followed by rows of D that it may not write: those that it may are stored one by one.
    static constexpr bool kStoresRows = C::kGrouping == scheduler::kLabels || C::kGrouping == scheduler::kOffsets || C::kGrouping == scheduler::kMasked;

    static constexpr bool kPrefetchesSum = C::kAddend == kReduce && !C::kSwapped && C::kSplitK == 1;
    static constexpr uint32_t kExtra = C::kExtraN, kMain = C::kBlockN - kExtra;

    // Scales of one k-block: one per token, and one per weight or per block of 128 weights that a tile can touch.
    static constexpr uint32_t kTokens = C::kSwapped ? C::kBlockN : C::kBlockM;
    static constexpr uint32_t kWeights = C::kSwapped ? C::kBlockM : C::kBlockN;
    using Shape = scheduler::Shape<kTokens, C::kSwapped ? C::kClusterN : C::kClusterM, C::kSwapped>;
    using GroupTiles = typename Choose<C::kGrouping == scheduler::kLabels, scheduler::Labels<Shape>, scheduler::Groups<C::kGrouping, Shape>>::Type;
    using Walk = scheduler::Publisher<GroupTiles>;
    using Tiles = typename Choose<kGrouped, scheduler::Reader, scheduler::Dense>::Type;
    using Tile = typename Choose<kGrouped, scheduler::GroupTile, scheduler::Place>::Type;
    // A warp that has nothing else to do walks over groups; where there is none, that of the copies.
    static constexpr bool kHasWalker = kGrouped && C::kPromotion != kRows;
    static constexpr uint32_t kScalers = C::kPromotion == kRows ? kOuterWarps : C::kPromotion == kBlock ? kScaleWarps : kScaled ? 1 : 0;
    static constexpr uint32_t kRingReaders = kMathWarps + kHasWalker + kScalers;
    static constexpr uint32_t kScaleBlocks = kExtra > 0 || (C::kSwapped && C::kBlockM > 128) ? 2 : 1;

    static constexpr uint32_t kPiece = C::kPieceN;  // columns that one CTA stores: all, if K is not split
    template <class Sum>
    using Exchange = pipeline::Exchange<Sum, C::kSplitK, kMulticast, C::kBlockN / 8, C::kMathWarpgroups, kPiece / 8>;

    // Shared memory, in order. Operand stages and store slabs are multiples of 1024 bytes.
    static constexpr uint32_t kStageRows = (C::kRowsMnMajor ? round_up(C::kBlockM, 64) : C::kBlockM) * kRowBytes;
    static constexpr uint32_t kStageColumns = (C::kColumnsMnMajor ? round_up(C::kBlockN, 64) : C::kBlockN) * kRowBytes;
    static constexpr uint32_t kOuter = epilogue::OuterScales::kBytes;
    static constexpr uint32_t kTokenScales = C::kPromotion == kRows ? kTokens * kOuter : kScalesAlongK ? round_up(kTokens, 32) * 4 : 0;
    static constexpr uint32_t kWeightScales = C::kPromotion == kRows ? kWeights * kOuter : kScalesAlongK ? 16 : 0;
    static constexpr uint32_t kScales = kTokenScales + kWeightScales;
    static constexpr uint32_t kVectors = kScaled ? round_up((C::kBlockM + C::kBlockN) * 4, 16) : 0;  // of a tile
    static constexpr uint32_t kSlab = 64 * C::kSlabColumns * sizeof(Out);
    static constexpr uint32_t kSlabValues = C::kSlabColumns / 2;  // of a thread
    static constexpr uint32_t kOffsetColumns = C::kStages * kStageRows;
    static constexpr uint32_t kOffsetSlabs = kOffsetColumns + C::kStages * kStageColumns;
    static constexpr uint32_t kOffsetExchange = kOffsetSlabs + C::kMathWarpgroups * C::kStoreBuffers * kSlab;
    static constexpr uint32_t kOffsetScales = kOffsetExchange + Exchange<float>::kBytes;
    static constexpr uint32_t kOffsetVectors = kOffsetScales + C::kStages * kScales;
    static constexpr uint32_t kOffsetTiles = kOffsetVectors + kTiles * kVectors;
    static constexpr uint32_t kSlots = kGrouped ? scheduler::kRingSlots : 0;
    static constexpr uint32_t kOffsetBarriers = kOffsetTiles + kSlots * scheduler::kSlotBytes;
    static constexpr uint32_t kSharedBytes = kOffsetBarriers + 2 * 8 * (C::kStages + 1 + kTiles + kSlots);

    static_assert(kSharedBytes == C::kSharedBytes, "the host plans shared memory by another table");
    static_assert(C::kBlockM % (64 * kSharing) == 0);
    static_assert(!C::kPingPong || C::kSplitK == 1, "the sums of a tile are exchanged by all");
    static_assert(sizeof(GemmParams) == C::kParamsBytes, "the host packs parameters by another table");
    static_assert(C::kPartials < 2 || kWaves == 1);
    static_assert((C::kPartials == 0) == (C::kPromotion == kNone));
    static_assert(C::kSplitK == 1 || kWaves == 1, "sums are exchanged wave by wave");
    static_assert(C::kPromotion != kBlock || C::kSwapped || (128 % kMain == 0 && (kExtra == 0 || 128 % kExtra == 0)), "one scale a part");
    static_assert(kExtra == 0 || (C::kPromotion == kBlock && !C::kSwapped), "only there do parts serve a purpose");
    static_assert(C::kPromotion != kRows || (!C::kSwapped && kWaves == 1 && kOffsetScales % 256 == 0));
    static_assert(C::kSlabColumns == kPiece || (!C::kSwapped && kExtra == 0 && C::kSlabColumns % C::kBoxColumns == 0));
    static_assert(C::kSwapped || (kPiece - C::kRestColumns) % C::kBoxColumns == 0);
    static_assert(kExtra == 0 || (kExtra <= kPiece && (Exchange<float>::kOwners - 1) * kPiece <= kMain), "a box lies in one part");
    static_assert(C::kAddend == kNoAddend || C::kBlockN % kPiece == 0, "two owners of a column would both add to it");
    static_assert(C::kAddend != kReduce || sizeof(Out) == 4);
    static_assert(C::kHalfColumns == 0 || (C::kPromotion == kRows && C::kSplitK == 1 && C::kRestColumns == 0));
    static_assert(C::kHalfColumns % C::kBoxColumns == 0, "whole boxes of output");
};

// Where the columns of a tile lie in the product.
template <class C>
struct Columns {
    uint32_t main, extra;  // first of each part

    __device__ __forceinline__ uint32_t at(uint32_t offset) const {
        return Plan<C>::kExtra == 0 || offset < Plan<C>::kMain ? main + offset : extra + (offset - Plan<C>::kMain);
    }
};

// A CTA's part of a tile's K, in k-blocks.
struct Part {
    uint32_t first, blocks;
};

// Where this CTA stands: its place in the cluster, its part of K, and the shared memory it sees.
template <class C>
struct Cta {
    const GemmParams& params;
    uint32_t smem;                    // base of the plan
    uint32_t rank_m, rank_n, rank_k;  // in the cluster
    uint32_t first_sharer;            // in the cluster, of the CTAs with the same part of K
    Part whole;                       // of the product's K
    pipeline::Barriers<C::kStages> barriers;

    __device__ __forceinline__ Cta(const GemmParams& params, uint32_t smem)
        : params(params), smem(smem), barriers{smem + Plan<C>::kOffsetBarriers} {
        const uint32_t rank = Plan<C>::kCluster > 1 ? ptx::cluster_rank() : 0;
        rank_m = rank % C::kClusterM;
        rank_n = rank / C::kClusterM % C::kClusterN;
        rank_k = rank / Plan<C>::kMulticast;
        first_sharer = rank_k * Plan<C>::kMulticast;
        whole = part_of(k());
    }

    // This CTA's part of an extent: the first ranks have a block more than others.
    __device__ __forceinline__ Part part_of(uint32_t extent) const {
        const uint32_t blocks = ceil_div(extent, Plan<C>::kBlockK), rest = blocks % C::kSplitK;
        return {blocks / C::kSplitK * rank_k + (rank_k < rest ? rank_k : rest), blocks / C::kSplitK + (rank_k < rest ? 1 : 0)};
    }

    // Extents: compiled in where the configuration has them.
    __device__ __forceinline__ uint32_t m() const { return C::kM ? C::kM : params.m; }
    __device__ __forceinline__ uint32_t n() const { return C::kN ? C::kN : params.n; }
    __device__ __forceinline__ uint32_t k() const { return C::kK ? C::kK : params.k; }

    using Tile = typename Plan<C>::Tile;
    __device__ __forceinline__ typename Plan<C>::Tiles tiles() const {
        if constexpr (Plan<C>::kGrouped) return scheduler::Reader(ring());
        else return scheduler::Dense(params.tiles, blockIdx.x / Plan<C>::kCluster, gridDim.x / Plan<C>::kCluster);
    }
    // The same for the one warp that shows them to the others.
    __device__ __forceinline__ typename Plan<C>::Walk walk() const {
        const uint32_t cluster = blockIdx.x / Plan<C>::kCluster, clusters = gridDim.x / Plan<C>::kCluster;
        return {typename Plan<C>::GroupTiles(params.tiles, params.groups, cluster, clusters, C::kSwapped ? rank_n : rank_m), ring()};
    }
    __device__ __forceinline__ scheduler::Ring ring() const {
        return {smem + Plan<C>::kOffsetTiles, {barriers.base + 2 * 8 * (C::kStages + 1 + Plan<C>::kTiles)}};
    }
    __device__ __forceinline__ Part part(const Tile& tile) const {
        if constexpr (C::kGrouping == scheduler::kAlongK) return part_of(tile.k);
        else if constexpr (Plan<C>::kGrouped) return {whole.first, tile.k > 0 ? whole.blocks : 0};
        else return whole;
    }
    // NOTE: a loop over k-blocks whose length is not known to be uniform keeps descriptors in vector registers.
    __device__ __forceinline__ uint32_t blocks(const Tile& tile) const {
        return Plan<C>::kGrouped ? ptx::uniform(part(tile).blocks) : part(tile).blocks;
    }
    // Rows of A and D: the first of the group's, the one after those that are multiplied, and after those that are stored.
    __device__ __forceinline__ uint32_t first(const Tile& tile) const {
        if constexpr (Plan<C>::kGrouped) return tile.first;
        else return 0;
    }
    __device__ __forceinline__ uint32_t end(const Tile& tile) const {
        if constexpr (Plan<C>::kGrouped) return tile.end;
        else return m();
    }
    __device__ __forceinline__ uint32_t stored_end(const Tile& tile) const {
        if constexpr (Plan<C>::kGrouped) return tile.stored_end;
        else return m();
    }
    __device__ __forceinline__ uint32_t group(const Tile& tile) const {
        if constexpr (Plan<C>::kGrouped) return tile.group;
        else return 0;
    }
    __device__ __forceinline__ uint32_t row(const Tile& tile) const {
        return (C::kSwapped ? 0 : first(tile)) + (tile.cluster_m * C::kClusterM + rank_m) * C::kBlockM;
    }
    __device__ __forceinline__ Columns<C> columns(const Tile& tile) const {
        const uint32_t index = tile.cluster_n * C::kClusterN + rank_n, count = params.tiles.clusters_n * C::kClusterN;
        return {(C::kSwapped ? first(tile) : 0) + index * Plan<C>::kMain, count * Plan<C>::kMain + index * Plan<C>::kExtra};
    }
    __device__ __forceinline__ uint32_t token(const Tile& tile) const { return C::kSwapped ? columns(tile).main : row(tile); }
    __device__ __forceinline__ uint32_t weight(const Tile& tile) const { return C::kSwapped ? row(tile) : columns(tile).main; }
    // Block of 128 weights that the i-th scale of a tile's weights belongs to.
    __device__ __forceinline__ uint32_t scale_block(const Tile& tile, uint32_t i) const {
        if constexpr (C::kSwapped) return weight(tile) / 128 + i;
        else return (i == 0 ? columns(tile).main : columns(tile).extra) / 128;
    }
    // Scales of the tile's group, from its first along K on.
    __device__ __forceinline__ const float* sfa(const Tile& tile) const {
        if constexpr (C::kGrouping == scheduler::kAlongK) return params.sfa + tile.first_scale * params.sfa_stride_k;
        else return params.sfa + (Plan<C>::kStacksTokens ? group(tile) * params.sfa_stride_group : 0);
    }
    __device__ __forceinline__ const float* sfb(const Tile& tile) const {
        if constexpr (C::kGrouping == scheduler::kAlongK) return params.sfb + tile.first_scale * params.sfb_stride_k;
        else return params.sfb + (Plan<C>::kStacksWeights ? group(tile) * params.sfb_stride_group : 0);
    }
    __device__ __forceinline__ uint32_t stage_rows(uint32_t stage) const { return smem + stage * Plan<C>::kStageRows; }
    __device__ __forceinline__ uint32_t stage_columns(uint32_t stage) const {
        return smem + Plan<C>::kOffsetColumns + stage * Plan<C>::kStageColumns;
    }
    __device__ __forceinline__ uint32_t scales(uint32_t stage) const {
        return smem + Plan<C>::kOffsetScales + stage * Plan<C>::kScales;
    }
    __device__ __forceinline__ uint32_t vectors(uint32_t set) const { return smem + Plan<C>::kOffsetVectors + set * Plan<C>::kVectors; }
    __device__ __forceinline__ pipeline::Barriers<Plan<C>::kTiles> vector_barriers() const {
        return {barriers.base + 2 * 8 * (C::kStages + 1)};
    }
    template <class Sum>
    __device__ __forceinline__ typename Plan<C>::template Exchange<Sum> exchange() const {
        const uint32_t full = barriers.base + 2 * 8 * C::kStages;
        return {smem + Plan<C>::kOffsetExchange, full, full + 8, rank_k, rank_m + rank_n * C::kClusterM};
    }
};

}  // namespace deep_gemm
