// What the roles of gemm_sm90 share: the parameter, everything that follows from the configuration, and
// where a CTA stands.
#pragma once
#include "deep_gemm/pipeline/pipeline.cuh"
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/scheduler/dense.cuh"

namespace deep_gemm {

// The kernel's one parameter. Strides count elements.
struct GemmParams {
    TensorMap map_a, map_b, map_d;
    const float* sfa;  // [M, ceil(K / 128)]
    const float* sfb;  // [ceil(N / 128), ceil(K / 128)]
    int64_t sfa_stride_m, sfa_stride_k;
    int64_t sfb_stride_n, sfb_stride_k;
    uint32_t m, n, k;
    uint32_t stage_bytes;  // that the TMA boxes of A and B bring to one stage
    scheduler::DenseParams tiles;
};

constexpr uint32_t kBlockK = 128;  // elements and bytes of a k-block; one scale of A per row covers it
constexpr uint32_t kScaleWarps = 2;
constexpr uint32_t kStoreBarrier = 1;  // named barrier of math warpgroup 0, the others follow; 0 is the CTA's

// Everything that follows from a configuration C (the constants rendered from Python).
template <class C>
struct Plan {
    static constexpr uint32_t kCluster = C::kClusterM * C::kClusterN;
    static constexpr uint32_t kMathThreads = C::kMathWarpgroups * kWarpgroupThreads;
    static constexpr uint32_t kWaves = C::kBlockM / (64 * C::kMathWarpgroups);
    static constexpr uint32_t kElements = C::kBlockN / 2;  // of one 64-row wave, per thread

    // Blocks of 128 along N that one tile can touch, and the columns at which it can enter the next.
    static constexpr uint32_t kGranularity = C::kBlockN % 128 == 0  ? 128
                                             : C::kBlockN % 64 == 0 ? 64
                                             : C::kBlockN % 32 == 0 ? 32
                                             : C::kBlockN % 16 == 0 ? 16
                                                                    : 8;
    static constexpr uint32_t kScaleBlocks =
        128 % C::kBlockN == 0 ? 1 : ceil_div(128 - kGranularity + C::kBlockN, 128);

    // Shared memory, in order. Operand stages and store slabs are multiples of 1024 bytes.
    static constexpr uint32_t kStageA = C::kBlockM * kBlockK, kStageB = C::kBlockN * kBlockK;
    static constexpr uint32_t kScalesA = C::kBlockM * 4, kScales = kScalesA + 16;
    static constexpr uint32_t kSlab = 64 * C::kSlabColumns * 2;
    static constexpr uint32_t kOffsetB = C::kStages * kStageA;
    static constexpr uint32_t kOffsetSlabs = kOffsetB + C::kStages * kStageB;
    static constexpr uint32_t kOffsetScales = kOffsetSlabs + C::kMathWarpgroups * C::kStoreBuffers * kSlab;
    static constexpr uint32_t kOffsetBarriers = kOffsetScales + C::kStages * kScales;
    static constexpr uint32_t kSharedBytes = kOffsetBarriers + 2 * 8 * C::kStages;

    static_assert(kSharedBytes == C::kSharedBytes, "the host plans shared memory by another table");
    static_assert(C::kBlockM % (64 * C::kMathWarpgroups) == 0 && C::kBlockN % C::kSlabColumns == 0);
    static_assert(sizeof(GemmParams) == C::kParamsBytes, "the host packs parameters by another table");
    static_assert(C::kPartials == 1 || kWaves == 1);
    static_assert(kScaleBlocks <= 4 && C::kSlabColumns % C::kBoxColumns == 0);
};

// Where this CTA stands: its place in the cluster and the shared memory it sees.
template <class C>
struct Cta {
    const GemmParams& params;
    uint32_t smem;            // base of the plan
    uint32_t rank_m, rank_n;  // in the cluster
    pipeline::Barriers<C::kStages> barriers;

    __device__ __forceinline__ Cta(const GemmParams& params, uint32_t smem)
        : params(params), smem(smem), barriers{smem + Plan<C>::kOffsetBarriers} {
        const uint32_t rank = Plan<C>::kCluster > 1 ? ptx::cluster_rank() : 0;
        rank_m = rank % C::kClusterM;
        rank_n = rank / C::kClusterM;
    }

    __device__ __forceinline__ scheduler::Dense tiles() const {
        return scheduler::Dense(params.tiles, blockIdx.x / Plan<C>::kCluster, gridDim.x / Plan<C>::kCluster);
    }
    __device__ __forceinline__ uint32_t row(const scheduler::Dense& tile) const {
        return (tile.cluster_m * C::kClusterM + rank_m) * C::kBlockM;
    }
    __device__ __forceinline__ uint32_t column(const scheduler::Dense& tile) const {
        return (tile.cluster_n * C::kClusterN + rank_n) * C::kBlockN;
    }
    __device__ __forceinline__ uint32_t k_blocks() const { return ceil_div(params.k, kBlockK); }
    __device__ __forceinline__ uint32_t stage_a(uint32_t stage) const { return smem + stage * Plan<C>::kStageA; }
    __device__ __forceinline__ uint32_t stage_b(uint32_t stage) const {
        return smem + Plan<C>::kOffsetB + stage * Plan<C>::kStageB;
    }
    __device__ __forceinline__ uint32_t scales(uint32_t stage) const {
        return smem + Plan<C>::kOffsetScales + stage * Plan<C>::kScales;
    }
};

}  // namespace deep_gemm
