// The kernels of some configurations, for simulator.cpp.
#include <stdio.h>

#include "simulator.hpp"
#include "deep_gemm/gemm_sm90.cuh"

#include "configs.inc"  // DG_FOR_EACH_CONFIG

namespace deep_gemm {

template <class Params>
void make_params(const Launch& launch, void* params) { *static_cast<Params*>(params) = launch.params_of_kernel<Params>(); }

template <class Traits>
void produce(const void* params) {
    const CtaContext<Traits> cta(*static_cast<const typename Traits::Params*>(params), 0);
    if constexpr (Traits::kIs1d1d) {
        for (threadIdx.x = 0; threadIdx.x < Traits::kNumThreads; ++threadIdx.x) mainloop::clear_scales_1d1d(cta);
    }
    const auto run = [&](uint32_t warp, uint32_t lane) {
        threadIdx.x = Traits::kNumMathThreads + warp * kWarpThreads + lane;
        run_producer_warp(cta, warp, lane);
    };
    if (Traits::kHasSchedulerWarp) run(3, 0);
    run(0, 0);
    for (uint32_t warp = 1; warp <= Traits::kNumScaleWarps; ++warp) {
        for (uint32_t lane = 0; lane < kWarpThreads; ++lane) run(warp, lane);
    }
}

template <class Traits>
void run_math_warpgroup(const void* params, uint32_t warpgroup) {
    const CtaContext<Traits> cta(*static_cast<const typename Traits::Params*>(params), 0);
    for (ptx::thread = 0; ptx::thread < kWarpgroupThreads; ++ptx::thread) {
        threadIdx.x = warpgroup * kWarpgroupThreads + ptx::thread;
        consume(cta, warpgroup, ptx::thread);
    }
}

template <class Config, class Traits = GemmTraits<Config>>
constexpr Kernel kKernel = {
    .block_k = Traits::kBlockK,
    .cluster_size = Traits::kClusterSize,
    .cluster_m = Traits::kClusterM,
    .split_k = Traits::kSplitK,
    .num_math_warpgroups = Traits::kNumMathWarpgroups,
    .mainloop = Traits::kMainloop,
    .group_kind = Traits::kGroupKind,
    .is_grouped = Traits::kIsGrouped,
    .is_stacked_a = Traits::kIsStackedA,
    .is_stacked_b = Traits::kIsStackedB,
    .is_stacked_d = Traits::kIsStackedD,
    .has_epilogue_scales = Traits::kHasEpilogueScales,
    .reads_c = Traits::EpilogueChain::kReadsC,
    .reduce_adds = Traits::kReduceAdds,
    .is_integer = kIsSame<typename Traits::Accum, int>,
    .out = kIsSame<typename Traits::Out, BFloat16>  ? Kernel::kBFloat16
           : kIsSame<typename Traits::Out, Float16> ? Kernel::kFloat16
           : kIsSame<typename Traits::Out, float>   ? Kernel::kFloat
                                                    : Kernel::kInt,
    .load_box_m = Traits::kLoadBoxM,
    .shared_bytes = Traits::kSharedBytes,
    .store_begin = DG_OFFSETOF(SharedStorage<Traits>, store),
    .store_end = DG_OFFSETOF(SharedStorage<Traits>, store) + sizeof(SharedStorage<Traits>::store),
    .make_params = make_params<typename Traits::Params>,
    .produce = produce<Traits>,
    .consume = run_math_warpgroup<Traits>,
};

static const bool kAdded = [] {
#define ADD(index, Config) add_kernel(index, kKernel<Config>);
    DG_FOR_EACH_CONFIG(ADD)
    return true;
}();

}  // namespace deep_gemm
