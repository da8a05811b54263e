// CUDA's warp intrinsics for the 32 lanes of a warp of grid.h, and __syncwarp.
#pragma once
#include "grid.h"

// Exchanges a word with the other lanes of the warp; returns all 32, in the order of lanes.
static std::vector<unsigned> gather_from_lanes(unsigned value) {
    const unsigned first = this_thread.x / 32 * 32;
    Cta::Barrier& warp = cta->warps[this_thread.x / 32];
    cta->slots[this_thread.x] = value;
    cta->arrive_and_wait(warp, 32);
    const std::vector<unsigned> values(cta->slots.begin() + first, cta->slots.begin() + first + 32);
    cta->arrive_and_wait(warp, 32);
    return values;
}
static void __syncwarp() { gather_from_lanes(0); }
static unsigned __reduce_add_sync(unsigned, unsigned value) {
    unsigned sum = 0;
    for (unsigned one : gather_from_lanes(value)) sum += one;
    return sum;
}
static unsigned __ballot_sync(unsigned, bool predicate) {
    const auto values = gather_from_lanes(predicate);
    unsigned mask = 0;
    for (unsigned i = 0; i < 32; ++i) mask |= values[i] << i;
    return mask;
}
static bool __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
static unsigned __shfl_sync(unsigned, unsigned value, int lane) { return gather_from_lanes(value).at(lane); }
