// gemm_sm90: D[M, N] = sum over k-blocks of 128 of sfa[m, kb] * sfb[n / 128, kb] * (A[m, :] . B[n, :])
// A [M, K] and B [N, K] 8-bit, K-major; scales FP32 with any strides; D bf16, row-major.
//
// Roles (one CTA; persistent over tiles of BLOCK_M x BLOCK_N)
//   producer warpgroup   warp 0               A and B of a k-block by TMA, multicast over the cluster
//                        warps 1, 2           scales of a k-block, by turns, through registers: any stride will do
//                        warp 3               idle
//   math warpgroups      rows of 64 x kWaves each: wgmma over one k-block into `partial`, then promotion
//                        partial * (sfa * sfb) + total -> total; after the last k-block, store
//
// Pipelines                filled by                         arrivals      freed by              arrivals
//   stage (A, B, scales)   TMA bytes, one lane of warp 0     2             each math warp of     math warps
//                          and of a scale warp                             each CTA of cluster   * cluster
//   store slabs            math warpgroup                    named barrier TMA store has read    bulk groups
//
// Timeline of a math warpgroup with two waves, k-block by k-block; the other warpgroup's MMAs run
// while this one promotes:
//   wait full | mma wave 0 | promote wave 0 | mma wave 1 | release stage | promote wave 1 | ...
#pragma once
#include "deep_gemm/epilogue/promote.cuh"
#include "deep_gemm/epilogue/store.cuh"
#include "deep_gemm/kernels/gemm_plan.cuh"
#include "deep_gemm/mma/descriptor.cuh"
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/ptx/tma.cuh"
#include "deep_gemm/ptx/wgmma.cuh"

namespace deep_gemm {

// One operand's rows of a k-block: CTAs that need the same rows load a share each and multicast it.
template <uint32_t kRows, uint32_t kSharers>
__device__ __forceinline__ void load_operand(const TensorMap* map, uint32_t smem, uint32_t barrier, uint32_t k, uint32_t row,
                                             uint32_t share, uint16_t cta_mask) {
    if constexpr (kSharers == 1) {
        ptx::tma_load(smem, map, barrier, k, row);
    } else {
        constexpr uint32_t kShareRows = kRows / kSharers;
        ptx::tma_load_multicast(smem + share * kShareRows * kBlockK, map, barrier, k, row + share * kShareRows, cta_mask);
    }
}

template <class C>
__device__ __forceinline__ void produce_operands(const Cta<C>& cta) {
    // CTAs that share A differ in rank_n, those that share B in rank_m; rank = rank_m + rank_n * kClusterM.
    const uint16_t mask_a = (C::kClusterN > 1 ? 1u | 1u << C::kClusterM : 1u) << cta.rank_m;
    const uint16_t mask_b = ((1u << C::kClusterM) - 1) << (cta.rank_n * C::kClusterM);
    pipeline::Position<C::kStages> at;
    for (auto tile = cta.tiles(); tile.next();) {
        const uint32_t row = cta.row(tile), column = cta.column(tile);
        for (uint32_t block = 0; block < cta.k_blocks(); ++block, at.advance()) {
            cta.barriers.wait_empty(at);
            // NOTE: the loop belongs to the whole warp and only the issue to one lane; a loop of one lane keeps
            // its addresses in vector registers, and each copy is then wrapped in R2UR and a vote.
            if (ptx::elect_one()) {
                const uint32_t full = cta.barriers.full(at.stage), k = block * kBlockK;
                ptx::mbarrier_arrive_expect_tx(full, cta.params.stage_bytes);
                load_operand<C::kBlockM, C::kClusterN>(&cta.params.map_a, cta.stage_a(at.stage), full, k, row, cta.rank_n, mask_a);
                load_operand<C::kBlockN, C::kClusterM>(&cta.params.map_b, cta.stage_b(at.stage), full, k, column, cta.rank_m, mask_b);
            }
        }
    }
    // A CTA may not end while another can still signal in its shared memory: wait for the last releases.
    if constexpr (Plan<C>::kCluster > 1) {
        for (uint32_t stage = 0; stage < C::kStages; ++stage, at.advance()) cta.barriers.wait_empty(at);
    }
}

// One lane's share of the scales of a few k-blocks of a scale warp, on their way through registers.
template <class C>
struct ScaleGroup {
    // Two groups, one being stored and one being loaded, must outlast a load: more k-blocks where those are short.
    static constexpr uint32_t kBlocks = C::kBlockM <= 64 ? 4 : 2;
    static constexpr uint32_t kRows = C::kBlockM / kWarpThreads;
    float a[kBlocks][kRows], b[kBlocks];

