// The one parameter of the GEMM kernel. Which members a kernel reads follows from its configuration.
#pragma once
#include "deep_gemm/scheduler/grouped.cuh"

namespace deep_gemm {

// EpilogueParams: operands of the epilogue's ops, rendered by the host. Strides count elements.
template <class EpilogueParams>
struct GemmParams {
    TensorMap map_a, map_b, map_d;
    TensorMap map_b_tail;  // B in boxes of a tile's N tail
    TensorMap map_d_tail;  // D in boxes of the columns that whole store boxes leave over
    const float* sfa;      // [M, ceil(K / 128)], or [M] for the epilogue; a stride of 0 broadcasts one scale
    const float* sfb;      // [ceil(N / 128), ceil(K / 128)], [N, ceil(K / 128)], or [N] for the epilogue
    void* d;               // for rows that are stored one by one
    const TensorMap* group_maps;  // kAlongK: maps of A and B of each group
    int64_t sfa_stride_m, sfa_stride_k, sfa_stride_group;
    int64_t sfb_stride_n, sfb_stride_k, sfb_stride_group;
    int64_t d_stride, d_stride_group;
    uint32_t m, n, k;
    uint32_t stage_bytes;     // that TMA loads of A and B bring to one stage
    uint32_t early_k_blocks;  // k-blocks of B that may be loaded before the kernel ahead is complete; at most kNumStages
    scheduler::TileSchedulerParams scheduler;
    scheduler::GroupParams groups;
    EpilogueParams epilogue;
};

}  // namespace deep_gemm
