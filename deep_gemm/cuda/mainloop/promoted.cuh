// Main loop with promotion: the tensor core sums one k-block, the CUDA cores add it in FP32 (two-level accumulation). The tensor
// core keeps about 13 bits of an FP8 sum; promoted every 128 of K it keeps its precision however long K is.
#pragma once
#include "deep_gemm/mainloop/base.cuh"

namespace deep_gemm::mainloop {

// Scales: the scales of one slice and one k-block in registers,
//   load(mainloop, stage, slice)   reads them from a stage
//   promote(accum, partial)        accum += scale * partial
template <class Traits, class Scales>
struct PromotedMainloop : MainloopBase<Traits> {
    using Base = MainloopBase<Traits>;
    using Base::Base, Base::cta, Base::kSlices, Base::kAccums, Base::state;

    uint32_t n_in_scale_block = 0;  // the tile's first column in its block of 128

    __device__ __forceinline__ void run(float (&accum)[kSlices][kAccums], const typename Base::Tile& tile, uint32_t k_blocks) {
        n_in_scale_block = cta.n_idx(tile) % 128;
        if constexpr (Traits::kNumPartials == 2) run_overlapped(accum[0], k_blocks);
        else run_serial(accum, k_blocks);
    }

private:
    // One set of partial sums for all slices: a slice's promotion waits for its own MMAs, and other warpgroups' run meanwhile.
    __device__ __forceinline__ void run_serial(float (&accum)[kSlices][kAccums], uint32_t k_blocks) {
        float partial[kAccums];
        Scales scales;
        for (uint32_t k_block = 0; k_block < k_blocks; ++k_block, state.advance()) {
            cta.barriers.wait_full(state);
#pragma unroll
            for (uint32_t slice = 0; slice < kSlices; ++slice) {
                scales.load(*this, state.stage, slice);
                this->template issue<false>(partial, state.stage, slice);
                finish<0>(accum[slice], partial, scales, state.stage, slice == kSlices - 1);
            }
        }
    }

    // Two sets, where registers allow: the MMAs of one k-block run while the one before is promoted.
    __device__ __forceinline__ void run_overlapped(float (&accum)[kAccums], uint32_t k_blocks) {
        if ((Traits::kSplitK > 1 || Traits::kIsGrouped) && k_blocks == 0) return;
        float even[kAccums], odd[kAccums];
        Scales even_scales, odd_scales;
        cta.barriers.wait_full(state);
        even_scales.load(*this, state.stage, 0);
        this->template issue<false>(even, state.stage, 0);
        uint32_t stage = state.stage;
        state.advance();
        for (uint32_t left = k_blocks - 1;; left -= 2) {
            if (left == 0) return finish<0>(accum, even, even_scales, stage, true);
            overlap(accum, odd, odd_scales, even, even_scales, stage);
            if (left == 1) return finish<0>(accum, odd, odd_scales, stage, true);
            overlap(accum, even, even_scales, odd, odd_scales, stage);
        }
    }

    // Starts the MMAs of the next k-block, then promotes the current one.
    // NOTE: scales are loaded before the MMAs start. Loaded beside running MMAs, they arrive only after those have ended.
    __device__ __forceinline__ void overlap(float (&accum)[kAccums], float (&next)[kAccums], Scales& next_scales,
                                            float (&current)[kAccums], const Scales& current_scales, uint32_t& stage) {
        cta.barriers.wait_full(state);
        next_scales.load(*this, state.stage, 0);
        this->template issue<false>(next, state.stage, 0);
        finish<1>(accum, current, current_scales, stage, true);
        stage = state.stage;
        state.advance();
    }

    // Promotes one slice of a k-block once its MMAs have ended; at most kPending started later may still run.
    template <uint32_t kPending>
    __device__ __forceinline__ void finish(float (&accum)[kAccums], float (&partial)[kAccums], const Scales& scales, uint32_t stage,
                                           bool is_last_slice) const {
        ptx::wgmma_wait<kPending>();
        ptx::fence_registers(partial);
        if (is_last_slice) this->release(stage);
        scales.promote(accum, partial);
    }
};

// No scales along K.
template <class Traits>
struct Unscaled {
    static constexpr uint32_t kAccums = Traits::kSliceAccums;

    template <class Mainloop>
    __device__ __forceinline__ void load(const Mainloop&, uint32_t, uint32_t) {}

    __device__ __forceinline__ void promote(float (&accum)[kAccums], const float (&partial)[kAccums]) const {
#pragma unroll
        for (int i = 0; i < kAccums; ++i) accum[i] += partial[i];
    }
};

}  // namespace deep_gemm::mainloop
