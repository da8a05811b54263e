// Where the CTAs of a grid stand, and what they load; compiled by tests/cpu/test_cluster.py.
#include <stdio.h>

#include "one_thread.hpp"

namespace deep_gemm::ptx {

// Prints each CTA that a box reaches, which operand it is of, where it lands, and what it holds.
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, uint16_t cta_mask) {
    for (int to = 0; to < 16; ++to) {
        if (cta_mask >> to & 1) printf("%d %d %u %u %d %d ", to, int(map->words[0]), smem, barrier, inner, outer);
    }
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer) {
    tma_load_multicast(smem, map, barrier, inner, outer, 1 << rank);
}
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int, uint16_t cta_mask) {
    tma_load_multicast(smem, map, barrier, inner, outer, cta_mask);
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int) {
    tma_load_multicast(smem, map, barrier, inner, outer, 1 << rank);
}
inline void tensor_map_acquire(const TensorMap*) {}

}  // namespace deep_gemm::ptx

#include "deep_gemm/epilogue/ops.cuh"
#include "deep_gemm/gemm/load.cuh"

#include "configs.inc"  // DG_FOR_EACH_CONFIG
#include "ctas.hpp"

namespace deep_gemm {

constexpr uint32_t kStage = 1;

// Three lines: every CTA's tiles and k-blocks; the loads of the first cluster, for its middle tile, of the last k-block of each
// part of K into stage kStage; where A, B and the barrier of that stage lie.
template <class Config>
void show(const Launch& launch) {
    using Traits = GemmTraits<Config>;
    const auto params = launch.params_of_kernel<typename Traits::Params>();
    for_each_cta<Traits>(launch, params, [](const CtaContext<Traits>& cta) {
        for (auto tile = cta.tile_scheduler(); tile.next();) {
            const auto n = cta.n_range(tile);
            const KRange k = cta.k_range_of(tile);
            printf("%u %u %u %u %u %u ", blockIdx.x, cta.m_idx(tile), n.head, n.tail, k.first, k.count);
        }
    });
    printf("\n");
    for (blockIdx.x = 0; blockIdx.x < Traits::kClusterSize; ++blockIdx.x) {
        ptx::rank = blockIdx.x;
        const CtaContext<Traits> cta(params, 0);
        if (cta.k_range.count == 0) continue;
        auto tile = cta.tile_scheduler();
        for (uint32_t i = 0; i <= params.scheduler.m_clusters * params.scheduler.n_clusters / 2; ++i) tile.next();
        OperandLoader<Traits, true>(cta, &params.map_a).load(kStage, tile, cta.k_range.count - 1);
        OperandLoader<Traits, false>(cta, &params.map_b).load(kStage, tile, cta.k_range.count - 1);
    }
    printf("\n");
    ptx::rank = blockIdx.x = 0;
    const CtaContext<Traits> cta(params, 0);
    printf("%u %u %u\n", cta.stage_a(kStage), cta.stage_b(kStage), cta.barriers.full(kStage));
}

#define SHOW(index, Config) show<Config>,
static void (*const kShow[])(const Launch&) = {DG_FOR_EACH_CONFIG(SHOW)};

}  // namespace deep_gemm

int main() {
    deep_gemm::Launch launch;
    launch.params.map_a.words[0] = 0;
    launch.params.map_b.words[0] = 1;
    launch.params.map_b_tail.words[0] = 2;
    while (launch.read()) deep_gemm::kShow[launch.index](launch);
}
