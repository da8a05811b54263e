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
#include "deep_gemm/pipeline/exchange.cuh"
#include "deep_gemm/pipeline/pipeline.cuh"
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/scheduler/dense.cuh"

namespace deep_gemm {

// The kernel's one parameter. Strides count elements.
struct GemmParams {
    TensorMap map_a, map_b, map_d;
    TensorMap map_extra;  // B again, in boxes of a tile's extra columns
    TensorMap map_rest;   // D again, the same
    const float* sfa;  // [M, ceil(K / 128)]
    const float* sfb;  // [ceil(N / 128), ceil(K / 128)]
    int64_t sfa_stride_m, sfa_stride_k;
    int64_t sfb_stride_n, sfb_stride_k;
    uint32_t m, n, k;
    uint32_t stage_bytes;          // that the TMA boxes of A and B bring to one stage
    uint32_t early_blocks;         // so many k-blocks of B may be read while the kernel ahead runs; at most kStages
    scheduler::DenseParams tiles;  // over rows and columns
};

constexpr uint32_t kBlockK = 128;  // elements and bytes of a k-block; one scale of A per row covers it
constexpr uint32_t kScaleWarps = 2;
constexpr uint32_t kStoreBarrier = 1;  // named barrier of math warpgroup 0, the others follow; 0 is the CTA's

// Everything that follows from a configuration C (the constants rendered from Python).
template <class C>
struct Plan {
    static constexpr uint32_t kMulticast = C::kClusterM * C::kClusterN;  // CTAs that share operands
    static constexpr uint32_t kCluster = kMulticast * C::kSplitK;
    static constexpr uint32_t kMathThreads = C::kMathWarpgroups * kWarpgroupThreads;
    static constexpr uint32_t kMathWarps = kMathThreads / kWarpThreads;
    static constexpr uint32_t kWaves = C::kBlockM / (64 * C::kMathWarpgroups);
    static constexpr uint32_t kElements = C::kBlockN / 2;  // of one 64-row wave, per thread
    static constexpr uint32_t kExtra = C::kExtraN, kMain = C::kBlockN - kExtra;

    // Scales of one k-block: one per token, one per block of 128 weights that a tile can touch.
    static constexpr uint32_t kTokens = C::kSwapped ? C::kBlockN : C::kBlockM;
    static constexpr uint32_t kScaleBlocks = kExtra > 0 || (C::kSwapped && C::kBlockM > 128) ? 2 : 1;

    static constexpr uint32_t kPiece = C::kPieceN;  // columns that one CTA stores: all, if K is not split
    using Exchange = pipeline::Exchange<C::kSplitK, kMulticast, C::kBlockN / 8, C::kMathWarpgroups, kPiece / 8>;

    // Shared memory, in order. Operand stages and store slabs are multiples of 1024 bytes.
    static constexpr uint32_t kStageRows = C::kBlockM * kBlockK, kStageColumns = C::kBlockN * kBlockK;
    static constexpr uint32_t kTokenScales = ceil_div(kTokens, 32) * 32 * 4, kScales = kTokenScales + 16;
    static constexpr uint32_t kSlab = 64 * C::kSlabColumns * 2;
    static constexpr uint32_t kOffsetColumns = C::kStages * kStageRows;
    static constexpr uint32_t kOffsetSlabs = kOffsetColumns + C::kStages * kStageColumns;
    static constexpr uint32_t kOffsetExchange = kOffsetSlabs + C::kMathWarpgroups * C::kStoreBuffers * kSlab;
    static constexpr uint32_t kOffsetScales = kOffsetExchange + Exchange::kBytes;
    static constexpr uint32_t kOffsetBarriers = kOffsetScales + C::kStages * kScales;
    static constexpr uint32_t kSharedBytes = kOffsetBarriers + 2 * 8 * (C::kStages + 1);

    static_assert(kSharedBytes == C::kSharedBytes, "the host plans shared memory by another table");
    static_assert(C::kBlockM % (64 * C::kMathWarpgroups) == 0 && kPiece % C::kSlabColumns == 0);
    static_assert(sizeof(GemmParams) == C::kParamsBytes, "the host packs parameters by another table");
    static_assert(C::kPartials == 1 || kWaves == 1);
    static_assert(C::kSplitK == 1 || kWaves == 1, "sums are exchanged wave by wave");
    static_assert(C::kSwapped ? kExtra == 0 : 128 % kMain == 0 && (kExtra == 0 || 128 % kExtra == 0), "one scale a part");
    static_assert(C::kSwapped || kExtra > 0 ? C::kSlabColumns == kPiece : C::kSlabColumns % C::kBoxColumns == 0);
    static_assert(kExtra == 0 || (kExtra <= kPiece && (Exchange::kOwners - 1) * kPiece <= kMain), "a box lies in one part");
};

// Where the columns of a tile lie in the product.
template <class C>
struct Columns {
    uint32_t main, extra;  // first of each part

