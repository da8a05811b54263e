// CUDA's own functions of a warp, for 32 lanes that meet; to be compiled with grid.h.
#pragma once
#include "grid.h"

// Meets the other lanes of the warp; returns what each has brought.
static std::vector<unsigned> of_lanes(unsigned value) {
    const unsigned first = this_thread.x / 32 * 32;
    Cta::Meeting& warp = cta->warps[this_thread.x / 32];
    cta->slots[this_thread.x] = value;
    cta->meet(warp, 32);
    const std::vector<unsigned> all(cta->slots.begin() + first, cta->slots.begin() + first + 32);
    cta->meet(warp, 32);
    return all;
}
static unsigned __reduce_add_sync(unsigned, unsigned value) {
    unsigned sum = 0;
    for (unsigned one : of_lanes(value)) sum += one;
    return sum;
}
static unsigned __ballot_sync(unsigned, bool holds) {
    const auto lanes = of_lanes(holds);
    unsigned mask = 0;
    for (unsigned i = 0; i < 32; ++i) mask |= lanes[i] << i;
    return mask;
}
static bool __any_sync(unsigned mask, bool holds) { return __ballot_sync(mask, holds) != 0; }
static unsigned __shfl_sync(unsigned, unsigned value, int lane) { return of_lanes(value).at(lane); }
static int __ffs(unsigned mask) { return __builtin_ffs(mask); }
static void meet_warp() { of_lanes(0); }
#define __syncwarp meet_warp
