// CtaContext: where a CTA stands in its cluster and in the problem, and the shared memory that it sees.
#pragma once
#include "deep_gemm/gemm/shared_storage.cuh"
#include "deep_gemm/ptx/cluster.cuh"

namespace deep_gemm {

// A range of an axis in two parts: [head, head + kHead), then from tail on. kHead = 0: all of it follows `head`.
template <uint32_t kHead>
struct SplitRange {
    uint32_t head, tail;

    __device__ __forceinline__ uint32_t at(uint32_t offset) const {
        return kHead == 0 || offset < kHead ? head + offset : tail + (offset - kHead);
    }
};

// k-blocks of one CTA: all of K, or its part of a split K.
struct KRange {
    uint32_t first, count;
};

template <class Traits>
struct CtaContext {
    using Params = typename Traits::Params;
    using Tile = typename Traits::Tile;
    using Storage = SharedStorage<Traits>;
    static constexpr uint32_t kNHead = Traits::kNTail > 0 ? Traits::kNHead : 0;
    static_assert(sizeof(Storage) == Traits::kSharedBytes, "the host has another table of shared memory");

    const Params& params;
    uint32_t smem;                    // shared address of Storage
    uint32_t rank_m, rank_n, rank_k;  // in the cluster
    uint32_t multicast_base;          // cluster rank of the first CTA with this CTA's part of K
    KRange k_range;                   // of the problem's K
    pipeline::PipelineBarriers<Traits::kNumStages> barriers;

    __device__ __forceinline__ CtaContext(const Params& params, uint32_t smem)
        : params(params), smem(smem), barriers{smem + uint32_t(DG_OFFSETOF(Storage, stage_barriers))} {
        const uint32_t rank = Traits::kClusterSize > 1 ? ptx::cluster_rank() : 0;
        rank_m = rank % Traits::kClusterM;
        rank_n = rank / Traits::kClusterM % Traits::kClusterN;
        rank_k = rank / Traits::kMulticast;
        multicast_base = rank_k * Traits::kMulticast;
        k_range = split_k(k());
    }

    // --- extents: compile-time where the configuration has them ---------------------------------------

    __device__ __forceinline__ uint32_t m() const { return Traits::kShapeM ? Traits::kShapeM : params.m; }
    __device__ __forceinline__ uint32_t n() const { return Traits::kShapeN ? Traits::kShapeN : params.n; }
    __device__ __forceinline__ uint32_t k() const { return Traits::kShapeK ? Traits::kShapeK : params.k; }

    // This CTA's k-blocks of an extent along K; where they do not divide evenly, the first ranks have one more.
    __device__ __forceinline__ KRange split_k(uint32_t extent) const {
        const uint32_t blocks = ceil_div(extent, Traits::kBlockK), rest = blocks % Traits::kSplitK;
        return {blocks / Traits::kSplitK * rank_k + (rank_k < rest ? rank_k : rest),
                blocks / Traits::kSplitK + (rank_k < rest ? 1 : 0)};
    }

    // --- tiles ------------------------------------------------------------------------------------------

    __device__ __forceinline__ typename Traits::TileScheduler tile_scheduler() const {
        if constexpr (Traits::kIsGrouped) return scheduler::WorkTileConsumer(work_tiles());
        else return scheduler::DenseTileScheduler(params.scheduler, blockIdx.x / Traits::kClusterSize, gridDim.x / Traits::kClusterSize);
    }
    // The tile scheduler of the warp that broadcasts tiles to the others.
    __device__ __forceinline__ typename Traits::TileProducer tile_producer() const {
        const uint32_t cluster = blockIdx.x / Traits::kClusterSize, num_clusters = gridDim.x / Traits::kClusterSize;
        return {typename Traits::GroupScheduler(params.scheduler, params.groups, cluster, num_clusters, rank_m), work_tiles()};
    }
    __device__ __forceinline__ KRange k_range_of(const Tile& tile) const {
        if constexpr (Traits::kIsKGrouped) return split_k(tile.k);
        else if constexpr (Traits::kIsGrouped) return {k_range.first, tile.k > 0 ? k_range.count : 0};
        else return k_range;
    }
    // NOTE: a main loop whose trip count the compiler cannot prove warp-uniform keeps matrix descriptors in vector registers,
    // and an R2UR precedes every wgmma.
    __device__ __forceinline__ uint32_t num_k_blocks(const Tile& tile) const {
        return Traits::kIsGrouped ? ptx::warp_uniform(k_range_of(tile).count) : k_range_of(tile).count;
    }
    // Rows of A and D: the group's first, the end of those that are multiplied, the end of those that are stored.
    __device__ __forceinline__ uint32_t m_begin(const Tile& tile) const {
        if constexpr (Traits::kIsGrouped) return tile.m_begin;
        else return 0;
    }
    __device__ __forceinline__ uint32_t m_end(const Tile& tile) const {
        if constexpr (Traits::kIsGrouped) return tile.m_end;
        else return m();
    }
    __device__ __forceinline__ uint32_t m_store_end(const Tile& tile) const {
        if constexpr (Traits::kIsGrouped) return tile.m_store_end;
        else return m();
    }
    __device__ __forceinline__ uint32_t group(const Tile& tile) const {
        if constexpr (Traits::kIsGrouped) return tile.group;
        else return 0;
    }
    // First row of A, and the rows of B, of this CTA's tile.
    __device__ __forceinline__ uint32_t m_idx(const Tile& tile) const {
        return m_begin(tile) + (tile.m_cluster * Traits::kClusterM + rank_m) * Traits::kBlockM;
    }
    __device__ __forceinline__ SplitRange<kNHead> n_range(const Tile& tile) const {
        const uint32_t index = tile.n_cluster * Traits::kClusterN + rank_n, count = params.scheduler.n_clusters * Traits::kClusterN;
        return {index * Traits::kNHead, count * Traits::kNHead + index * Traits::kNTail};
    }
    __device__ __forceinline__ uint32_t n_idx(const Tile& tile) const { return n_range(tile).head; }
    // The tile along the axes of the MMA.
    __device__ __forceinline__ uint32_t mma_m_idx(const Tile& tile) const { return Traits::kSwapAB ? n_idx(tile) : m_idx(tile); }
    __device__ __forceinline__ SplitRange<kNHead> mma_n_range(const Tile& tile) const {
        if constexpr (Traits::kSwapAB) return {m_idx(tile), 0};
        else return n_range(tile);
    }

