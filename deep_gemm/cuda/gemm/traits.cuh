// GemmTraits<Config>: what follows from a configuration, computed once. Config holds the constants that the host renders.
//
// Axes. m, n, k are those of the problem: D[m, n]; a tile is BLOCK_M x BLOCK_N. mma_m and mma_n are those of wgmma, whose M is
// 64. They agree, except with kSwapAB: B then lies along mma_m and A along mma_n, so that few rows of A waste no part of the
// 64, and the tile is stored transposed.
//
// N head and tail. With 128 x 128 scales of B, one scale must cover all columns that it is applied to. So a tile has kNHead
// columns, a power of two, and kNTail columns that lie behind the heads of all tiles: tile j of T has
// [kNHead j, kNHead (j + 1)) and [kNHead T + kNTail j, kNHead T + kNTail (j + 1)). A contiguous range of, say, 136 columns
// would cross a block of scales at a different column in each tile; selecting scales by column costs the promotion a quarter
// more instructions.
#pragma once
#include "deep_gemm/gemm/params.cuh"
#include "deep_gemm/mma/descriptor.cuh"
#include "deep_gemm/mma/fragment.cuh"
#include "deep_gemm/pipeline/cluster_reduce.cuh"
#include "deep_gemm/pipeline/order_barrier.cuh"
#include "deep_gemm/scheduler/broadcast.cuh"
#include "deep_gemm/scheduler/dense.cuh"

namespace deep_gemm {

using scheduler::GroupKind;

// What happens to the accumulators of one k-block: they stay in the tensor core over all of K; or they are promoted, that is
// added in FP32 by the CUDA cores: unscaled, times 1x128 scales of A and 128x128 scales of B, or times 1x128 scales of both.
enum class Mainloop : uint32_t { kDirect, kPromoted, kScaled1d2d, kScaled1d1d };

// How a tile reaches D: the store replaces D's values, or a TMA reduction adds to them.
enum class StoreMode : uint32_t { kReplace, kReduceAdd };

// Named barriers; 0 is __syncthreads(). Each range has one barrier for each math warpgroup, of which there are at most three.
enum NamedBarrier : uint32_t { kStoreBarrier = 1, kOrderBarrier = 4 };

constexpr uint32_t kNumScaleWarps1d2d = 2, kNumScaleWarps1d1d = 3;  // producer warps that load scales along K
constexpr uint32_t kScaleBytes1d1d = 32;  // of one m or n in a stage: 16 bf16, see mainloop/scaled_1d1d.cuh

template <class Config>
struct GemmTraits : Config {
    using C = Config;
    using Params = GemmParams<typename C::EpilogueParams>;
    using EpilogueChain = typename C::EpilogueChain;
    using Out = typename C::Out;
    using Accum = typename C::Mma::Accum;                                     // of the MMA: float or int
    using Value = typename Conditional<kIsSame<Out, int>, int, float>::Type;  // in the epilogue, before rounding to Out

    // Mainloop.
    static constexpr uint32_t kBlockK = mma::kRowBytes / C::kElementBytes;  // elements of a k-block
    static constexpr bool kIs1d2d = C::kMainloop == Mainloop::kScaled1d2d, kIs1d1d = C::kMainloop == Mainloop::kScaled1d1d;
    static constexpr bool kScalesAlongK = kIs1d2d || kIs1d1d;
    static constexpr bool kHasEpilogueScales = EpilogueChain::kNeedsScales;  // one for each m and each n, applied after all of K
    static constexpr uint32_t kNumScaleWarps = kIs1d1d ? kNumScaleWarps1d1d : kIs1d2d ? kNumScaleWarps1d2d : kHasEpilogueScales ? 1 : 0;

    // Cluster and warps.
    static constexpr uint32_t kMulticast = C::kClusterM * C::kClusterN;  // CTAs that share a tile of A or of B
    static constexpr uint32_t kClusterSize = kMulticast * C::kSplitK;
    static constexpr uint32_t kNumMathThreads = C::kNumMathWarpgroups * kWarpgroupThreads;
    static constexpr uint32_t kNumMathWarps = kNumMathThreads / kWarpThreads;
    static constexpr uint32_t kNumThreads = kNumMathThreads + kWarpgroupThreads;
    // Math warpgroups share a tile; with kPingPong each has its own, and one's MMAs run under another's epilogue.
    static constexpr uint32_t kTilesInFlight = C::kPingPong ? C::kNumMathWarpgroups : 1;
    static constexpr uint32_t kWarpgroupsPerTile = C::kNumMathWarpgroups / kTilesInFlight;
    static constexpr uint32_t kMathWarpsPerTile = kNumMathWarps / kTilesInFlight;

