// 1D2D scaling: 1x128 scales of A, 128x128 scales of B. A k-block's partial sums times sfa[m] * sfb[n / 128] are promoted.
//
// In a stage: a float for each m of the tile, then one for each block of 128 along N that the tile touches.
// Producer: two warps, alternating k-blocks. Consumer: Scales1d2d, in PromotedMainloop.
#pragma once
#include "deep_gemm/mainloop/promoted.cuh"
#include "deep_gemm/mainloop/scale_producer.cuh"

namespace deep_gemm::mainloop {

// --- producer -----------------------------------------------------------------------------------

// One lane of a scale warp: its rows of A, and perhaps one block of B. The warps alternate k-blocks, counted over all tiles, so
// that each has twice the time of a k-block.
template <class Traits>
struct ScaleLane1d2d {
    // Two batches, one being stored and one being loaded, cover the latency of a load; short k-blocks need larger batches.
    static constexpr uint32_t kBatch = Traits::kBlockM <= 64 ? 4 : Traits::kBlockM <= 128 ? 2 : 1;
    static constexpr uint32_t kRows = ceil_div(Traits::kBlockM, kWarpThreads);
    static constexpr uint32_t kInterleave = kNumScaleWarps1d2d;
    struct Batch {
        float a[kBatch][kRows], b[kBatch];
    };

    const CtaContext<Traits>& cta;
    uint32_t warp_parity, lane;
    const float *sfa, *sfb;  // in the next k-block to be loaded
    uint32_t valid_rows;     // from the lane's first row on
    bool has_b;

    __device__ __forceinline__ uint32_t begin_tile(const typename Traits::Tile& tile) {
        const auto& p = cta.params;
        const KRange k_range = cta.k_range_of(tile);
        const uint32_t m = cta.m_idx(tile) + lane, block_n = cta.scale_block_n(tile, lane), first = k_range.first + warp_parity;
        valid_rows = m < cta.m_end(tile) ? cta.m_end(tile) - m : 0;
        has_b = lane < Traits::kScaleBlocksN && block_n < ceil_div(cta.n(), 128);
        sfa = cta.sfa(tile) + m * p.sfa_stride_m + first * p.sfa_stride_k;
        sfb = cta.sfb(tile) + block_n * p.sfb_stride_n + first * p.sfb_stride_k;
        const uint32_t k_blocks = (k_range.count + 1 - warp_parity) / 2;
        warp_parity ^= k_range.count % 2;
        return k_blocks;
    }

    __device__ __forceinline__ void load(Batch& batch, uint32_t count) {
        const auto& p = cta.params;
#pragma unroll
        for (uint32_t j = 0; j < kBatch; ++j) {
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i) {
                const bool is_valid = j < count && i * kWarpThreads < valid_rows;
                batch.a[j][i] = is_valid ? sfa[i * kWarpThreads * p.sfa_stride_m + j * kInterleave * p.sfa_stride_k] : 0.0f;
            }
            batch.b[j] = has_b && j < count ? sfb[j * kInterleave * p.sfb_stride_k] : 0.0f;
        }
        sfa += kBatch * kInterleave * p.sfa_stride_k;
        sfb += kBatch * kInterleave * p.sfb_stride_k;
    }

    __device__ __forceinline__ void store(const Batch& batch, uint32_t index, uint32_t stage) const {
        const uint32_t scales = cta.stage_scales(stage);
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) ptx::store_shared(scales + (i * kWarpThreads + lane) * 4, batch.a[index][i]);
        if (lane < Traits::kScaleBlocksN) ptx::store_shared(scales + kScaleOffsetB<Traits> + lane * 4, batch.b[index]);
    }
};

template <class Traits>
__device__ __forceinline__ void run_scale_warp_1d2d(const CtaContext<Traits>& cta, uint32_t warp, uint32_t lane) {
    run_scale_warp(cta, ScaleLane1d2d<Traits>{cta, warp, lane}, warp);
}

// --- consumer -----------------------------------------------------------------------------------

// A along mma_m: a thread has two rows, row_offset 0 and 8, and one scale of B for the N head and one for the tail.
template <class Traits>
struct RowScales1d2d {
    static constexpr uint32_t kAccums = Traits::kSliceAccums, kParts = Traits::kScaleBlocksN;

    float row0[kParts], row8[kParts];

    template <class Mainloop>
    __device__ __forceinline__ void load(const Mainloop& loop, uint32_t stage, uint32_t slice) {
        const uint32_t scales = loop.cta.stage_scales(stage);
        const uint32_t row = loop.thread_row(slice);
        const float sfa0 = ptx::load_shared(scales + row * 4);
        const float sfa8 = ptx::load_shared(scales + (row + 8) * 4);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            const float sfb = ptx::load_shared(scales + kScaleOffsetB<Traits> + i * 4);
            row0[i] = sfa0 * sfb;
            row8[i] = sfa8 * sfb;
        }
    }

    __device__ __forceinline__ void promote(float (&accum)[kAccums], const float (&partial)[kAccums]) const {
#pragma unroll
        for (int i = 0; i < kAccums; i += 4) {
            const int part = mma::col_offset(i) < Traits::kNHead ? 0 : 1;
            accum[i + 0] = __fmaf_rn(partial[i + 0], row0[part], accum[i + 0]);
            accum[i + 1] = __fmaf_rn(partial[i + 1], row0[part], accum[i + 1]);
            accum[i + 2] = __fmaf_rn(partial[i + 2], row8[part], accum[i + 2]);
            accum[i + 3] = __fmaf_rn(partial[i + 3], row8[part], accum[i + 3]);
        }
    }
};

// A along mma_n: a thread has a scale of A for each of its columns, and the 64 rows of a slice share one scale of B.
template <class Traits>
struct ColumnScales1d2d {
    static constexpr uint32_t kAccums = Traits::kSliceAccums;

    float column[kAccums / 2];

    template <class Mainloop>
    __device__ __forceinline__ void load(const Mainloop& loop, uint32_t stage, uint32_t slice) {
        const uint32_t scales = loop.cta.stage_scales(stage);
        const uint32_t block_n = (loop.n_in_scale_block + loop.first_row + slice * mma::kSliceM) / 128;
        const float sfb = ptx::load_shared(scales + kScaleOffsetB<Traits> + block_n * 4);
#pragma unroll
        for (int i = 0; i < kAccums / 2; i += 2) {
            float pair[2];
            ptx::load_shared(scales + (i * 4 + mma::thread_col(loop.lane)) * 4, pair);
            column[i] = pair[0] * sfb;
            column[i + 1] = pair[1] * sfb;
        }
    }

    __device__ __forceinline__ void promote(float (&accum)[kAccums], const float (&partial)[kAccums]) const {
#pragma unroll
        for (int i = 0; i < kAccums; ++i) accum[i] = __fmaf_rn(partial[i], column[i / 4 * 2 + i % 2], accum[i]);
    }
};

template <class Traits>
using Scales1d2d = typename Conditional<Traits::kSwapAB, ColumnScales1d2d<Traits>, RowScales1d2d<Traits>>::Type;

}  // namespace deep_gemm::mainloop
