// A ring of shared-memory stages guarded by full and empty barriers.
#pragma once
#include "deep_gemm/ptx/mbarrier.cuh"

namespace deep_gemm::pipeline {

// Position in the ring: which stage, and the parity of the round.
template <uint32_t kStages>
struct Position {
    uint32_t stage = 0;
    uint32_t parity = 0;

    // Passes over stages that are not this thread's.
    __device__ __forceinline__ void skip(uint32_t count) {
        const uint32_t passed = stage + count;
        parity ^= passed / kStages & 1;
        stage = passed % kStages;
    }

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// The barriers of the ring: `full` says the data has landed, `empty` that all readers are done.
template <uint32_t kStages>
struct Barriers {
    uint32_t base;  // shared-memory address of 2 * kStages barriers

    __device__ __forceinline__ uint32_t full(uint32_t stage) const { return base + 8 * stage; }
    __device__ __forceinline__ uint32_t empty(uint32_t stage) const { return base + 8 * (kStages + stage); }

    // NOTE: by one thread; barriers are addressed by uniform registers, so lanes would take turns by votes.
    __device__ __forceinline__ void init(uint32_t full_arrivals, uint32_t empty_arrivals) const {
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            ptx::mbarrier_init(full(stage), full_arrivals);
            ptx::mbarrier_init(empty(stage), empty_arrivals);
        }
        ptx::fence_mbarrier_init();
    }

    __device__ __forceinline__ void wait_full(const Position<kStages>& at) const { ptx::mbarrier_wait(full(at.stage), at.parity); }

    // In the first round every stage is free: a fresh barrier answers to the opposite parity.
    __device__ __forceinline__ void wait_empty(const Position<kStages>& at) const {
        ptx::mbarrier_wait(empty(at.stage), at.parity ^ 1);
    }
};

}  // namespace deep_gemm::pipeline
