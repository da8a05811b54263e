// Where the CTAs of a grid stand, and what they load; compiled by tests/cpu/test_cluster.py.
#include "control.hpp"
#define tma_load device_tma_load
#define tma_load_multicast device_tma_load_multicast
#include "deep_gemm/ptx/tma.cuh"
#undef tma_load
#undef tma_load_multicast

namespace deep_gemm::ptx {

static uint32_t rank;
inline uint32_t cluster_rank() { return rank; }

// Prints each CTA that a box reaches, which operand it is of, where it lands, and what it holds.
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, uint16_t mask) {
    for (int to = 0; to < 16; ++to) {
        if (mask >> to & 1) std::printf("%d %d %u %u %d %d ", to, int(map->words[0]), smem, barrier, inner, outer);
    }
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer) {
    tma_load_multicast(smem, map, barrier, inner, outer, 1 << rank);
}
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int, uint16_t mask) {
    tma_load_multicast(smem, map, barrier, inner, outer, mask);
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int) {
    tma_load_multicast(smem, map, barrier, inner, outer, 1 << rank);
}

}  // namespace deep_gemm::ptx

#include "deep_gemm/kernels/gemm_producer.cuh"

namespace deep_gemm {

constexpr uint32_t kStage = 1;

// Three lines: every CTA's tiles and part of K; the loads of the first cluster, for its tile at half the walk, of the
// last k-block of each part into stage kStage; where that stage's rows, columns and barrier lie.
template <class C>
void show(const GemmParams& params, uint32_t grid) {
    using P = Plan<C>;
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        ptx::rank = blockIdx.x % P::kCluster;
        const Cta<C> cta(params, 0);
        for (auto tile = cta.tiles(); tile.next();) {
            const Columns<C> columns = cta.columns(tile);
            std::printf("%u %u %u %u ", blockIdx.x, cta.row(tile), columns.main, columns.extra);
            std::printf("%u %u ", cta.part(tile).first, cta.part(tile).blocks);
        }
    }
    std::printf("\n");
    for (blockIdx.x = 0; blockIdx.x < P::kCluster; ++blockIdx.x) {
        ptx::rank = blockIdx.x;
        const Cta<C> cta(params, 0);
        if (cta.whole.blocks == 0) continue;
        auto tile = cta.tiles();
        for (uint32_t walked = 0; walked <= params.tiles.clusters_m * params.tiles.clusters_n / 2; ++walked) tile.next();
        OperandLoader<C, !C::kSwapped>(cta, &params.map_a).load(kStage, tile, cta.whole.blocks - 1);
        OperandLoader<C, C::kSwapped>(cta, &params.map_b).load(kStage, tile, cta.whole.blocks - 1);
    }
    std::printf("\n");
    ptx::rank = blockIdx.x = 0;
    const Cta<C> cta(params, 0);
    std::printf("%u %u %u\n", cta.stage_rows(kStage), cta.stage_columns(kStage), cta.barriers.full(kStage));
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)
#include "launch.hpp"

int main() {
    Launch launch;
    launch.params.map_a.words[0] = 0;
    launch.params.map_b.words[0] = 1;
    launch.params.map_extra.words[0] = 2;
    while (launch.read()) deep_gemm::show_case(launch.index, launch.params, launch.grid);
}