    // sfa, sfb: this lane's first scale in the group's first k-block; rows, has_b, blocks: how many exist.
    __device__ __forceinline__ void load(const GemmParams& p, const float* sfa, const float* sfb, uint32_t rows, bool has_b,
                                         uint32_t blocks) {
#pragma unroll
        for (uint32_t j = 0; j < kBlocks; ++j) {
#pragma unroll
            for (uint32_t i = 0; i < kRows; ++i) {
                const bool exists = j < blocks && i * kWarpThreads < rows;
                a[j][i] = exists ? sfa[i * kWarpThreads * p.sfa_stride_m + j * kScaleWarps * p.sfa_stride_k] : 0.0f;
            }
            b[j] = j < blocks && has_b ? sfb[j * kScaleWarps * p.sfb_stride_k] : 0.0f;
        }
    }

    __device__ __forceinline__ void store(uint32_t scales, uint32_t lane, uint32_t block) const {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) ptx::store_shared(scales + (i * kWarpThreads + lane) * 4, a[block][i]);
        if (lane < Plan<C>::kScaleBlocks) ptx::store_shared(scales + Plan<C>::kScalesA + lane * 4, b[block]);
    }
};

// The scale warps take turns at the k-blocks, counted over all tiles; one has twice the time of a k-block.
template <class C>
__device__ __forceinline__ void produce_scales(const Cta<C>& cta, uint32_t turn, uint32_t lane) {
    using Group = ScaleGroup<C>;
    const GemmParams& p = cta.params;
    pipeline::Position<C::kStages> at;
    if (turn == 1) at.advance();
    for (auto tile = cta.tiles(); tile.next();) {
        const uint32_t row = cta.row(tile) + lane, block_n = cta.column(tile) / 128 + lane;
        const uint32_t rows = row < p.m ? p.m - row : 0;
        const bool has_b = lane < Plan<C>::kScaleBlocks && block_n < ceil_div(p.n, 128);
        const float* sfa = p.sfa + row * p.sfa_stride_m + turn * p.sfa_stride_k;
        const float* sfb = p.sfb + block_n * p.sfb_stride_n + turn * p.sfb_stride_k;
        uint32_t blocks = (cta.k_blocks() + 1 - turn) / 2;  // of this warp, from the current group on
        turn ^= cta.k_blocks() % 2;
        Group current, next;
        current.load(p, sfa, sfb, rows, has_b, blocks);
        while (blocks > 0) {
            sfa += Group::kBlocks * kScaleWarps * p.sfa_stride_k;
            sfb += Group::kBlocks * kScaleWarps * p.sfb_stride_k;
            next.load(p, sfa, sfb, rows, has_b, blocks > Group::kBlocks ? blocks - Group::kBlocks : 0);
#pragma unroll
            for (uint32_t j = 0; j < Group::kBlocks; ++j) {
                if (blocks > 0) {
                    cta.barriers.wait_empty(at);
                    current.store(cta.scales(at.stage), lane, j);
                    __syncwarp();
                    if (lane == 0) ptx::mbarrier_arrive(cta.barriers.full(at.stage));
                    at.advance();
                    at.advance();
                    --blocks;
                }
            }
            current = next;
        }
    }
}

// Every math warp tells every CTA that loads into this one's stage that it has read it.
template <class C>
__device__ __forceinline__ void release_stage(const Cta<C>& cta, uint32_t stage, uint32_t lane) {
    if constexpr (Plan<C>::kCluster == 1) {
        if (lane == 0) ptx::mbarrier_arrive(cta.barriers.empty(stage));
    } else {
        if (lane < Plan<C>::kCluster) ptx::mbarrier_arrive_remote(cta.barriers.empty(stage), lane);
    }
}

// Stores the 64 x BLOCK_N results of one wave slab by slab; a slab is written once an earlier store has read it.
template <class C, uint32_t kFirst = 0>
__device__ __forceinline__ void store_wave(const Cta<C>& cta, const float (&total)[Plan<C>::kElements], uint32_t row, uint32_t column,
                                           uint32_t warpgroup, uint32_t thread, uint32_t& buffer) {
    using P = Plan<C>;
    const uint32_t slab = cta.smem + P::kOffsetSlabs + (warpgroup * C::kStoreBuffers + buffer) * P::kSlab;
    if (thread == 0) ptx::tma_store_wait_read<C::kStoreBuffers - 1>();
    ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
    epilogue::store_slab<kFirst, C::kSlabColumns, C::kBoxColumns>(total, slab, thread);
    ptx::fence_async_proxy();
    ptx::named_barrier_sync(kStoreBarrier + warpgroup, kWarpgroupThreads);
    if (thread == 0) {
#pragma unroll
        for (uint32_t box = 0; box < C::kSlabColumns / C::kBoxColumns; ++box) {
            ptx::tma_store(&cta.params.map_d, slab + box * 64 * C::kBoxColumns * 2, column + kFirst + box * C::kBoxColumns, row);
        }
        ptx::tma_store_commit();
    }
    buffer = buffer + 1 == C::kStoreBuffers ? 0 : buffer + 1;
    if constexpr (kFirst + C::kSlabColumns < C::kBlockN) {
        store_wave<C, kFirst + C::kSlabColumns>(cta, total, row, column, warpgroup, thread, buffer);
    }
}

