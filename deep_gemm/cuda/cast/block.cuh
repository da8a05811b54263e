// A scale for each 128 x 128 block (cast_block), or for each kGran rows of a column (cast_channel). A
// CTA holds the block, or kColumns columns of kGran rows, in registers.
#pragma once
#include "deep_gemm/cast/common.cuh"

namespace deep_gemm {

namespace cast {

// How a CTA lies over kRows x kColumns elements: a chunk a thread, and kPasses of them below each other.
template <class C, uint32_t kRows, uint32_t kColumns>
struct Tile {
    static constexpr uint32_t kLanes = kColumns / kChunkSize<C>;  // threads side by side
    static constexpr uint32_t kRowsAtOnce = C::kThreads / kLanes;
    static constexpr uint32_t kPasses = kRows / kRowsAtOnce;
    static_assert(kPasses * kRowsAtOnce == kRows && kLanes <= kWarpThreads, "threads do not come out even");

    static __device__ __forceinline__ uint32_t row() { return threadIdx.x / kLanes; }
    static __device__ __forceinline__ uint32_t column() { return threadIdx.x % kLanes * kChunkSize<C>; }

    static __device__ __forceinline__ void load(const CastParams& p, uint32_t row0, uint32_t column0,
                                                uint4 (&chunks)[kPasses]) {
#pragma unroll
        for (uint32_t i = 0; i < kPasses; ++i) {
            chunks[i] = load_chunk<C>(p, row0 + i * kRowsAtOnce + row(), column0 + column());
        }
    }

    // Casts and stores all, and returns how many values overflow the format.
    template <class S>
    static __device__ __forceinline__ uint32_t cast(const CastParams& p, uint32_t row0, uint32_t column0,
                                                    const uint4 (&chunks)[kPasses], const S& scales) {
        uint32_t overflows = 0;
#pragma unroll
        for (uint32_t i = 0; i < kPasses; ++i) {
            overflows += cast_chunk<C>(p, row0 + i * kRowsAtOnce + row(), column0 + column(), chunks[i], scales);
        }
        return overflows;
    }
};

// Per column of a tile, the largest of all threads' amax; thread i of the first kColumns gets that of column i.
template <class C, class T, uint32_t kColumns>
__device__ __forceinline__ float tile_column_amax(float (&amax)[kChunkSize<C>]) {
    constexpr uint32_t kWarps = C::kThreads / kWarpThreads;
    __shared__ float parts[kWarps][kColumns];
#pragma unroll
    for (int j = 0; j < kChunkSize<C>; ++j) {
        amax[j] = lane_amax<T::kLanes, kWarpThreads>(amax[j]);
        if (threadIdx.x % kWarpThreads < T::kLanes) parts[threadIdx.x / kWarpThreads][T::column() + j] = amax[j];
    }
    __syncthreads();
    float largest = 0.0f;
    if (threadIdx.x < kColumns) {
#pragma unroll
        for (uint32_t i = 0; i < kWarps; ++i) largest = ptx::max_nan(largest, parts[i][threadIdx.x]);
    }
    return largest;
}

}  // namespace cast

template <class C>
__device__ __forceinline__ void cast_block(const CastParams& p) {
    using Tile = cast::Tile<C, 128, 128>;
    ptx::dependency_wait();
    ptx::dependency_launch();

    const uint32_t block_row = p.per_row.quotient(blockIdx.x), block = blockIdx.x - block_row * p.per_row.divisor;
    uint4 chunks[Tile::kPasses];
    Tile::load(p, block_row * 128, block * 128, chunks);
    bool infinite = false;
    const float amax = cast::cta_amax<C::kThreads>(cast::finite_amax<C>(chunks, infinite));
    const cast::Scale scale = cast::scale_for<C>(p, amax, infinite);
    if (threadIdx.x == 0) p.scales[block_row * p.scale_row + block * p.scale_column] = scale.scale;
    cast::add_overflows(p, Tile::cast(p, block_row * 128, block * 128, chunks, scale));
}

template <class C>
__device__ __forceinline__ void cast_channel(const CastParams& p) {
    constexpr uint32_t kColumns = C::kColumns;
    using Tile = cast::Tile<C, C::kGran, kColumns>;
    __shared__ cast::Scale shared[kColumns];
    ptx::dependency_wait();
    ptx::dependency_launch();

    const uint32_t block_row = p.per_row.quotient(blockIdx.x);
    const uint32_t column0 = (blockIdx.x - block_row * p.per_row.divisor) * kColumns;
    uint4 chunks[Tile::kPasses];
    Tile::load(p, block_row * C::kGran, column0, chunks);
    float amax[cast::kChunkSize<C>] = {};
    bool infinite = false;
    cast::column_amax<C>(chunks, amax, infinite);
    const float largest = cast::tile_column_amax<C, Tile, kColumns>(amax);
    if (threadIdx.x < kColumns) {
        const cast::Scale scale = cast::scale_for<C>(p, largest, false);
        const uint32_t column = column0 + threadIdx.x;
        if (column < p.columns) p.scales[block_row * p.scale_row + column * p.scale_column] = scale.scale;
        shared[threadIdx.x] = scale;
    }
    __syncthreads();
    cast::Scales<cast::kChunkSize<C>> scales(infinite);
#pragma unroll
    for (int j = 0; j < cast::kChunkSize<C>; ++j) scales.set(j, shared[Tile::column() + j]);
    cast::add_overflows(p, Tile::cast(p, block_row * C::kGran, column0, chunks, scales));
}

}  // namespace deep_gemm
