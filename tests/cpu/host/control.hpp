// ptx/control.cuh without what needs a device; warps are one thread.
#pragma once
#include "intrinsics.hpp"
#define cluster_rank device_cluster_rank
#define elect_one device_elect_one
#define first_of device_first_of
#include "deep_gemm/ptx/control.cuh"
#undef cluster_rank
#undef elect_one
#undef first_of

namespace deep_gemm::ptx {

inline bool elect_one() { return true; }

template <class Holds>
uint32_t first_of(uint32_t from, uint32_t count, Holds holds) {
    while (from < count && !holds(from)) ++from;
    return from;
}

}  // namespace deep_gemm::ptx
