// 1D1D scaling: 1x128 scales of A and of B, so each element of a k-block's partial sums has a scale of its own, sfa[m] * sfb[n].
//
// The outer product of scales is one more MMA, m64nNk16 of bf16: each scale is split exactly into three bf16 of 8 bits,
// x = x1 + x2 + x3, and along K the operands hold
//     r1 r1 r2 r2 r1 r3   for a scale of A, against
//     c1 c2 c1 c2 c3 c1   for a scale of B: the products add up to r c (1 +- 2^-21).
// On the CUDA cores it would take one more read and write of registers for every element, beside the tensor core's own traffic,
// and eight lanes of every warp would read the same column's scale.
//
// In a stage: 16 bf16 for each m of the tile, then for each n, of which 10 stay zero.
// Producer: three warps, each a third of every k-block. Consumer: Mainloop1d1d.
#pragma once
#include "deep_gemm/mainloop/base.cuh"
#include "deep_gemm/mainloop/scale_producer.cuh"

namespace deep_gemm::mainloop {

// --- split scales ---------------------------------------------------------------------------------

struct SplitScale {
    // Offset of a row of 32 bytes; its two halves are swapped in every other group of four rows (the 32-byte swizzle).
    static __device__ __forceinline__ uint32_t offset(uint32_t row) { return row * kScaleBytes1d1d + (row / 4 % 2) * 16; }

    static __device__ __forceinline__ bool is_finite(float scale) { return (__float_as_uint(scale) & 0x7f800000) != 0x7f800000; }

    static __device__ __forceinline__ void store(uint32_t smem, float scale, bool is_a) {
        const uint32_t x1 = __float_as_uint(scale);
        const float rest = scale - __uint_as_float(x1 & 0xffff0000);
        const uint32_t x2 = __float_as_uint(rest), x3 = __float_as_uint(rest - __uint_as_float(x2 & 0xffff0000));
        // Upper halves, selected by byte: 32 is the first operand's, 76 the second's.
        ptx::store_shared(smem, int(__byte_perm(x1, x2, is_a ? 0x3232 : 0x7632)), int(__byte_perm(x1, x2, is_a ? 0x7676 : 0x7632)),
                          int(__byte_perm(x1, x3, is_a ? 0x7632 : 0x3276)), 0);
    }

    // NOTE: inf * 0 = NaN, so a non-finite scale is stored once and its other parts stay 0. Truncating a NaN could clear its
    // payload and leave an infinity, hence 0x7fc0.
    static __device__ __forceinline__ void store_any(uint32_t smem, float scale, bool is_a) {
        if (is_finite(scale)) return store(smem, scale, is_a);
        ptx::store_shared(smem, scale == scale ? int(__float_as_uint(scale) >> 16) : 0x7fc0, 0, 0, 0);
    }
};

// --- producer -----------------------------------------------------------------------------------

// One lane's rows of A and of B, in groups of 32 of either. All three warps split every k-block: a producer's instructions take
// issue slots from the math warps of the same SM sub-partition, so the work is spread evenly.
template <class Traits>
struct ScaleLane1d1d {
    static constexpr uint32_t kWarps = kNumScaleWarps1d1d;
    static constexpr uint32_t kGroupsA = ceil_div(Traits::kBlockM, kWarpThreads);
    static constexpr uint32_t kGroups = kGroupsA + ceil_div(Traits::kBlockN, kWarpThreads);
    static constexpr uint32_t kOwn = ceil_div(kGroups, kWarps);
    // Two batches, one being stored and one being loaded, cover the latency of a load.
    static constexpr uint32_t kBatch = Traits::kBlockM <= 64 ? 4 : 2;
    static constexpr uint32_t kInterleave = 1;
    struct Batch {
        float scale[kBatch][kOwn];
    };

    const CtaContext<Traits>& cta;
    uint32_t warp, lane;
    const float* source[kOwn];  // in the next k-block to be loaded
    bool is_valid[kOwn];

    __device__ __forceinline__ bool is_a(uint32_t i) const { return i * kWarps + warp < kGroupsA; }
    __device__ __forceinline__ uint32_t row(uint32_t i) const {
        return (i * kWarps + warp - (is_a(i) ? 0 : kGroupsA)) * kWarpThreads + lane;
    }
    __device__ __forceinline__ bool is_in_tile(uint32_t i) const { return row(i) < (is_a(i) ? Traits::kBlockM : Traits::kBlockN); }
    __device__ __forceinline__ int64_t stride_k(uint32_t i) const { return is_a(i) ? cta.params.sfa_stride_k : cta.params.sfb_stride_k; }

    __device__ __forceinline__ uint32_t begin_tile(const typename Traits::Tile& tile) {
        const auto& p = cta.params;
        const KRange k_range = cta.k_range_of(tile);
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
            const uint32_t mn = row(i) + (is_a(i) ? cta.m_idx(tile) : cta.n_idx(tile));
            is_valid[i] = is_in_tile(i) && mn < (is_a(i) ? cta.m_end(tile) : cta.n());
            source[i] = (is_a(i) ? cta.sfa(tile) + mn * p.sfa_stride_m : cta.sfb(tile) + mn * p.sfb_stride_n) + k_range.first * stride_k(i);
        }
        return k_range.count;
    }

