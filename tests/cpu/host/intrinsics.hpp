// CUDA's own functions and variables, of which the headers make use, for one thread at a time.
#pragma once

static struct { unsigned x; } threadIdx;

static inline unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}
static inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
}
