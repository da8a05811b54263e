// A scale for each row and kGran columns. A group of kGran / 16 lanes holds a block, 16 elements each.
//
// Config: kGran, 16 to 512; kBlocks, blocks that a thread has in flight; kRowsTogether, rows that are
// neighbours in the order of blocks (4 where their scales are).
#pragma once
#include "deep_gemm/cast/common.cuh"

namespace deep_gemm {

template <class C>
__device__ __forceinline__ void cast_token(const CastParams& p) {
    constexpr uint32_t kChunkSize = cast::kChunkSize<C>, kChunks = 16 / kChunkSize;
    constexpr uint32_t kLanes = C::kGran / 16, kGroups = C::kThreads / kLanes, kBlocks = C::kBlocks;
    ptx::dependency_wait();
    ptx::dependency_launch();

    const uint32_t lane = threadIdx.x % kLanes;
    uint32_t rows[kBlocks], blocks[kBlocks];
    uint4 chunks[kBlocks][kChunks];
    const auto column = [lane](uint32_t block, uint32_t i) { return block * C::kGran + (i * kLanes + lane) * kChunkSize; };
#pragma unroll
    for (uint32_t b = 0; b < kBlocks; ++b) {
        const uint32_t index = (blockIdx.x * kBlocks + b) * kGroups + threadIdx.x / kLanes;
        const uint32_t bundle = index / C::kRowsTogether, bundle_row = p.per_row.quotient(bundle);
        blocks[b] = bundle - bundle_row * p.per_row.divisor;
        rows[b] = bundle_row * C::kRowsTogether + index % C::kRowsTogether;
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) chunks[b][i] = cast::load_chunk<C>(p, rows[b], column(blocks[b], i));
    }
    uint32_t overflows = 0;
#pragma unroll
    for (uint32_t b = 0; b < kBlocks; ++b) {
        bool infinite = false;
        const float amax = cast::lane_amax<1, kLanes>(cast::finite_amax<C>(chunks[b], infinite));
        const cast::Scale scale = cast::scale_for<C>(p, amax, infinite);
        if (lane == 0 && rows[b] < p.rows) p.scales[rows[b] * p.scale_row + blocks[b] * p.scale_column] = scale.scale;
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) {
            overflows += cast::cast_chunk<C>(p, rows[b], column(blocks[b], i), chunks[b][i], scale);
        }
    }
    cast::add_overflows(p, overflows);
}

}  // namespace deep_gemm