    // Whether only the first kHalfN columns of the tile that begins at n are in bounds.
    __device__ __forceinline__ bool is_half_n(uint32_t n_idx) const { return n_idx + Traits::kHalfN >= n(); }

    // --- scales -----------------------------------------------------------------------------------------

    // Block of 128 along N of the tile's i-th scale of B.
    __device__ __forceinline__ uint32_t scale_block_n(const Tile& tile, uint32_t i) const {
        if constexpr (Traits::kSwapAB) return n_idx(tile) / 128 + i;
        else return (i == 0 ? n_range(tile).head : n_range(tile).tail) / 128;
    }
    // Scales of the tile's group, from its first along K on.
    __device__ __forceinline__ const float* sfa(const Tile& tile) const {
        if constexpr (Traits::kIsKGrouped) return params.sfa + tile.scale_begin * params.sfa_stride_k;
        else return params.sfa + (Traits::kIsStackedA ? group(tile) * params.sfa_stride_group : 0);
    }
    __device__ __forceinline__ const float* sfb(const Tile& tile) const {
        if constexpr (Traits::kIsKGrouped) return params.sfb + tile.scale_begin * params.sfb_stride_k;
        else return params.sfb + (Traits::kIsStackedB ? group(tile) * params.sfb_stride_group : 0);
    }

    // --- shared memory ----------------------------------------------------------------------------------

    __device__ __forceinline__ uint32_t stage_a(uint32_t stage) const { return smem + stage * uint32_t(sizeof(typename Storage::A)); }
    __device__ __forceinline__ uint32_t stage_b(uint32_t stage) const {
        return smem + uint32_t(DG_OFFSETOF(Storage, b)) + stage * uint32_t(sizeof(typename Storage::B));
    }
    __device__ __forceinline__ uint32_t stage_scales(uint32_t stage) const {
        return smem + uint32_t(DG_OFFSETOF(Storage, scales)) + stage * uint32_t(sizeof(typename Storage::StageScales));
    }
    __device__ __forceinline__ uint32_t store_stage(uint32_t warpgroup, uint32_t index) const {
        return smem + uint32_t(DG_OFFSETOF(Storage, store)) +
               (warpgroup * Traits::kNumStoreStages + index) * uint32_t(sizeof(typename Storage::StoreStage));
    }
    // Scales for the epilogue of the tile in flight `slot`: of m, and of n.
    __device__ __forceinline__ uint32_t epilogue_scales_m(uint32_t slot) const {
        return smem + uint32_t(DG_OFFSETOF(Storage, epilogue_scales)) + slot * uint32_t(sizeof(typename Storage::EpilogueScales));
    }
    __device__ __forceinline__ uint32_t epilogue_scales_n(uint32_t slot) const {
        return epilogue_scales_m(slot) + uint32_t(DG_OFFSETOF(typename Storage::EpilogueScales, n));
    }
    __device__ __forceinline__ pipeline::PipelineBarriers<Traits::kTilesInFlight> epilogue_scale_barriers() const {
        return {smem + uint32_t(DG_OFFSETOF(Storage, epilogue_scale_barriers))};
    }
    __device__ __forceinline__ scheduler::WorkTilePipeline work_tiles() const {
        return {smem + uint32_t(DG_OFFSETOF(Storage, work_tiles)), {smem + uint32_t(DG_OFFSETOF(Storage, work_tile_barriers))}};
    }
    __device__ __forceinline__ typename Traits::ClusterReduce cluster_reduce() const {
        const uint32_t full = smem + uint32_t(DG_OFFSETOF(Storage, reduce_barriers));
        return {smem + uint32_t(DG_OFFSETOF(Storage, reduce)), full, full + 8, rank_k, rank_m + rank_n * Traits::kClusterM};
    }

    // Called by each math warp after it has read a stage: tells every CTA that loads into this one's stage.
    __device__ __forceinline__ void release_stage(uint32_t stage, uint32_t lane) const {
        if constexpr (Traits::kMulticast == 1) {
            if (lane == 0) ptx::mbarrier_arrive(barriers.empty(stage));
        } else {
            if (lane < Traits::kMulticast) ptx::mbarrier_arrive_remote(barriers.empty(stage), multicast_base + lane);
        }
    }
};

}  // namespace deep_gemm