// Products sfa * sfb of a thread's two rows of one wave, for each scale block along N.
template <class C>
struct Scales {
    float row0[Plan<C>::kScaleBlocks], row8[Plan<C>::kScaleBlocks];

    __device__ __forceinline__ void load(uint32_t scales, uint32_t row) {
        const float sfa0 = ptx::load_shared(scales + row * 4);
        const float sfa8 = ptx::load_shared(scales + (row + 8) * 4);
#pragma unroll
        for (uint32_t i = 0; i < Plan<C>::kScaleBlocks; ++i) {
            const float sfb = ptx::load_shared(scales + Plan<C>::kScalesA + i * 4);
            row0[i] = sfa0 * sfb;
            row8[i] = sfa8 * sfb;
        }
    }
};

// A math warpgroup: where its rows lie, and the steps of its loop over k-blocks.
template <class C, class Mma>
struct MathWarpgroup {
    using P = Plan<C>;
    using Position = pipeline::Position<C::kStages>;

    const Cta<C>& cta;
    uint32_t warpgroup, thread, lane;
    uint32_t first_row;       // of this warpgroup, in the tile
    uint32_t scale_row;       // of this thread, in the tile
    uint32_t base_a, base_b;  // descriptors of stage 0
    Position at;
    uint32_t split = 0;  // column at which the tile enters the next block of 128 along N

    __device__ __forceinline__ MathWarpgroup(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread)
        : cta(cta), warpgroup(warpgroup), thread(thread), lane(thread % kWarpThreads) {
        first_row = warpgroup * P::kWaves * 64;
        scale_row = first_row + thread / kWarpThreads * 16 + lane / 4;
        // NOTE: from a register that differs by thread, every MMA would be preceded by R2UR; the shuffle
        // tells the compiler that the value is the same for the warp.
        base_a = __shfl_sync(~0u, mma::descriptor_low(cta.stage_a(0) + first_row * kBlockK), 0);
        base_b = __shfl_sync(~0u, mma::descriptor_low(cta.stage_b(0)), 0);
    }

