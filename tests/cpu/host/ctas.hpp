// The CTAs of a launch, one after the other.
#pragma once
#include "launch.hpp"
#include "deep_gemm/gemm/cta.cuh"

namespace deep_gemm {

// Calls function(cta) as each CTA of the grid.
template <class Traits, class Function>
void for_each_cta(const Launch& launch, const typename Traits::Params& params, Function function) {
    gridDim.x = launch.grid;
    for (blockIdx.x = 0; blockIdx.x < launch.grid; ++blockIdx.x) {
        ptx::rank = blockIdx.x % Traits::kClusterSize;
        function(CtaContext<Traits>(params, 0));
    }
}

}  // namespace deep_gemm
