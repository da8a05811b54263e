// CUDA C++ for a host compiler. Standard headers are included before it: they have assembly of their own.
//
// Inline assembly is dropped: `asm volatile(...)` becomes `asm ("")`, and `asm(...)` nothing. What a program needs of it, the
// program defines itself.
#pragma once
#include "bits.hpp"

#define __host__
#define __device__
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define volatile(...) ("")
#define asm(...)

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};

static inline unsigned long long __cvta_generic_to_shared(const void*) { return 0; }
static inline unsigned long long __cvta_generic_to_global(const void*) { return 0; }

static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= unsigned(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline int __float2int_rn(float x) { return __builtin_isnan(x) ? 0 : int(__builtin_nearbyintf(x)); }
static inline int __ffs(unsigned mask) { return __builtin_ffs(mask); }
