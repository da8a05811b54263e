// CUDA's own functions and variables, of which the headers make use, for one thread at a time.
#pragma once
#include "bits.hpp"

static struct { unsigned x; } threadIdx;

static inline unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
