// Which columns a tile has, and which scales they meet; compiled by tests/cpu/test_columns.py.
#include "control.hpp"

namespace deep_gemm::ptx {

static uint32_t rank;
inline uint32_t cluster_rank() { return rank; }

}  // namespace deep_gemm::ptx

#include "deep_gemm/kernels/gemm_plan.cuh"

namespace deep_gemm {

// One line, of every tile: its first row, the places of its columns, the scale blocks of its two parts.
template <class C>
void show(GemmParams& params, uint32_t grid) {
    using P = Plan<C>;
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        ptx::rank = blockIdx.x % P::kCluster;
        const Cta<C> cta(params, 0);
        if (cta.rank_k > 0) continue;
        auto tile = cta.tiles();
        tile.next();
        const Columns<C> columns = cta.columns(tile);
        std::printf("%u ", cta.row(tile));
        for (uint32_t offset = 0; offset < C::kBlockN; ++offset) std::printf("%u ", columns.at(offset));
        std::printf("%u %u ", cta.scale_block(tile, 0), cta.scale_block(tile, 1));
    }
    std::printf("\n");
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)
#include "launch.hpp"

int main() {
    for (Launch launch; launch.read();) deep_gemm::show_case(launch.index, launch.params, launch.grid);
}