    // Tile along the axes of the MMA.
    static constexpr uint32_t kMmaTileM = C::kSwapAB ? C::kBlockN : C::kBlockM;
    static constexpr uint32_t kMmaTileN = C::kSwapAB ? C::kBlockM : C::kBlockN;
    static constexpr bool kMmaAIsMnMajor = C::kSwapAB ? C::kBIsMnMajor : C::kAIsMnMajor;
    static constexpr bool kMmaBIsMnMajor = C::kSwapAB ? C::kAIsMnMajor : C::kBIsMnMajor;
    static constexpr uint32_t kMSlices = kMmaTileM / (mma::kSliceM * kWarpgroupsPerTile);  // of 64 rows, per warpgroup
    static constexpr uint32_t kSliceAccums = kMmaTileN / 2;                                // of one slice, per thread
    static constexpr uint32_t kHalfAccums = (C::kHalfN > 0 ? C::kHalfN : kMmaTileN) / 2;   // of a half-N residue tile
    static constexpr uint32_t kNTail = C::kNTail, kNHead = C::kBlockN - kNTail;
    // Blocks of 128 along N that a tile's columns can lie in, each with one scale of B.
    static constexpr uint32_t kScaleBlocksN = kNTail > 0 || (C::kSwapAB && C::kBlockN > 128) ? 2 : 1;

    // Groups.
    static constexpr bool kIsGrouped = C::kGroupKind != GroupKind::kNone;
    static constexpr bool kIsKGrouped = C::kGroupKind == GroupKind::kAlongK;
    static constexpr bool kIsStackedA = C::kGroupKind == GroupKind::kMasked || C::kGroupKind == GroupKind::kBatched;
    static constexpr bool kIsStackedB = kIsGrouped && !kIsKGrouped;
    static constexpr bool kIsStackedD = kIsStackedA || kIsKGrouped;
    // A group's last tile must not write the rows of D behind it: its rows are stored one by one instead of by TMA.
    static constexpr bool kHasRaggedM =
        C::kGroupKind == GroupKind::kLabels || C::kGroupKind == GroupKind::kOffsets || C::kGroupKind == GroupKind::kMasked;

    // Tile scheduler. With groups one warp runs it: warp 3 of the producer, or, if that loads scales, the one that loads operands.
    static constexpr bool kHasSchedulerWarp = kIsGrouped && !kIs1d1d;
    static constexpr uint32_t kNumTileConsumerWarps = kNumMathWarps + kHasSchedulerWarp + kNumScaleWarps;
    using GroupScheduler =
        typename Conditional<C::kGroupKind == GroupKind::kLabels, scheduler::LabelTileScheduler<C::kBlockM, C::kClusterM>,
                             scheduler::GroupTileScheduler<C::kGroupKind, C::kBlockM, C::kClusterM>>::Type;
    using TileProducer = scheduler::WorkTileProducer<GroupScheduler>;
    using TileScheduler = typename Conditional<kIsGrouped, scheduler::WorkTileConsumer, scheduler::DenseTileScheduler>::Type;
    using Tile = typename Conditional<kIsGrouped, scheduler::WorkTile, scheduler::TileCoord>::Type;

    // Epilogue and split-K reduction. A split-K owner reduces and stores kReduceMmaN columns of the tile, else it is all of them.
    using ClusterReduce = pipeline::ClusterReduce<Accum, C::kSplitK, kMulticast, kMmaTileN / 8, C::kNumMathWarpgroups, C::kReduceMmaN / 8>;
    using OrderBarrier = pipeline::OrderBarrier<C::kNumMathWarpgroups, kOrderBarrier, bool(C::kPingPong)>;
    static constexpr uint32_t kStoreStageBytes = mma::kSliceM * C::kStoreStageMmaN * sizeof(Out);
    static constexpr uint32_t kStoreStageValues = C::kStoreStageMmaN / 2;  // of a thread
    static constexpr bool kReduceAdds = C::kStoreMode == StoreMode::kReduceAdd;
    static constexpr bool kPrefetchesD = kReduceAdds && !C::kSwapAB && C::kSplitK == 1;

    static_assert(kMmaTileM % (mma::kSliceM * kWarpgroupsPerTile) == 0);
    static_assert(!C::kPingPong || C::kSplitK == 1, "all math warpgroups take part in a split-K reduction");
    static_assert((C::kNumPartials == 0) == (C::kMainloop == Mainloop::kDirect));
    static_assert(C::kNumPartials < 2 || kMSlices == 1);
    static_assert(C::kSplitK == 1 || kMSlices == 1, "the split-K reduction takes one slice");
    static_assert(!kIs1d2d || C::kSwapAB || (128 % kNHead == 0 && (kNTail == 0 || 128 % kNTail == 0)), "one scale for each part");
    static_assert(kNTail == 0 || (kIs1d2d && !C::kSwapAB), "only 128x128 scales need an N tail");
    static_assert(!kIs1d1d || (!C::kSwapAB && kMSlices == 1));
    static_assert(C::kStoreStageMmaN == C::kReduceMmaN || (!C::kSwapAB && kNTail == 0 && C::kStoreStageMmaN % C::kStoreBoxN == 0));
    static_assert(C::kSwapAB || (C::kReduceMmaN - C::kStoreTailN) % C::kStoreBoxN == 0);
    static_assert(kNTail == 0 || (kNTail <= C::kReduceMmaN && (ClusterReduce::kOwners - 1) * C::kReduceMmaN <= kNHead),
                  "a store box lies in head or tail");
    static_assert(!(kReduceAdds || EpilogueChain::kReadsC) || kMmaTileN % C::kReduceMmaN == 0,
                  "C would be added by two owners of a column");
    static_assert(!kReduceAdds || sizeof(Out) == 4);
    static_assert(C::kHalfN == 0 || (kIs1d1d && C::kSplitK == 1 && C::kStoreTailN == 0 && C::kHalfN % C::kStoreBoxN == 0));
};

}  // namespace deep_gemm
