// Layout of a CTA's dynamic shared memory. The host computes the same total (config/shared_storage.py).
#pragma once
#include "deep_gemm/gemm/traits.cuh"

namespace deep_gemm {

// Operand stages and store stages are multiples of 1024 bytes, the period of the 128-byte swizzle. Members that a configuration
// does not need have no elements.
template <class Traits>
struct SharedStorage {
    template <uint32_t kRows, bool kIsMnMajor>
    struct Operand {
        uint8_t rows[kIsMnMajor ? round_up(kRows, mma::kBoxMn) : kRows][mma::kRowBytes];
    };
    using A = Operand<Traits::kBlockM, Traits::kAIsMnMajor>;
    using B = Operand<Traits::kBlockN, Traits::kBIsMnMajor>;

    // One stage of a math warpgroup's output: 64 rows along mma_m.
    struct StoreStage {
        typename Traits::Out values[mma::kSliceM * Traits::kStoreStageMmaN];
    };
    // Scales along K of one stage. 1D2D: a float for each m, for whole warps, and for each block of B. 1D1D: 16 bf16 for each m and n.
    struct Scales1d2d {
        float a[round_up(Traits::kBlockM, kWarpThreads)], b[4];
    };
    struct Scales1d1d {
        uint16_t a[Traits::kBlockM][16], b[Traits::kBlockN][16];
    };
    using StageScales = typename Conditional<Traits::kIs1d1d, Scales1d1d, Scales1d2d>::Type;
    // Scales of one tile for the epilogue.
    struct EpilogueScales {
        float m[Traits::kBlockM], n[Traits::kBlockN];
    };
    struct ReceivedSums {
        uint8_t bytes[Traits::ClusterReduce::kGroupBytes];
    };
    struct WorkTileSlot {
        int words[scheduler::kWorkTileBytes / 4];
    };
    static constexpr uint32_t kNumWorkTiles = Traits::kIsGrouped ? scheduler::kWorkTileStages : 0;

    Array<A, Traits::kNumStages> a;
    Array<B, Traits::kNumStages> b;
    Array<StoreStage, Traits::kNumMathWarpgroups * Traits::kNumStoreStages> store;
    [[no_unique_address]] Array<ReceivedSums, Traits::ClusterReduce::kBytes / Traits::ClusterReduce::kGroupBytes> reduce;
    [[no_unique_address]] Array<StageScales, Traits::kScalesAlongK ? Traits::kNumStages : 0> scales;
    [[no_unique_address]] Array<EpilogueScales, Traits::kHasEpilogueScales ? Traits::kTilesInFlight : 0> epilogue_scales;
    [[no_unique_address]] Array<WorkTileSlot, kNumWorkTiles> work_tiles;
    Array<uint64_t, 2 * Traits::kNumStages> stage_barriers;
    Array<uint64_t, 2> reduce_barriers;
    Array<uint64_t, 2 * Traits::kTilesInFlight> epilogue_scale_barriers;
    [[no_unique_address]] Array<uint64_t, 2 * kNumWorkTiles> work_tile_barriers;
};

}  // namespace deep_gemm
