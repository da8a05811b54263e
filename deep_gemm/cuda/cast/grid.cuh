// One scale for all of x (cast_tensor), or for each column (cast_column). All CTAs are resident: each computes the amax of its
// share, the grid synchronizes, and each casts its share in the opposite order, so that what was read last is still on the chip:
// the last step in registers, the steps before it in L2.
//
// Config: kChunks, chunks of a thread in a step; kFlat (cast_tensor): x is one row; kLanes (cast_column): threads side by side.
#pragma once
#include "deep_gemm/cast/common.cuh"

namespace deep_gemm {

namespace cast {

// --- grid barrier ----------------------------------------------------------------------------------

// Words of the scratch memory: counts of CTAs, and the amax of cast_tensor. A count and the word behind it are read together.
constexpr uint32_t kSeen = 0, kAmax = 1, kReady = 2, kLeft = 3, kScratchWords = 4;

// Called by one thread of a CTA after a barrier: what its threads have written is then visible to all that wait.
__device__ __forceinline__ void grid_arrive(uint32_t* count) {
    __threadfence();
    atomicAdd(count, 1u);
}

// Called by one thread: waits until so many CTAs have arrived, and returns the word behind their count.
__device__ __forceinline__ uint32_t grid_wait(uint32_t* count, uint32_t arrivals) {
    uint64_t both;
    do {
        both = __nv_atomic_load_n(reinterpret_cast<uint64_t*>(count), __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
    } while (static_cast<uint32_t>(both) < arrivals);
    return both >> 32;
}

// Called by one thread of a CTA that is done with the scratch memory. The last one zeroes it for the next launch.
__device__ __forceinline__ void grid_leave(uint32_t* scratch) {
    if (atomicAdd(&scratch[kLeft], 1u) != gridDim.x - 1) return;
    for (uint32_t i = 0; i < kScratchWords; ++i) scratch[i] = 0;
}

// Magnitudes and NaN are ordered as their bits are.
__device__ __forceinline__ void put_amax(uint32_t* at, float amax) { atomicMax(at, __float_as_uint(amax)); }
__device__ __forceinline__ float get_amax(const uint32_t* at) { return __uint_as_float(__ldcg(at)); }

// --- shares -----------------------------------------------------------------------------------

// Items of one of `parts` CTAs: every parts-th step of kStep items, fewer in the last one.
struct Share {
    uint32_t begin, end, stride, steps;

    template <uint32_t kStep>
    static __device__ __forceinline__ Share of(uint32_t total, uint32_t part, uint32_t parts) {
        const uint32_t all = ceil_div(total, kStep);
        return {part * kStep, total, parts * kStep, part < all ? ceil_div(all - part, parts) : 0};
    }
};

}  // namespace cast

template <class C>
__device__ __forceinline__ void cast_tensor(const CastParams& p) {
    constexpr uint32_t kChunks = C::kChunks, kStep = C::kThreads * kChunks;
    __shared__ uint32_t found;
    ptx::dependency_wait();

    const cast::Share share = cast::Share::of<kStep>(p.rows * p.per_row.divisor, blockIdx.x, gridDim.x);
    // Row and column of a chunk; one of them is out of bounds if the chunk is not part of this share.
    const auto locate = [&](uint32_t step, uint32_t i, uint32_t& row, uint32_t& column) {
        const uint32_t index = share.begin + step * share.stride + i * C::kThreads + threadIdx.x;
        row = C::kFlat ? 0 : p.per_row.quotient(index);
        column = (index - row * p.per_row.divisor) * cast::kChunkSize<C>;
        if (index >= share.end) (C::kFlat ? column : row) = ~0u;
    };
    uint4 chunks[kChunks];
    const auto load = [&](uint32_t step) {
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) {
            uint32_t row, column;
            locate(step, i, row, column);
            chunks[i] = cast::load_chunk<C>(p, row, column);
        }
    };

    float amax = 0.0f;
    bool infinite = false;
    for (uint32_t step = share.steps; step-- > 0;) {
        load(step);
        amax = ptx::max_nan(amax, cast::finite_amax<C>(chunks, infinite));
    }
    amax = cast::cta_amax<C::kThreads>(amax);
    if (threadIdx.x == 0) {
        cast::put_amax(p.scratch + cast::kAmax, amax);
        cast::grid_arrive(p.scratch + cast::kSeen);
        found = cast::grid_wait(p.scratch + cast::kSeen, gridDim.x);
    }
    __syncthreads();
    if (threadIdx.x == 0) cast::grid_leave(p.scratch);
    const cast::Scale scale = cast::scale_for<C>(p, __uint_as_float(found), infinite);
    if (blockIdx.x == 0 && threadIdx.x == 0) *p.scales = scale.scale;

