// Tensor maps in global memory that a kernel modifies (tensormap.replace). A later kernel sees the change after
// tensor_map_release() in this one and tensor_map_acquire() in that one.
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-tensormap-replace
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

__device__ __forceinline__ void tensor_map_set_address(TensorMap* map, const void* address) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(__cvta_generic_to_global(map)), "l"(address)
                 : "memory");
}

template <int kDimension>
__device__ __forceinline__ void tensor_map_set_extent(TensorMap* map, uint32_t elements) {
    asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], %1, %2;" ::"l"(__cvta_generic_to_global(map)), "n"(kDimension),
                 "r"(elements)
                 : "memory");
}

// Row pitch of a matrix.
__device__ __forceinline__ void tensor_map_set_pitch(TensorMap* map, uint64_t bytes) {
    asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], 0, %1;" ::"l"(__cvta_generic_to_global(map)), "l"(bytes)
                 : "memory");
}

__device__ __forceinline__ void tensor_map_release() { asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory"); }

}  // namespace deep_gemm::ptx
