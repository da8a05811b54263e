// The bits of a float, and the float that some bits are.
#pragma once

static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