    // Starts partial = A . B over one k-block of the stage at hand, for one wave.
    __device__ __forceinline__ void issue(float (&partial)[P::kElements], uint32_t stage, uint32_t wave) const {
        const uint32_t low_a = base_a + stage * (P::kStageA >> 4) + wave * (64 * kBlockK >> 4);
        const uint32_t low_b = base_b + stage * (P::kStageB >> 4);
        ptx::fence_registers(partial);
        ptx::wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < kBlockK / Mma::kK; ++k) {
            Mma::issue(partial, mma::descriptor(low_a + (k * Mma::kK >> 4)), mma::descriptor(low_b + (k * Mma::kK >> 4)), k > 0);
        }
        ptx::wgmma_commit();
        ptx::fence_registers(partial);
    }

    __device__ __forceinline__ void promote(float (&total)[P::kElements], const float (&partial)[P::kElements],
                                            const Scales<C>& scales) const {
        epilogue::promote<P::kElements, P::kScaleBlocks, P::kGranularity>(total, partial, scales.row0, scales.row8, split);
    }

    // One partial sum for all waves: a wave's promotion waits for its own MMAs, and another warpgroup's run meanwhile.
    __device__ __forceinline__ void accumulate(float (&total)[P::kWaves][P::kElements]) {
        float partial[P::kElements];
        Scales<C> scales;
        for (uint32_t block = 0; block < cta.k_blocks(); ++block, at.advance()) {
            cta.barriers.wait_full(at);
#pragma unroll
            for (uint32_t wave = 0; wave < P::kWaves; ++wave) {
                scales.load(cta.scales(at.stage), scale_row + wave * 64);
                issue(partial, at.stage, wave);
                ptx::wgmma_wait<0>();
                if (wave == P::kWaves - 1) release_stage(cta, at.stage, lane);
                promote(total[wave], partial, scales);
            }
        }
    }

    // Starts the MMAs of the next k-block into `next`, then promotes those of the one before from `current`.
    __device__ __forceinline__ void overlap(float (&total)[P::kElements], float (&next)[P::kElements], Scales<C>& next_scales,
                                            float (&current)[P::kElements], const Scales<C>& current_scales, uint32_t& current_stage) {
        cta.barriers.wait_full(at);
        next_scales.load(cta.scales(at.stage), scale_row);
        issue(next, at.stage, 0);
        ptx::wgmma_wait<1>();
        ptx::fence_registers(current);
        release_stage(cta, current_stage, lane);
        promote(total, current, current_scales);
        current_stage = at.stage;
        at.advance();
    }

    // Two partial sums, where registers allow: the MMAs of one k-block run while the one before is promoted.
    __device__ __forceinline__ void accumulate_overlapped(float (&total)[P::kElements]) {
        float even[P::kElements], odd[P::kElements];
        Scales<C> even_scales, odd_scales;
        cta.barriers.wait_full(at);
        even_scales.load(cta.scales(at.stage), scale_row);
        issue(even, at.stage, 0);
        uint32_t stage = at.stage;
        at.advance();
        for (uint32_t left = cta.k_blocks() - 1;; left -= 2) {
            if (left == 0) return drain(total, even, even_scales, stage);
            overlap(total, odd, odd_scales, even, even_scales, stage);
            if (left == 1) return drain(total, odd, odd_scales, stage);
            overlap(total, even, even_scales, odd, odd_scales, stage);
        }
    }

    __device__ __forceinline__ void drain(float (&total)[P::kElements], float (&last)[P::kElements], const Scales<C>& scales,
                                          uint32_t stage) const {
        ptx::wgmma_wait<0>();
        ptx::fence_registers(last);
        release_stage(cta, stage, lane);
        promote(total, last, scales);
    }
};

template <class C, class Mma>
__device__ __forceinline__ void compute(const Cta<C>& cta, uint32_t warpgroup, uint32_t thread) {
    using P = Plan<C>;
    MathWarpgroup<C, Mma> math(cta, warpgroup, thread);
    float total[P::kWaves][P::kElements];
    uint32_t buffer = 0;

    for (auto tile = cta.tiles(); tile.next();) {
        const uint32_t column = cta.column(tile);
        math.split = 128 - column % 128;
#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave)
#pragma unroll
            for (uint32_t i = 0; i < P::kElements; ++i) total[wave][i] = 0.0f;

        if constexpr (C::kPartials == 2) math.accumulate_overlapped(total[0]);
        else math.accumulate(total);

#pragma unroll
        for (uint32_t wave = 0; wave < P::kWaves; ++wave) {
            const uint32_t row = cta.row(tile) + math.first_row + wave * 64;
            if (row < cta.params.m) store_wave(cta, total[wave], row, column, warpgroup, thread, buffer);
        }
    }
    if (thread == 0) ptx::tma_store_wait_read<0>();
}

template <class C, class Mma>
__device__ __forceinline__ void gemm_sm90(const GemmParams& params) {
    using P = Plan<C>;
    extern __shared__ __align__(1024) uint8_t shared[];
    const Cta<C> cta(params, ptx::shared_address(shared));
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / kWarpThreads, 0), lane = threadIdx.x % kWarpThreads;

    if (threadIdx.x == 0) {
        ptx::tma_prefetch_map(&params.map_a);
        ptx::tma_prefetch_map(&params.map_b);
        ptx::tma_prefetch_map(&params.map_d);
        cta.barriers.init(2, P::kMathThreads / kWarpThreads * P::kCluster);
    }
    if constexpr (P::kCluster > 1) ptx::cluster_sync_relaxed();
    else __syncthreads();
    ptx::dependency_launch();
    ptx::dependency_wait();

    if (warp >= P::kMathThreads / kWarpThreads) {
        if constexpr (C::kProducerRegisters) ptx::registers_decrease<C::kProducerRegisters>();
        const uint32_t role = warp - P::kMathThreads / kWarpThreads;
        if (role == 0) produce_operands(cta);
        if (role >= 1 && role <= kScaleWarps) produce_scales(cta, role - 1, lane);
    } else {
        if constexpr (C::kMathRegisters) ptx::registers_increase<C::kMathRegisters>();
        compute<C, Mma>(cta, warp / 4, threadIdx.x % kWarpgroupThreads);
    }
}

}  // namespace deep_gemm
