// MMAs in place of the ones that the host renders for a kernel. Only simulator.cpp computes them.
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm {

// How an operand of an MMA lies in shared memory.
struct OperandLayout {
    uint32_t element_bytes;
    bool is_mn_major;
};

// accum = a . b, plus accum itself where `accumulate` is true: what one thread holds of 64 x 2 count elements.
void simulate_mma(int* accum, uint32_t count, uint64_t a, uint64_t b, bool accumulate, OperandLayout layout_a, OperandLayout layout_b);
void simulate_mma(float* accum, uint32_t count, uint64_t a, uint64_t b, bool accumulate, OperandLayout layout_a, OperandLayout layout_b);
void simulate_scale_mma(float* accum, uint32_t count, uint64_t a, uint64_t b);

template <uint32_t kN, class Sum, uint32_t kElementBytes, bool kAIsMnMajor, bool kBIsMnMajor>
struct SimulatedMma {
    using Accum = Sum;

    static void issue(Accum (&accum)[kN / 2], uint64_t a, uint64_t b, bool accumulate) {
        simulate_mma(accum, kN / 2, a, b, accumulate, {kElementBytes, kAIsMnMajor}, {kElementBytes, kBIsMnMajor});
    }
};

// Products of scales: bf16, K-major, 16 deep.
template <uint32_t kN>
struct SimulatedScaleMma {
    using Accum = float;

    static void issue(Accum (&accum)[kN / 2], uint64_t a, uint64_t b, bool) { simulate_scale_mma(accum, kN / 2, a, b); }
};

}  // namespace deep_gemm
