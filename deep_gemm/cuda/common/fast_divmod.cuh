// Division by a run-time constant without a division: the host computes multiplier and shift.
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm {

// n / divisor for n < 2^31.
struct FastDivmod {
    uint32_t divisor, multiplier, shift;

    __device__ __forceinline__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

}  // namespace deep_gemm
