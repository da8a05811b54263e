// DStore: boxes of results from shared memory to D: by TMA, or row by row where a box would overwrite another group's rows.
#pragma once
#include "deep_gemm/epilogue/fragment_to_smem.cuh"
#include "deep_gemm/gemm/cta.cuh"
#include "deep_gemm/ptx/tma.cuh"

namespace deep_gemm::epilogue {

template <class Traits>
struct DStore {
    using Out = typename Traits::Out;

    const CtaContext<Traits>& cta;
    uint32_t thread;
    // Of the tile, with groups.
    uint32_t group = 0, tile_m_end = 0, tile_m_store_end = 0;

    __device__ __forceinline__ void begin_tile(const typename Traits::Tile& tile) {
        if constexpr (Traits::kIsGrouped) {
            group = cta.group(tile), tile_m_end = cta.m_end(tile), tile_m_store_end = cta.m_store_end(tile);
        }
    }
    __device__ __forceinline__ uint32_t m_end() const { return Traits::kIsGrouped ? tile_m_end : cta.m(); }
    __device__ __forceinline__ uint32_t m_store_end() const { return Traits::kIsGrouped ? tile_m_store_end : cta.m(); }

    // Whether a box of `rows` rows holds rows that are not valid rows of this tile.
    __device__ __forceinline__ bool is_ragged(uint32_t m, uint32_t rows) const { return Traits::kHasRaggedM && m + rows > m_end(); }

    // Stores a box whole; called by one thread.
    __device__ __forceinline__ void store_box(const TensorMap* map, uint32_t smem, uint32_t n, uint32_t m) const {
        if constexpr (Traits::kReduceAdds && Traits::kIsStackedD) ptx::tma_reduce_add(map, smem, n, m, int(group));
        else if constexpr (Traits::kReduceAdds) ptx::tma_reduce_add(map, smem, n, m);
        else if constexpr (Traits::kIsStackedD) ptx::tma_store(map, smem, n, m, int(group));
        else ptx::tma_store(map, smem, n, m);
    }

    // Stores the rows of a box up to m_store_end, 16 bytes a thread; those from m_end on as zeros. Called by all threads.
    template <uint32_t kRowBytes>
    __device__ __forceinline__ void store_rows(uint32_t smem, uint32_t first_n, uint32_t first_m, uint32_t rows) const {
        constexpr uint32_t kElements = 16 / sizeof(Out), kUnits = kRowBytes / 16;
        Out* d = static_cast<Out*>(cta.params.d) + (Traits::kIsStackedD ? group * cta.params.d_stride_group : 0);
        for (uint32_t i = thread; i < rows * kUnits; i += kWarpgroupThreads) {
            const uint32_t m = first_m + i / kUnits, n = first_n + i % kUnits * kElements;
            if (m >= m_store_end() || n >= cta.n()) continue;
            int words[4] = {};
            if (m < m_end()) ptx::load_shared(smem + swizzle<kRowBytes>(i * 16), words);
            ptx::store_global(d + m * cta.params.d_stride + n, words);
        }
    }
};

// With StoreMode::kReduceAdd: brings the tile's boxes of D to L2, one with every second of the tile's last k-blocks. Called by
// the elected lane that loads operands.
// NOTE: earlier, D would drive A and B out of L2; all at once, the loads of A and B would wait behind it.
template <class Traits>
__device__ __forceinline__ void prefetch_d(const CtaContext<Traits>& cta, const typename Traits::Tile& tile, uint32_t k_block) {
    constexpr uint32_t kBoxN = Traits::kStoreBoxN, kAcross = Traits::kBlockN / kBoxN, kBoxes = Traits::kBlockM / mma::kSliceM * kAcross;
    const uint32_t left = cta.k_range_of(tile).count - k_block;
    if (left % 2 != 0 || left / 2 > kBoxes) return;
    const uint32_t box = kBoxes - left / 2;
    const uint32_t m = cta.m_idx(tile) + box / kAcross * mma::kSliceM, n = cta.n_range(tile).at(box % kAcross * kBoxN);
    if (m >= cta.m_end(tile) || n >= cta.n()) return;
    if constexpr (Traits::kIsStackedD) ptx::tma_prefetch(&cta.params.map_d, n, m, int(cta.group(tile)));
    else ptx::tma_prefetch(&cta.params.map_d, n, m);
}

}  // namespace deep_gemm::epilogue
