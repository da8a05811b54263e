// Conversions between float and narrower types (cvt), and maxima that keep NaN.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

// Two floats to packed FP8, round to nearest even, clamped to the largest finite value; NaN stays NaN.
// `low` lands in the lower byte.
__device__ __forceinline__ uint32_t pack_e4m3(float low, float high) {
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ uint32_t pack_e5m2(float low, float high) {
    uint16_t packed;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

// The FP16 value in the lower half of a word.
__device__ __forceinline__ float from_fp16(uint32_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
    return value;
}

// Two floats to packed 16-bit ones, rounded to nearest even; `low` lands in the lower half.
template <class Out>
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    if constexpr (kIsSame<Out, BFloat16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// The value of an output element, from its bits.
template <class Out>
__device__ __forceinline__ auto widen(uint32_t bits) {
    if constexpr (kIsSame<Out, int>) {
        return static_cast<int>(bits);
    } else if constexpr (kIsSame<Out, float>) {
        return __uint_as_float(bits);
    } else if constexpr (kIsSame<Out, BFloat16>) {
        return __uint_as_float(bits << 16);
    } else {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<uint16_t>(bits)));
        return wide;
    }
}

// The larger value; NaN where either is.
__device__ __forceinline__ float max_nan(float x, float y) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}

// The maximum of each half of a word.
__device__ __forceinline__ uint32_t max_nan_bf16x2(uint32_t x, uint32_t y) {
    uint32_t larger;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(x), "r"(y));
    return larger;
}

__device__ __forceinline__ uint32_t max_nan_fp16x2(uint32_t x, uint32_t y) {
    uint32_t larger;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(x), "r"(y));
    return larger;
}

// Hides from the compiler where a value came from, so that it recomputes what depends on it instead of keeping it in
// registers.
__device__ __forceinline__ void opaque(uint4& value) {
    asm volatile("" : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w));
}

}  // namespace deep_gemm::ptx
