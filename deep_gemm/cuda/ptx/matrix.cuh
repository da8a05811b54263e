// Matrix stores of a warp: 8x8 blocks of 16-bit elements from registers to shared memory (stmatrix).
// PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-store-instruction-stmatrix
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

// Lane i gives the address of row i % 8 of block i / 8.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1) : "memory");
}

// Stores each 8x8 block transposed: row i of a block in shared memory is its column i.
__device__ __forceinline__ void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1),
                 "r"(r2), "r"(r3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1) : "memory");
}

}  // namespace deep_gemm::ptx
