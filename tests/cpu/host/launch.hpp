// A launch on the program's standard input.
#pragma once
#include "deep_gemm/gemm/params.cuh"

namespace deep_gemm {

// Operands of all ops of an epilogue.
struct EpilogueOperands {
    float alpha, beta;
    const void* c;
    int64_t c_stride;
};

struct Launch {
    unsigned index;  // of its configuration
    unsigned grid;
    GemmParams<EpilogueOperands> params{};

    // Reads the next launch, or returns false.
    bool read() {
        auto& scheduler = params.scheduler;
        auto& residue = scheduler.residue;
        return scanf("%u %u %u %u %u %u %u %u %u %u %u %u", &index, &params.m, &params.n, &params.k, &scheduler.m_clusters,
                          &scheduler.n_clusters, &scheduler.swizzle_width, &scheduler.raster_along_n, &residue.head, &residue.tail,
                          &residue.in_m, &grid) == 12;
    }

    // The parameter of a kernel, which has those operands that its epilogue reads.
    template <class Params>
    Params params_of_kernel() const {
        Params own{};
        static_assert(DG_OFFSETOF(Params, groups) == DG_OFFSETOF(GemmParams<EpilogueOperands>, groups));
        __builtin_memcpy(&own, &params, DG_OFFSETOF(Params, epilogue));
        auto& operands = own.epilogue;
        if constexpr (requires { operands.alpha; }) operands.alpha = params.epilogue.alpha;
        if constexpr (requires { operands.beta; }) operands.beta = params.epilogue.beta;
        if constexpr (requires { operands.c; }) operands.c = params.epilogue.c, operands.c_stride = params.epilogue.c_stride;
        return own;
    }
};

}  // namespace deep_gemm
