// Quotients and scales of casts, beside this machine's division; compiled by tests/cpu/test_cast_kernels.py.
//
// Prints how many results differ, a line for each kind of test: as FP8 or INT8 data, and as floats. Reads seeds and counts of the
// random ones. The last line has the bounds of every format, as bits.
#include <math.h>
#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cuda.hpp"
#include "deep_gemm/cast/scale.cuh"

using namespace deep_gemm::cast;

// Rounds to nearest even, to a format with so many bits of fraction, whose smallest subnormal is 2^min_exponent.
static double rounded(float x, int fraction_bits, int min_exponent) {
    int exponent;
    std::frexp(x, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 1 - fraction_bits, min_exponent));
    return std::nearbyint(x / unit) * unit;
}

// Results that differ.
struct Wrong {
    long data = 0, floats = 0;

    void compare(float found, float right) {
        if (__float_as_uint(found) == __float_as_uint(right)) return;
        ++floats;
        data += rounded(found, 3, -9) != rounded(right, 3, -9) || rounded(found, 2, -16) != rounded(right, 2, -16) ||
                rounded(found, 30, 0) != rounded(right, 30, 0) || std::signbit(found) != std::signbit(right);
    }
    void compare_quotient(float x, float scale) { compare(quotient(x, scale, 1.0f / scale), x / scale); }
    void print() const { printf("%ld %ld\n", data, floats); }
};

static float nudged(float x, int units) { return __uint_as_float(__float_as_uint(x) + units); }

// Any x over any scale: quotients of every magnitude that a format has.
static Wrong random_pairs(unsigned seed, long count) {
    std::mt19937 rng(seed);
    Wrong wrong;
    for (long i = 0; i < count; ++i) {
        const float mantissa_x = 1.0f + (rng() >> 9) * 0x1p-23f, mantissa = 1.0f + (rng() >> 9) * 0x1p-23f;
        const int exponent = static_cast<int>(rng() % 200) - 80;
        const float x = std::ldexp(mantissa_x, exponent + static_cast<int>(rng() % 36) - 19);
        if (std::isfinite(x)) wrong.compare_quotient(rng() & 1 ? x : -x, std::ldexp(mantissa, exponent));
    }
    return wrong;
}

// Quotients near a midpoint of two neighbours of a format, which has up to 8 bits: as close as this scale in [1, 2) allows to where
// rounding them to float32 changes.
static void near_midpoint(float scale, int midpoint, Wrong& wrong) {
    const double middle = midpoint * 0x1p-8;  // in [1/2, 1)
    for (double offset : {-0x1p-25, -0x1p-26, 0x1p-25}) {
        const float x = static_cast<float>(scale * (middle + offset));
        for (int units = -2; units <= 2; ++units) wrong.compare_quotient(nudged(x, units), scale);
    }
    for (double offset : {-0x1p-24, 0x1p-24}) {  // the same for quotients in [1, 2)
        const float x = static_cast<float>(scale * (2 * middle + offset));
        for (int units = -2; units <= 2; ++units) wrong.compare_quotient(nudged(x, units), scale);
    }
}

// Every scale that comes close to a multiple of 2^-7.
static Wrong every_close_scale() {
    Wrong wrong;
    for (int midpoint = 128; midpoint < 256; ++midpoint) {
        for (int multiple = 128; multiple <= 256; ++multiple) {
            for (int units = -8; units <= 8; ++units) {
                const float scale = nudged(multiple * 0x1p-7f, units);
                if (scale >= 1.0f && scale < 2.0f) near_midpoint(scale, midpoint, wrong);
            }
        }
    }
    return wrong;
}

static Wrong random_scales_near_midpoints(unsigned seed, long count) {
    std::mt19937 rng(seed);
    Wrong wrong;
    for (long i = 0; i < count; ++i) near_midpoint(1.0f + (rng() >> 9) * 0x1p-23f, 128 + rng() % 128, wrong);
    return wrong;
}

template <class Format>
static float right_scale(float amax) {
    return amax == 0.0f ? 1.0f : std::max(amax / Format::kLargest, 0x1p-126f);
}

// Every mantissa, at an exponent in the middle and where scales become subnormal.
template <class Format>
static Wrong every_amax() {
    Wrong wrong;
    for (unsigned bits = 0; bits < 1u << 23; ++bits) {
        const float amax = __uint_as_float(0x3f800000u | bits);
        wrong.compare(scale_of<Format>(amax, false), right_scale<Format>(amax));
    }
    for (unsigned high = 0; high < 0x7f8; ++high) {
        for (unsigned low : {0u, 1u, 0x55555u, 0xaaaabu, 0xffffeu, 0xfffffu}) {
            const float amax = __uint_as_float(high << 20 | low);
            wrong.compare(scale_of<Format>(amax, false), right_scale<Format>(amax));
        }
    }
    return wrong;
}

static Wrong signs_and_specials() {
    Wrong wrong;
    for (float scale : {0x1p-80f, 0.3f, 1.0f, 0x1.8p100f}) {
        for (float x : {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.8p-130f, -0x1.8p-130f}) wrong.compare_quotient(x, scale);
    }
    wrong.data += !std::isnan(scale_of<E4M3>(NAN, false)) + !std::isnan(scale_of<E4M3>(NAN, true));
    wrong.data += scale_of<E4M3>(448 * 0x1p-7f, true) != 0x1p-7f;
    wrong.data += scale_of<Int8>(127 * 0x1.000002p5f, true) != 0x1p6f;
    wrong.data += any_quotient(0.0f, 0.0f) != 0.0f;
    return wrong;
}

int main() {
    signs_and_specials().print();
    every_close_scale().print();
    every_amax<E4M3>().print();
    every_amax<E5M2>().print();
    every_amax<Int8>().print();
    unsigned seed;
    long count;
    while (scanf("%u %ld", &seed, &count) == 2) {
        random_pairs(seed, count).print();
        random_scales_near_midpoints(seed, count / 25).print();
    }
    for (float bound : {E4M3::kSurely, E4M3::kOverflow, E5M2::kSurely, E5M2::kOverflow, Int8::kSurely, Int8::kOverflow}) {
        printf("%u ", __float_as_uint(bound));
    }
    printf("\n");
}
