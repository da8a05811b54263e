// Transposes bytes: x [rows, columns] to y [columns, rows]. A CTA transposes a tile of 128 x 128 through registers and shared
// memory.
//
// A thread transposes 4 rows x 16 columns to 16 words of 4 rows. The words of a column lie in 32 banks. Groups of four words,
// read as 16 bytes, are swizzled by column / 16, so that neither a warp's stores nor its loads have bank conflicts.
//
// Config: kThreads, 256; kAligned, rows of x can be loaded by 16 bytes.
#pragma once
#include "deep_gemm/ptx/control.cuh"

namespace deep_gemm {

struct TransposeParams {
    const uint8_t* x;
    uint8_t* y;                 // aligned to 16 bytes, and so are its rows
    int64_t pitch_x, pitch_y;   // from row to row, in bytes
    uint32_t rows, columns;     // of x
    uint32_t tiles_across;      // of x
};

namespace transpose {

constexpr uint32_t kTile = 128, kBytes = 16, kLanes = kTile / kBytes, kWords = kTile / 4;

// Word `quad` (of 4 rows) of a column in shared memory.
__device__ __forceinline__ uint32_t place(uint32_t column, uint32_t quad) {
    return column * kWords + ((quad / 4 ^ column / kBytes % kLanes) * 4 + quad % 4);
}

// 4 x 4 bytes: word i of `out` is byte i of each row.
__device__ __forceinline__ void transpose_4x4(const uint32_t (&row)[4], uint32_t (&out)[4]) {
    const uint32_t ab_low = __byte_perm(row[0], row[1], 0x5140), ab_high = __byte_perm(row[0], row[1], 0x7362);
    const uint32_t cd_low = __byte_perm(row[2], row[3], 0x5140), cd_high = __byte_perm(row[2], row[3], 0x7362);
    out[0] = __byte_perm(ab_low, cd_low, 0x5410);
    out[1] = __byte_perm(ab_low, cd_low, 0x7632);
    out[2] = __byte_perm(ab_high, cd_high, 0x5410);
    out[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// 16 bytes of a row; zeros for what lies outside of x.
template <class C>
__device__ __forceinline__ void load(const TransposeParams& p, uint32_t row, uint32_t column, uint32_t (&words)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) words[i] = 0;
    if (row >= p.rows || column >= p.columns) return;
    const uint8_t* start = p.x + row * p.pitch_x + column;
    const uint32_t count = p.columns - column;
    if (C::kAligned && count >= kBytes) {
        const uint4 found = *reinterpret_cast<const uint4*>(start);
        words[0] = found.x, words[1] = found.y, words[2] = found.z, words[3] = found.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kBytes; ++i) {
        const uint32_t byte = i < count ? start[i] : 0;
        words[i / 4] |= byte << (i % 4 * 8);
    }
}

}  // namespace transpose

template <class C>
__device__ __forceinline__ void transpose_bytes(const TransposeParams& p) {
    static_assert(C::kThreads == transpose::kLanes * transpose::kWords, "a thread has 4 rows x 16 columns");
    using namespace transpose;
    alignas(16) __shared__ uint32_t tile[kTile * kWords];
    ptx::dependency_wait();
    ptx::dependency_launch();

    const uint32_t tile_row = blockIdx.x / p.tiles_across, tile_column = blockIdx.x - tile_row * p.tiles_across;
    const uint32_t row0 = tile_row * kTile, column0 = tile_column * kTile;
    const uint32_t lane = threadIdx.x % kLanes, quad = threadIdx.x / kLanes;
    uint32_t words[4][4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) load<C>(p, row0 + quad * 4 + i, column0 + lane * kBytes, words[i]);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t square[] = {words[0][i], words[1][i], words[2][i], words[3][i]};
        uint32_t columns[4];
        transpose_4x4(square, columns);
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) tile[place(lane * kBytes + i * 4 + j, quad)] = columns[j];
    }
    __syncthreads();
    // A row of y, 128 bytes, is written by 8 threads. Rows of y end at multiples of 16 bytes.
    const uint32_t row = row0 + lane * kBytes;
    if (row >= p.rows) return;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t in_tile = i * kWords + quad, column = column0 + in_tile;
        if (column >= p.columns) return;
        *reinterpret_cast<uint4*>(p.y + column * p.pitch_y + row) =
            *reinterpret_cast<const uint4*>(&tile[place(in_tile, lane * 4)]);
    }
}

}  // namespace deep_gemm