    uint32_t overflows = 0;
    for (uint32_t step = 0; step < share.steps; ++step) {
        if (step > 0) load(step);
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) {
            uint32_t row, column;
            locate(step, i, row, column);
            overflows += cast::cast_chunk<C, false, true>(p, row, column, chunks[i], scale);
        }
    }
    cast::add_overflows(p, overflows);
}

// CTAs side by side take strips of kLanes chunks, so that a thread keeps its columns, and those below each other
// share the rows; per_row divides by the strips.
template <class C>
__device__ __forceinline__ void cast_column(const CastParams& p) {
    constexpr uint32_t kChunkSize = cast::kChunkSize<C>, kChunks = C::kChunks, kColumns = C::kLanes * kChunkSize;
    constexpr uint32_t kRowsAtOnce = C::kThreads / C::kLanes, kStep = kRowsAtOnce * kChunks;
    __shared__ float parts[kRowsAtOnce][kColumns];
    __shared__ cast::Scale shared[kColumns];
    ptx::dependency_wait();

    const uint32_t strips = p.per_row.divisor, row_block = p.per_row.quotient(blockIdx.x);
    const uint32_t strip0 = (blockIdx.x - row_block * strips) * kColumns;
    const uint32_t mine = threadIdx.x % C::kLanes * kChunkSize, column = strip0 + mine;
    const cast::Share share = cast::Share::of<kStep>(p.rows, row_block, p.per_row.quotient(gridDim.x));
    const auto row_of = [&](uint32_t step, uint32_t i) {
        const uint32_t row = share.begin + step * share.stride + i * kRowsAtOnce + threadIdx.x / C::kLanes;
        return row < share.end ? row : p.rows;
    };
    uint4 chunks[kChunks];
    const auto load = [&](uint32_t step) {
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) chunks[i] = cast::load_chunk<C>(p, row_of(step, i), column);
    };
    // Calls use(i, column) for the columns of the strip that there are.
    const auto each_column = [&](const auto& use) {
        for (uint32_t i = threadIdx.x; i < kColumns && strip0 + i < p.columns; i += C::kThreads) use(i, strip0 + i);
    };
    // The others need the zeros only after their first pass.
    if (row_block == 0) {
        each_column([&](uint32_t, uint32_t at) { p.amax[at] = 0; });
        __syncthreads();
        if (threadIdx.x == 0) cast::grid_arrive(p.scratch + cast::kReady);
    }

    float amax[kChunkSize] = {};
    bool infinite = false;
    for (uint32_t step = share.steps; step-- > 0;) {
        load(step);
        if (step == 0 && threadIdx.x == 0) cast::grid_wait(p.scratch + cast::kReady, strips);
        cast::column_amax<C>(chunks, amax, infinite);
    }
#pragma unroll
    for (uint32_t j = 0; j < kChunkSize; ++j) parts[threadIdx.x / C::kLanes][mine + j] = amax[j];
    __syncthreads();
    each_column([&](uint32_t i, uint32_t at) {
        float largest = 0.0f;
#pragma unroll
        for (uint32_t row = 0; row < kRowsAtOnce; ++row) largest = ptx::max_nan(largest, parts[row][i]);
        cast::put_amax(p.amax + at, largest);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
        cast::grid_arrive(p.scratch + cast::kSeen);
        cast::grid_wait(p.scratch + cast::kSeen, gridDim.x);
    }
    __syncthreads();
    each_column([&](uint32_t i, uint32_t at) {
        shared[i] = cast::scale_for<C>(p, cast::get_amax(p.amax + at), false);
        if (row_block == 0) p.scales[at * p.scale_column] = shared[i].scale;
    });
    __syncthreads();
    cast::Scales<kChunkSize> scales(infinite);
#pragma unroll
    for (uint32_t j = 0; j < kChunkSize; ++j) scales.set(j, shared[column + j < p.columns ? mine + j : 0]);
    if (threadIdx.x == 0) cast::grid_leave(p.scratch);

    uint32_t overflows = 0;
    for (uint32_t step = 0; step < share.steps; ++step) {
        if (step > 0) load(step);
#pragma unroll
        for (uint32_t i = 0; i < kChunks; ++i) {
            overflows += cast::cast_chunk<C, false, true>(p, row_of(step, i), column, chunks[i], scales);
        }
    }
    cast::add_overflows(p, overflows);
}

}  // namespace deep_gemm
