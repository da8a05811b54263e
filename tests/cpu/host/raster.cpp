// The order of tiles over a grid; compiled by tests/cpu/test_scheduler.py.
#include <stdio.h>

#include "cuda.hpp"
#include "deep_gemm/scheduler/dense.cuh"

int main() {
    using namespace deep_gemm;
    scheduler::TileSchedulerParams params;
    auto& residue = params.residue;
    unsigned grid;
    while (scanf("%u %u %u %u %u %u %u %u", &params.m_clusters, &params.n_clusters, &params.swizzle_width, &params.raster_along_n,
                 &residue.head, &residue.tail, &residue.in_m, &grid) == 8) {
        for (unsigned cluster = 0; cluster < grid; ++cluster) {
            for (scheduler::DenseTileScheduler tile(params, cluster, grid); tile.next();) {
                printf("%u %u %u ", cluster, tile.m_cluster, tile.n_cluster);
            }
        }
        printf("\n");
    }
}
