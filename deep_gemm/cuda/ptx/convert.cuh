// Conversions between float and narrower types, and a maximum that keeps NaN.
#pragma once
#include "deep_gemm/ptx/types.cuh"

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

// The larger value; NaN where either is.
__device__ __forceinline__ float max_nan(float x, float y) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}

// The same for each half of a word.
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

// Makes the compiler forget what it has derived from a value, which it would otherwise keep in registers.
__device__ __forceinline__ void forget(uint4& value) {
    asm volatile("" : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w));
}

}  // namespace deep_gemm::ptx
