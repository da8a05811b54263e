// OperandLoader: one CTA's TMA loads of A or of B for a k-block. CTAs of a cluster that need the same tile of an operand load a
// share of it each and multicast the share to all of them.
#pragma once
#include "deep_gemm/gemm/cta.cuh"
#include "deep_gemm/ptx/tma.cuh"

namespace deep_gemm {

template <class Traits, bool kIsA>
struct OperandLoader {
    using Tile = typename Traits::Tile;
    static constexpr uint32_t kSharers = kIsA ? Traits::kClusterN : Traits::kClusterM;
    static constexpr uint32_t kExtent = kIsA ? Traits::kBlockM : Traits::kNHead, kShare = kExtent / kSharers;
    static constexpr uint32_t kTailShare = kIsA ? 0 : Traits::kNTail / kSharers;
    static constexpr bool kIsMnMajor = kIsA ? Traits::kAIsMnMajor : Traits::kBIsMnMajor;
    static constexpr bool kIsStacked = kIsA ? Traits::kIsStackedA : Traits::kIsStackedB;
    static_assert(!kIsMnMajor || kSharers == 1 || kShare % mma::kBoxMn == 0, "a share is whole boxes");

    // Predicated loads: the tile comes in several boxes of kLoadBox rows; boxes entirely out of bounds are skipped, never the first.
    static constexpr uint32_t kLoadBox = kIsA ? Traits::kLoadBoxM : Traits::kLoadBoxN, kBox = kLoadBox > 0 ? kLoadBox : kShare;
    static_assert(kShare % kBox == 0 && (kLoadBox == 0 || !kIsMnMajor));

    const CtaContext<Traits>& cta;
    const TensorMap* map;
    uint32_t rank;
    uint16_t multicast_mask;

    __device__ __forceinline__ OperandLoader(const CtaContext<Traits>& cta, const TensorMap* map) : cta(cta), map(map) {
        rank = kIsA ? cta.rank_n : cta.rank_m;
        multicast_mask = kIsA ? (Traits::kClusterN > 1 ? 1u | 1u << Traits::kClusterM : 1u) << (cta.multicast_base + cta.rank_m)
                              : ((1u << Traits::kClusterM) - 1) << (cta.multicast_base + cta.rank_n * Traits::kClusterM);
    }

    // Called before the loads of a tile: with groups along K each group has its own tensor map.
    __device__ __forceinline__ void begin_tile(const Tile& tile) {
        if constexpr (Traits::kIsKGrouped) {
            const TensorMap* group_map = cta.params.group_maps + tile.group * 2 + (kIsA ? 0 : 1);
            if (group_map != map) ptx::tensor_map_acquire(group_map);
            map = group_map;
        }
    }

    __device__ __forceinline__ void load(uint32_t stage, const Tile& tile, uint32_t k_block) const {
        const uint32_t smem = kIsA ? cta.stage_a(stage) : cta.stage_b(stage);
        const uint32_t share = rank * kShare, tail = rank * kTailShare;
        const uint32_t first = first_row(tile) + share, k = (cta.k_range_of(tile).first + k_block) * Traits::kBlockK;
        if constexpr (kIsMnMajor) {
#pragma unroll
            for (uint32_t i = 0; i < kShare; i += mma::kBoxMn) {
                load_box(map, tile, smem + (share + i) * mma::kRowBytes, stage, first + i, k);
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < kShare; i += kBox) {
                if (share + i < loaded_rows(tile)) load_box(map, tile, smem + (share + i) * mma::kRowBytes, stage, k, first + i);
            }
        }
        if constexpr (kTailShare > 0) {
            load_box(&cta.params.map_b_tail, tile, smem + (kExtent + tail) * mma::kRowBytes, stage, k, cta.n_range(tile).tail + tail);
        }
    }

    // Bytes of a stage that predicated loads leave out.
    __device__ __forceinline__ uint32_t skipped_bytes(const Tile& tile) const {
        return (kExtent - loaded_rows(tile)) * mma::kRowBytes;
    }

private:
    __device__ __forceinline__ uint32_t first_row(const Tile& tile) const { return kIsA ? cta.m_idx(tile) : cta.n_idx(tile); }

    // Rows of the tile in boxes that are loaded: those with a row in bounds, and the first one.
    __device__ __forceinline__ uint32_t loaded_rows(const Tile& tile) const {
        if constexpr (kLoadBox == 0) return kExtent;
        const uint32_t first = first_row(tile), end = kIsA ? cta.m_end(tile) : cta.n();
        const uint32_t rows = first + kBox < end ? round_up(end - first, kBox) : kBox;
        return rows < kExtent ? rows : kExtent;
    }

    __device__ __forceinline__ void load_box(const TensorMap* box, const Tile& tile, uint32_t smem, uint32_t stage, uint32_t inner,
                                             uint32_t outer) const {
        const uint32_t full = cta.barriers.full(stage);
        if constexpr (kIsStacked && kSharers == 1) ptx::tma_load(smem, box, full, inner, outer, int(cta.group(tile)));
        else if constexpr (kIsStacked) ptx::tma_load_multicast(smem, box, full, inner, outer, int(cta.group(tile)), multicast_mask);
        else if constexpr (kSharers == 1) ptx::tma_load(smem, box, full, inner, outer);
        else ptx::tma_load_multicast(smem, box, full, inner, outer, multicast_mask);
    }
};

}  // namespace deep_gemm
