// Main loop without promotion: accumulators stay in the tensor core over all of K. BF16, FP16, INT8, and FP8 with fast_accum.
#pragma once
#include "deep_gemm/mainloop/base.cuh"

namespace deep_gemm::mainloop {

// The MMAs of a k-block start before those of the one before have ended. With ping-pong all of them run while this warpgroup
// has the tensor core.
template <class Traits>
struct DirectMainloop : MainloopBase<Traits> {
    using Base = MainloopBase<Traits>;
    using Base::Base, Base::cta, Base::kSlices, Base::order, Base::state;

    __device__ __forceinline__ void run(typename Base::Accum (&accum)[kSlices][Base::kAccums], const typename Base::Tile&,
                                        uint32_t k_blocks) {
        uint32_t stage = state.stage;
        order.wait();
        for (uint32_t k_block = 0; k_block < k_blocks; ++k_block, state.advance()) {
            cta.barriers.wait_full(state);
#pragma unroll
            for (uint32_t slice = 0; slice < kSlices; ++slice) this->template issue<true>(accum[slice], state.stage, slice);
            if (k_block > 0) {
                ptx::wgmma_wait<kSlices>();
                this->release(stage);
            }
            stage = state.stage;
        }
        order.arrive_next();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (uint32_t slice = 0; slice < kSlices; ++slice) ptx::fence_registers(accum[slice]);
        if (k_blocks > 0) this->release(stage);
    }
};

}  // namespace deep_gemm::mainloop