    __device__ __forceinline__ uint32_t at(uint32_t offset) const {
        return Plan<C>::kExtra == 0 || offset < Plan<C>::kMain ? main + offset : extra + (offset - Plan<C>::kMain);
    }
};

// Where this CTA stands: its place in the cluster, its part of K, and the shared memory it sees.
template <class C>
struct Cta {
    const GemmParams& params;
    uint32_t smem;                    // base of the plan
    uint32_t rank_m, rank_n, rank_k;  // in the cluster
    uint32_t first_sharer;            // in the cluster, of the CTAs with the same part of K
    uint32_t first_block, k_blocks;   // of its part of K
    pipeline::Barriers<C::kStages> barriers;

    __device__ __forceinline__ Cta(const GemmParams& params, uint32_t smem)
        : params(params), smem(smem), barriers{smem + Plan<C>::kOffsetBarriers} {
        const uint32_t rank = Plan<C>::kCluster > 1 ? ptx::cluster_rank() : 0;
        rank_m = rank % C::kClusterM;
        rank_n = rank / C::kClusterM % C::kClusterN;
        rank_k = rank / Plan<C>::kMulticast;
        first_sharer = rank_k * Plan<C>::kMulticast;
        const uint32_t blocks = ceil_div(k(), kBlockK), rest = blocks % C::kSplitK;  // the first ranks have one more
        k_blocks = blocks / C::kSplitK + (rank_k < rest ? 1 : 0);
        first_block = blocks / C::kSplitK * rank_k + (rank_k < rest ? rank_k : rest);
    }

    // Extents: compiled in where the configuration has them.
    __device__ __forceinline__ uint32_t m() const { return C::kM ? C::kM : params.m; }
    __device__ __forceinline__ uint32_t n() const { return C::kN ? C::kN : params.n; }
    __device__ __forceinline__ uint32_t k() const { return C::kK ? C::kK : params.k; }

    __device__ __forceinline__ scheduler::Dense tiles() const {
        return scheduler::Dense(params.tiles, blockIdx.x / Plan<C>::kCluster, gridDim.x / Plan<C>::kCluster);
    }
    __device__ __forceinline__ uint32_t row(const scheduler::Dense& tile) const {
        return (tile.cluster_m * C::kClusterM + rank_m) * C::kBlockM;
    }
    __device__ __forceinline__ Columns<C> columns(const scheduler::Dense& tile) const {
        const uint32_t index = tile.cluster_n * C::kClusterN + rank_n, count = params.tiles.clusters_n * C::kClusterN;
        return {index * Plan<C>::kMain, count * Plan<C>::kMain + index * Plan<C>::kExtra};
    }
    __device__ __forceinline__ uint32_t token(const scheduler::Dense& tile) const { return C::kSwapped ? columns(tile).main : row(tile); }
    __device__ __forceinline__ uint32_t weight(const scheduler::Dense& tile) const { return C::kSwapped ? row(tile) : columns(tile).main; }
    // Block of 128 weights that the i-th scale of a tile's weights belongs to.
    __device__ __forceinline__ uint32_t scale_block(const scheduler::Dense& tile, uint32_t i) const {
        if constexpr (C::kSwapped) return weight(tile) / 128 + i;
        else return (i == 0 ? columns(tile).main : columns(tile).extra) / 128;
    }
    __device__ __forceinline__ uint32_t stage_rows(uint32_t stage) const { return smem + stage * Plan<C>::kStageRows; }
    __device__ __forceinline__ uint32_t stage_columns(uint32_t stage) const {
        return smem + Plan<C>::kOffsetColumns + stage * Plan<C>::kStageColumns;
    }
    __device__ __forceinline__ uint32_t scales(uint32_t stage) const {
        return smem + Plan<C>::kOffsetScales + stage * Plan<C>::kScales;
    }
    __device__ __forceinline__ typename Plan<C>::Exchange exchange() const {
        const uint32_t full = barriers.base + 2 * 8 * C::kStages;
        return {smem + Plan<C>::kOffsetExchange, full, full + 8, rank_k, rank_m + rank_n * C::kClusterM};
    }
};

}  // namespace deep_gemm
