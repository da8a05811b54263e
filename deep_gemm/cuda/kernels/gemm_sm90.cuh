// gemm_sm90: D[M, N] = alpha * A[M, K] . B[N, K] + beta * C[M, N], D row-major of 16- or 32-bit elements.
// A and B 8-bit, K-major, or 16-bit in either order. Scales, FP32 with any strides, belong to rows of A and rows of B and are
// applied after all of K, or to every 128 of K: then to rows of A, and to rows, or to 128 x 128 blocks, of B.
// With groups, rows of A belong to one of several B, or parts of K to one of several D, as only the device knows.
//
// Roles (one CTA; persistent over tiles of BLOCK_M x BLOCK_N)
//   producer warpgroup   warp 0               A and B of a k-block, 128 bytes of K, by TMA, multicast over the cluster;
//                                             what is to be added to the tile, to L2
//                        warps 1, 2           scales of a k-block, by turns, through registers: any stride will do;
//                        or warps 1 to 3      those of rows and columns, a third of every k-block's each;
//                        or warp 1            a tile's scales of rows and columns
//                        warp 3               with groups, walks over them and shows every tile to all other roles
//                        others               idle
//   math warpgroups      rows of 64 x kWaves each: wgmma over one k-block into `partial`, then promotion
//                        partial * (sfa * sfb) + total -> total, or wgmma into `total` over all of K;
//                        after the last k-block, scales, alpha, beta * C, and the store
// Of a cluster, CTAs share rows or columns of operands (kClusterM, kClusterN), or have the same tile and a part of
// K each (kSplitK), or both; those with the same tile exchange their totals before the store.
//
// Pipelines                filled by                         arrivals      freed by              arrivals
//   stage (A, B, scales)   TMA bytes, one lane of warp 0     1, and 1 or 3 each math warp of     math warps
//                          and of each scale warp            with scales   each sharing CTA      * sharing CTAs
//   vectors of scales      one lane of warp 1                1             each math warp        math warps
//   tiles of groups        one lane of warp 3, or of warp 0  1             each other warp       those that have a role
//                          with scales of rows and columns
//   turn (kPingPong)       the warpgroup before              named barrier
//   exchange               bytes of the others' totals       1             each math warp of     math warps
//                                                                          the same tile's CTAs  * kSplitK
//   store slabs            math warpgroup                    named barrier TMA store has read    bulk groups
//
// Timeline of a math warpgroup with two waves, k-block by k-block; the other warpgroup's MMAs run
// while this one promotes:
//   wait full | mma wave 0 | promote wave 0 | mma wave 1 | release stage | promote wave 1 | ...
// With kPingPong each has tiles of its own, `total` in the tensor core, and one's MMAs run under another's store; only the
// warps of the tile's warpgroup then free a stage, and its vectors of scales are its own:
//   wait turn | mma of all k-blocks | pass turn | scales, store | stages of the other's tile passed over | wait turn | ...
//
// With scales of rows and columns (kRows), half a tile that does not exist is neither loaded nor multiplied: a warpgroup
// without rows only releases stages, and tiles with half their columns have a loop of their own. Rows of A that are no tokens
// of a tile's group come in boxes of their own, which are left out (kSomeRows, kSomeColumns).
//
// Dependent launch: set-up overlaps the kernel before; all roles wait for its end, but warp 0 first fills the
// stages with B where the caller has said that no kernel in flight writes it.
#pragma once
#include "deep_gemm/kernels/gemm_math.cuh"
#include "deep_gemm/kernels/gemm_producer.cuh"

namespace deep_gemm {

template <class C, class Mma>
__device__ __forceinline__ void gemm_sm90(const GemmParams& params) {
    using P = Plan<C>;
    extern __shared__ __align__(1024) uint8_t shared[];
    const Cta<C> cta(params, ptx::shared_address(shared));
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / kWarpThreads, 0), lane = threadIdx.x % kWarpThreads;

    if (threadIdx.x == 0) {
        ptx::tma_prefetch_map(&params.map_b);
        if constexpr (P::kExtra > 0) ptx::tma_prefetch_map(&params.map_extra);
        if constexpr (C::kRestColumns > 0) ptx::tma_prefetch_map(&params.map_rest);
        ptx::tma_prefetch_map(&params.map_a);
        ptx::tma_prefetch_map(&params.map_d);
        if constexpr (C::kSplitK > 1) cta.template exchange<typename Mma::Sum>().init();
        if constexpr (P::kScaled) cta.vector_barriers().init(1, P::kReaders);
        if constexpr (P::kGrouped) cta.ring().barriers.init(1, P::kRingReaders);
        cta.barriers.init(1 + P::kScaleArrivals, P::kReaders * P::kMulticast);
    }
    if constexpr (C::kPromotion == kRows) clear_scales(cta);
    if constexpr (P::kCluster > 1) ptx::cluster_sync_relaxed();
    else __syncthreads();
    ptx::dependency_launch();

    if (warp >= P::kMathWarps) {
        if constexpr (C::kProducerRegisters) ptx::registers_decrease<C::kProducerRegisters>();
        const uint32_t role = warp - P::kMathWarps;
        if (role == 0) return produce_operands(cta);
        ptx::dependency_wait();
        if constexpr (P::kHasWalker) {
            if (role == 3) return walk_groups(cta);
        }
        if constexpr (C::kPromotion == kRows) {
            produce_outer_scales(cta, role - 1, lane);
        } else if constexpr (P::kScalesAlongK) {
            if (role <= kScaleWarps) produce_block_scales(cta, role - 1, lane);
        } else if constexpr (P::kScaled) {
            if (role == 1) produce_vectors(cta, lane);
        }
    } else {
        if constexpr (C::kMathRegisters) ptx::registers_increase<C::kMathRegisters>();
        ptx::dependency_wait();
        compute<C, Mma>(cta, warp / 4, threadIdx.x % kWarpgroupThreads);
    }
}

}  // namespace deep_gemm
