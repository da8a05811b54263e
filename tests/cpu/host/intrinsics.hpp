// CUDA's own functions and variables, of which the headers make use, for one thread at a time.
#pragma once
#include "bits.hpp"

static struct { unsigned x; } threadIdx;

static inline unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
static inline unsigned __ballot_sync(unsigned, bool holds) { return holds; }
static inline bool __any_sync(unsigned, bool holds) { return holds; }
static inline unsigned __reduce_add_sync(unsigned, unsigned value) { return value; }
static inline int __ffs(unsigned mask) { return __builtin_ffs(mask); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= unsigned(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return found;
}
static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
