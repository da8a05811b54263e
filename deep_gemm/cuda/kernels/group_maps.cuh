// group_maps: TMA maps of A and B for every group of a product whose K belongs to groups that only the device knows.
//
// One warp a group. It adds up the extents of the groups before its own, copies the maps of the whole buffers, and sets the
// address, and the extent along K, to its group's; where K is contiguous, also the pitch of rows, which is that extent.
#pragma once
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/ptx/tensor_map.cuh"

namespace deep_gemm {

// The kernel's one parameter.
struct GroupMapsParams {
    TensorMap map_a, map_b;
    const uint8_t *a, *b;
    TensorMap* maps;              // [groups][A, B]
    const int* extents;           // [groups], along K
    uint64_t a_bytes, b_bytes;    // of one element along K of all rows
    uint32_t total;               // extent of the buffers along K, which no group exceeds
};

template <class C>
__device__ __forceinline__ void set_group(TensorMap* map, const uint8_t* buffer, uint32_t before, uint64_t k_bytes, uint32_t extent) {
    ptx::tensor_map_set_address(map, buffer + before * k_bytes);
    ptx::tensor_map_set_extent<C::kKMajor ? 0 : 1>(map, extent);
    if constexpr (C::kKMajor) ptx::tensor_map_set_pitch(map, uint64_t(extent) * C::kElementBytes);
}

template <class C>
__device__ __forceinline__ void group_maps(const GroupMapsParams& params) {
    static_assert(sizeof(GroupMapsParams) == C::kParamsBytes, "the host packs parameters by another table");
    const uint32_t group = blockIdx.x, lane = threadIdx.x;
    ptx::dependency_launch();
    ptx::dependency_wait();
    uint32_t before = 0;
    for (uint32_t i = lane; i < group; i += kWarpThreads) before += params.extents[i] > 0 ? params.extents[i] : 0;
    before = ptx::sum_of_lanes(before);
    before = before < params.total ? before : params.total;
    const int own = params.extents[group];
    const uint32_t rest = params.total - before, extent = own < 0 ? 0 : uint32_t(own) < rest ? own : rest;

    TensorMap* maps = params.maps + group * 2;
    if (lane < 16) maps[0].words[lane] = params.map_a.words[lane];
    else maps[1].words[lane - 16] = params.map_b.words[lane - 16];
    __syncwarp();
    if (lane == 0 && extent > 0) {
        set_group<C>(&maps[0], params.a, before, params.a_bytes, extent);
        set_group<C>(&maps[1], params.b, before, params.b_bytes, extent);
    }
    __syncwarp();
    ptx::tensor_map_release();
}

}  // namespace deep_gemm
