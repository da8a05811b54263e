// A pipeline of shared-memory stages, guarded by full and empty barriers.
#pragma once
#include "deep_gemm/ptx/mbarrier.cuh"

namespace deep_gemm::pipeline {

// Where a producer or consumer stands: a stage, and the phase of its barriers.
template <uint32_t kStages>
struct PipelineState {
    uint32_t stage = 0, phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }

    // Advances by `count` stages.
    __device__ __forceinline__ void skip(uint32_t count) {
        const uint32_t skipped = stage + count;
        phase ^= skipped / kStages & 1;
        stage = skipped % kStages;
    }
};

// full: the stage's data has landed. empty: all consumers have read it.
template <uint32_t kStages>
struct PipelineBarriers {
    static constexpr uint32_t kBytes = 2 * 8 * kStages;

    uint32_t base;  // shared address of kStages full barriers, then of kStages empty ones

    __device__ __forceinline__ uint32_t full(uint32_t stage) const { return base + 8 * stage; }
    __device__ __forceinline__ uint32_t empty(uint32_t stage) const { return base + 8 * (kStages + stage); }

    // Called by one thread.
    // NOTE: the instruction takes its address from a uniform register, so several lanes would run one after another.
    __device__ __forceinline__ void init(uint32_t full_arrivals, uint32_t empty_arrivals) const {
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            ptx::mbarrier_init(full(stage), full_arrivals);
            ptx::mbarrier_init(empty(stage), empty_arrivals);
        }
        ptx::fence_mbarrier_init();
    }

    __device__ __forceinline__ void wait_full(const PipelineState<kStages>& state) const {
        ptx::mbarrier_wait(full(state.stage), state.phase);
    }

    // In the first round all stages are free: a fresh barrier counts as past the opposite phase.
    __device__ __forceinline__ void wait_empty(const PipelineState<kStages>& state) const {
        ptx::mbarrier_wait(empty(state.stage), state.phase ^ 1);
    }
};

}  // namespace deep_gemm::pipeline
