// The functions of cuda/ptx/convert.cuh that casts use, in plain C++.
#pragma once
#include <algorithm>
#include <cmath>

#include "cuda.hpp"
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

// Rounds to nearest even, to a format of 8 bits with so many bits of fraction and normal numbers from 2^min_exponent; clamps to
// `largest`.
inline uint32_t round_to_fp8(float x, int fraction_bits, int min_exponent, float largest) {
    if (std::isnan(x)) return 0x7f;
    const uint32_t sign = std::signbit(x) ? 0x80 : 0;
    const float magnitude = std::fmin(std::fabs(x), largest);
    int exponent = magnitude == 0 ? min_exponent : std::max(std::ilogb(magnitude), min_exponent);
    // In units of the last bit at this exponent: below 1 << fraction_bits it is subnormal.
    int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    if (units == 2 << fraction_bits) units /= 2, ++exponent;
    if (units < 1 << fraction_bits) return sign | units;
    return sign | (((exponent - min_exponent + 1) << fraction_bits) + units - (1 << fraction_bits));
}
inline uint32_t pack_e4m3(float low, float high) {
    return round_to_fp8(low, 3, -6, 448) | round_to_fp8(high, 3, -6, 448) << 8;
}
inline uint32_t pack_e5m2(float low, float high) {
    return round_to_fp8(low, 2, -14, 57344) | round_to_fp8(high, 2, -14, 57344) << 8;
}

inline float from_fp16(uint32_t bits) {
    const uint32_t sign = bits >> 15 & 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                            : exponent     ? std::ldexp(1024.0f + fraction, static_cast<int>(exponent) - 25)
                                           : std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
}

inline float max_nan(float x, float y) {
    return std::isnan(x) || std::isnan(y) ? __uint_as_float(0x7fffffff) : std::fmax(x, y);
}
// 16-bit floats without a sign are ordered as their bits are, NaN above all.
inline uint32_t max_nan_fp16x2(uint32_t x, uint32_t y) {
    return std::max(x & 0xffff0000, y & 0xffff0000) | std::max(x & 0xffff, y & 0xffff);
}
inline uint32_t max_nan_bf16x2(uint32_t x, uint32_t y) { return max_nan_fp16x2(x, y); }
inline void opaque(uint4&) {}

}  // namespace deep_gemm::ptx