    __device__ __forceinline__ void load(Batch& batch, uint32_t count) {
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
#pragma unroll
            for (uint32_t j = 0; j < kBatch; ++j) {
                batch.scale[j][i] = is_valid[i] && j < count ? *source[i] : 0.0f;
                source[i] += stride_k(i);
            }
        }
    }

    __device__ __forceinline__ void store(const Batch& batch, uint32_t index, uint32_t stage) const {
        const float(&scale)[kOwn] = batch.scale[index];
        bool all_finite = true;
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) all_finite = all_finite && SplitScale::is_finite(scale[i]);
#pragma unroll
        for (uint32_t i = 0; i < kOwn; ++i) {
            const uint32_t smem = cta.stage_scales(stage) + (is_a(i) ? 0 : kScaleOffsetB<Traits>) + SplitScale::offset(row(i));
            if (!is_in_tile(i)) continue;
            if (all_finite) SplitScale::store(smem, scale[i], is_a(i));
            else SplitScale::store_any(smem, scale[i], is_a(i));
        }
        ptx::fence_async_proxy();  // the MMAs read them
    }
};

template <class Traits>
__device__ __forceinline__ void run_scale_warp_1d1d(const CtaContext<Traits>& cta, uint32_t warp, uint32_t lane) {
    run_scale_warp(cta, ScaleLane1d1d<Traits>{cta, warp, lane}, 0);
}

// Called once by all threads before any stage is used: zeros for the part of a row that no warp writes.
template <class Traits>
__device__ __forceinline__ void clear_scales_1d1d(const CtaContext<Traits>& cta) {
    constexpr uint32_t kBytes = sizeof(SharedStorage<Traits>::scales);
    for (uint32_t i = threadIdx.x * 16; i < kBytes; i += Traits::kNumThreads * 16) {
        ptx::store_shared(cta.stage_scales(0) + i, 0, 0, 0, 0);
    }
    ptx::fence_async_proxy();
}

// --- consumer -----------------------------------------------------------------------------------

template <class Traits>
struct Mainloop1d1d : MainloopBase<Traits> {
    using Base = MainloopBase<Traits>;
    using Base::cta, Base::kAccums, Base::state;
    using Storage = typename Base::Storage;
    static_assert(DG_OFFSETOF(Storage, scales) % 256 == 0, "the 32-byte swizzle repeats every 256 bytes");

    uint32_t descriptor_scales;  // of this warpgroup's scales of A, low word for stage 0

    __device__ __forceinline__ Mainloop1d1d(const CtaContext<Traits>& cta, uint32_t warpgroup, uint32_t thread)
        : Base(cta, warpgroup, thread) {
        descriptor_scales = ptx::warp_uniform(mma::descriptor_low<false>(cta.stage_scales(0) + this->first_row * kScaleBytes1d1d));
    }

    // Residue tiles: no MMA if this warpgroup is past M, the half-N MMA if only the first half of N is in bounds.
    __device__ __forceinline__ void run(float (&accum)[1][kAccums], const typename Base::Tile& tile, uint32_t k_blocks) {
        if (!Traits::kIsGrouped && cta.m_idx(tile) + this->first_row >= cta.m()) return this->drain(k_blocks);
        if constexpr (Traits::kHalfN > 0) {
            if (cta.is_half_n(cta.n_idx(tile))) {
                return run_tile<typename Traits::HalfMma, typename Traits::HalfScaleMma>(
                    mma::first_columns<Traits::kHalfAccums>(accum[0]), k_blocks);
            }
        }
        run_tile<typename Traits::Mma, typename Traits::ScaleMma>(accum[0], k_blocks);
    }

private:
    template <class Mma, class ScaleMma, int kCount>
    __device__ __forceinline__ void run_tile(float (&accum)[kCount], uint32_t k_blocks) {
        float partial[kCount], scale[kCount];
        for (uint32_t k_block = 0; k_block < k_blocks; ++k_block, state.advance()) {
            cta.barriers.wait_full(state);
            issue_scales<ScaleMma>(scale, state.stage);
            this->template issue<false, Mma>(partial, state.stage, 0);
            ptx::wgmma_wait<0>();
            ptx::fence_registers(scale);
            ptx::fence_registers(partial);
            this->release(state.stage);
#pragma unroll
            for (int i = 0; i < kCount; ++i) accum[i] = __fmaf_rn(partial[i], scale[i], accum[i]);
        }
    }

    // Starts scale[m][n] = sfa[m] * sfb[n] of a stage.
    template <class ScaleMma, int kCount>
    __device__ __forceinline__ void issue_scales(float (&scale)[kCount], uint32_t stage) const {
        const uint32_t a = descriptor_scales + stage * (sizeof(typename Storage::StageScales) >> 4);
        const uint32_t b = a + ((kScaleOffsetB<Traits> - this->first_row * kScaleBytes1d1d) >> 4);
        ptx::fence_registers(scale);
        ptx::wgmma_fence();
        ScaleMma::issue(scale, mma::descriptor_32b(a), mma::descriptor_32b(b), false);
        ptx::wgmma_commit();
        ptx::fence_registers(scale);
    }
};

}  // namespace deep_gemm::mainloop
