// Order of the ping-pong warpgroups at the tensor core: one at a time, in turn (CUTLASS: OrderedSequenceBarrier).
#pragma once
#include "deep_gemm/ptx/control.cuh"

namespace deep_gemm::pipeline {

// kEnabled: false compiles to nothing.
template <uint32_t kWarpgroups, uint32_t kFirstBarrier, bool kEnabled>
struct OrderBarrier {
    uint32_t warpgroup;

    // The last warpgroup lets the first one begin.
    __device__ __forceinline__ void init() const {
        if (warpgroup == kWarpgroups - 1) arrive_next();
    }
    __device__ __forceinline__ void wait() const {
        if constexpr (kEnabled) ptx::named_barrier_sync(kFirstBarrier + warpgroup, 2 * kWarpgroupThreads);
    }
    // NOTE: a phase bit separates adjacent rounds of a pipeline only. Called after this tile's last full barrier, so the
    // next warpgroup is at most one round behind.
    __device__ __forceinline__ void arrive_next() const {
        const uint32_t next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
        if constexpr (kEnabled) ptx::named_barrier_arrive(kFirstBarrier + next, 2 * kWarpgroupThreads);
    }
};

}  // namespace deep_gemm::pipeline
