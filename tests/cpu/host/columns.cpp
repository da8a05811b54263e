// Which rows and columns a tile has along the axes of the MMA, and which scales of B they need; compiled by
// tests/cpu/test_columns.py.
#include <stdio.h>

#include "one_thread.hpp"
#include "deep_gemm/epilogue/ops.cuh"

#include "configs.inc"  // DG_FOR_EACH_CONFIG
#include "ctas.hpp"

namespace deep_gemm {

// One line, of every tile: its first row along mma_m, its columns along mma_n, the scale blocks of their two parts.
template <class Config>
void show(const Launch& launch) {
    using Traits = GemmTraits<Config>;
    const auto params = launch.params_of_kernel<typename Traits::Params>();
    for_each_cta<Traits>(launch, params, [](const CtaContext<Traits>& cta) {
        if (cta.rank_k > 0) return;
        auto tile = cta.tile_scheduler();
        tile.next();
        const auto mma_n = cta.mma_n_range(tile);
        printf("%u ", cta.mma_m_idx(tile));
        for (uint32_t offset = 0; offset < Traits::kMmaTileN; ++offset) printf("%u ", mma_n.at(offset));
        printf("%u %u ", cta.scale_block_n(tile, 0), cta.scale_block_n(tile, 1));
    });
    printf("\n");
}

#define SHOW(index, Config) show<Config>,
static void (*const kShow[])(const Launch&) = {DG_FOR_EACH_CONFIG(SHOW)};

}  // namespace deep_gemm

int main() {
    for (deep_gemm::Launch launch; launch.read();) deep_gemm::kShow[launch.index](launch);
}
