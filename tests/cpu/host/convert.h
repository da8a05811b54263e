// deep_gemm/ptx/convert.cuh in plain C++.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::ptx {

// Nearest even of a format with so many bits after the leading one, down to 2^least; clamped.
static uint32_t narrow(float x, int bits, int least, float largest) {
    if (std::isnan(x)) return 0x7f;
    const uint32_t sign = std::signbit(x) ? 0x80 : 0;
    const float magnitude = std::fmin(std::fabs(x), largest);
    int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
    int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, bits - exponent)));
    if (steps == 2 << bits) steps /= 2, ++exponent;
    return sign | (steps < 1 << bits ? steps : ((exponent - least + 1) << bits) + steps - (1 << bits));
}
static uint32_t pack_e4m3(float low, float high) {
    return narrow(low, 3, -6, 448) | narrow(high, 3, -6, 448) << 8;
}
static uint32_t pack_e5m2(float low, float high) {
    return narrow(low, 2, -14, 57344) | narrow(high, 2, -14, 57344) << 8;
}
static float from_fp16(uint32_t word) {
    const uint32_t sign = word >> 15 & 1, exponent = word >> 10 & 31, fraction = word & 1023;
    const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                            : exponent     ? std::ldexp(1024.0f + fraction, static_cast<int>(exponent) - 25)
                                           : std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
}
static float max_nan(float x, float y) { return std::isnan(x) || std::isnan(y) ? __uint_as_float(0x7fffffff) : std::fmax(x, y); }
// Halves without a sign are ordered as their bits are, NaN above all.
static uint32_t max_nan_fp16x2(uint32_t x, uint32_t y) {
    return std::max(x & 0xffff0000, y & 0xffff0000) | std::max(x & 0xffff, y & 0xffff);
}
static uint32_t max_nan_bf16x2(uint32_t x, uint32_t y) { return max_nan_fp16x2(x, y); }
static void forget(uint4&) {}

}  // namespace deep_gemm::ptx
