// group_tensor_maps: TMA maps of A and B for every group of a product whose K belongs to groups, which only the device knows.
//
// One warp a group. It adds the extents of the groups before its own, copies the maps of the whole buffers, and sets the address
// and the extent along K to its group's; where operands are K-major also the row pitch, which is that extent.
//
// Config: kKMajor; kElementBytes.
#pragma once
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/ptx/tensor_map.cuh"
#include "deep_gemm/ptx/warp.cuh"

namespace deep_gemm {

// The kernel's one parameter.
struct GroupTensorMapsParams {
    TensorMap map_a, map_b;
    const uint8_t *a, *b;
    TensorMap* maps;                        // [groups][A, B]
    const int* extents;                     // [groups], along K
    uint64_t a_bytes_per_k, b_bytes_per_k;  // of one element along K of all rows
    uint32_t total_k;                       // extent of the buffers along K
};

template <class Config>
__device__ __forceinline__ void set_group(TensorMap* map, const uint8_t* buffer, uint32_t k_begin, uint64_t bytes_per_k, uint32_t extent) {
    ptx::tensor_map_set_address(map, buffer + k_begin * bytes_per_k);
    ptx::tensor_map_set_extent<Config::kKMajor ? 0 : 1>(map, extent);
    if constexpr (Config::kKMajor) ptx::tensor_map_set_pitch(map, uint64_t(extent) * Config::kElementBytes);
}

template <class Config>
__device__ __forceinline__ void group_tensor_maps(const GroupTensorMapsParams& params) {
    const uint32_t group = blockIdx.x, lane = threadIdx.x;
    ptx::dependency_launch();
    ptx::dependency_wait();
    uint32_t k_begin = 0;
    for (uint32_t i = lane; i < group; i += kWarpThreads) k_begin += params.extents[i] > 0 ? params.extents[i] : 0;
    k_begin = ptx::warp_sum(k_begin);
    k_begin = k_begin < params.total_k ? k_begin : params.total_k;
    const int own = params.extents[group];
    const uint32_t left = params.total_k - k_begin, extent = own < 0 ? 0 : uint32_t(own) < left ? own : left;

    TensorMap* maps = params.maps + group * 2;
    if (lane < 16) maps[0].words[lane] = params.map_a.words[lane];
    else maps[1].words[lane - 16] = params.map_b.words[lane - 16];
    __syncwarp();
    if (lane == 0 && extent > 0) {
        set_group<Config>(&maps[0], params.a, k_begin, params.a_bytes_per_k, extent);
        set_group<Config>(&maps[1], params.b, k_begin, params.b_bytes_per_k, extent);
    }
    __syncwarp();
    ptx::tensor_map_release();
}

}  // namespace deep_gemm
