// Scales and quotients of casts: the bits of IEEE division, at three instructions an element.
#pragma once
#include "deep_gemm/ptx/convert.cuh"
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::cast {

// --- formats ----------------------------------------------------------------------------------

// Quotients up to kOverflow count as kLargest: amax / (amax / kLargest) exceeds it by rounding alone.
// A first estimate up to kSurely, itself less than two units off, is surely of such a quotient.
template <int kMax>
struct Range {
    static constexpr float kLargest = kMax;
    static constexpr float kSurely = kLargest + kLargest * 0x1p-23f;
    static constexpr float kOverflow = kLargest + kLargest * 0x1p-22f;
};

struct E4M3 : Range<448> {
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d) {
        return ptx::pack_e4m3(a, b) | ptx::pack_e4m3(c, d) << 16;
    }
};

struct E5M2 : Range<57344> {
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d) {
        return ptx::pack_e5m2(a, b) | ptx::pack_e5m2(c, d) << 16;
    }
};

// Round to nearest even; NaN becomes 0. Values lie within kSurely, so bytes do not overflow.
struct Int8 : Range<127> {
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d) {
        const uint32_t low = __byte_perm(__float2int_rn(a), __float2int_rn(b), 0x0040);
        const uint32_t high = __byte_perm(__float2int_rn(c), __float2int_rn(d), 0x0040);
        return __byte_perm(low, high, 0x5410);
    }
};

// --- quotients --------------------------------------------------------------------------------

// x / scale, where inverse is 1 / scale rounded to nearest.
//
// The estimate x * inverse is off by less than 1.5 units in the last place. Its excess over x comes
// out of an FMA exactly, or to within one of its own last bits, so what is rounded at the end is off
// by less than 2^-21 units: the result is x / scale correctly rounded, except that where x / scale lies so
// close to the middle of two floats, it can be the other one. That changes an 8-bit result only if
// one of the two floats is halfway between two values of the format. Such halves have at most 8
// bits, which leaves scales within 2^-20 of a multiple of 2^-6 (mantissas in [1, 2)), and
// tests/cpu/test_cast_kernels.py tries all of them; for the three divisors that make scales, all amax.
// The excess is formed with this sign because then x = -0 gives -0.
//
// It holds while no bit of the excess is below the smallest subnormal: for 2^-80 <= scale and
// quotients from 2^-18, half the smallest value of any format. x and inverse are to be finite.
__device__ __forceinline__ float quotient(float x, float scale, float inverse) {
    const float estimate = __fmul_rn(x, inverse);
    const float excess = __fmaf_rn(estimate, scale, -x);
    return __fmaf_rn(-excess, inverse, estimate);
}

// Any quotient; zero over zero is zero.
__device__ __forceinline__ float any_quotient(float x, float scale) {
    return x == 0.0f && scale == 0.0f ? 0.0f : __fdiv_rn(x, scale);
}

// --- scales -----------------------------------------------------------------------------------

constexpr float kSmallestScale = 0x1p-126f;  // its inverse is finite

// amax / kLargest within the normal numbers, or the power of two above; 1 for a block of zeros.
template <class Format>
__device__ __forceinline__ float scale_of(float amax, bool power_of_two) {
    constexpr float kLargest = Format::kLargest, kInverse = 1.0f / kLargest;
    // Shifted out of the reach of subnormals; what the way back rounds is below kSmallestScale.
    const bool small = amax < 0x1p-64f;
    float scale = quotient(small ? amax * 0x1p64f : amax, kLargest, kInverse);
    if (small) scale *= 0x1p-64f;
    if (scale < kSmallestScale) scale = kSmallestScale;
    if (power_of_two && scale == scale) {
        scale = __uint_as_float((__float_as_uint(scale) + 0x007fffffu) & 0xff800000u);
    }
    return amax == 0.0f ? 1.0f : scale;
}

// One scale for all elements of a chunk.
struct Scale {
    float scale, reciprocal;
    bool is_regular;  // quotient() is exact

    Scale() = default;
    // infinite: there are infinities to be divided.
    __device__ __forceinline__ explicit Scale(float value, bool infinite = false)
        : scale(value), reciprocal(__frcp_rn(value)), is_regular(value >= 0x1p-80f && value <= 0x1p124f && !infinite) {}

    __device__ __forceinline__ float value(int) const { return scale; }
    __device__ __forceinline__ float inverse(int) const { return reciprocal; }
};

// One for each element.
template <int kCount>
struct Scales {
    float scale[kCount], reciprocal[kCount];
    bool is_regular;

    __device__ __forceinline__ explicit Scales(bool infinite = false) : is_regular(!infinite) {}
    __device__ __forceinline__ void set(int i, const Scale& one) {
        scale[i] = one.scale;
        reciprocal[i] = one.reciprocal;
        is_regular = is_regular && one.is_regular;
    }
    __device__ __forceinline__ float value(int i) const { return scale[i]; }
    __device__ __forceinline__ float inverse(int i) const { return reciprocal[i]; }
};

// --- conversion -------------------------------------------------------------------------------

// Packs x / scale, clamped, and returns how many of them overflow the format.
// kPrecomputed: scales may be too small for x; computed ones overflow only for infinities, which `scales` knows about.
template <class Format, bool kPrecomputed, class S, int kCount>
__device__ __forceinline__ uint32_t convert(const float (&x)[kCount], const S& scales, uint32_t (&packed)[kCount / 4]) {
    float q[kCount], farthest = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if constexpr (kPrecomputed) farthest = fmaxf(farthest, fabsf(__fmul_rn(x[i], scales.inverse(i))));
        q[i] = quotient(x[i], scales.value(i), scales.inverse(i));
    }
    uint32_t overflows = 0;
    if (__builtin_expect(farthest > Format::kSurely || !scales.is_regular, 0)) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            q[i] = any_quotient(x[i], scales.value(i));
            if (fabsf(q[i]) > Format::kLargest) {
                overflows += fabsf(q[i]) > Format::kOverflow;
                q[i] = copysignf(Format::kLargest, q[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kCount; i += 4) packed[i / 4] = Format::pack(q[i], q[i + 1], q[i + 2], q[i + 3]);
    return overflows;
}

}  // namespace deep_gemm::cast
