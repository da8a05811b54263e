// A launch on the program's standard input. Needs kernels/gemm_plan.cuh.
#pragma once

struct Launch {
    unsigned index;  // of its case
    deep_gemm::GemmParams params{};
    unsigned grid;

    // The next launch's words, into this one, or false.
    bool read() {
        auto& tiles = params.tiles;
        return std::scanf("%u %u %u %u %u %u %u %u %u %u %u %u", &index, &params.m, &params.n, &params.k, &tiles.clusters_m,
                          &tiles.clusters_n, &tiles.band, &tiles.band_on_m, &tiles.edge_first, &tiles.edge_last, &tiles.edge_on_m,
                          &grid) == 12;
    }
};
