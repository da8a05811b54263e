// The order of tiles over a grid; compiled by tests/cpu/test_scheduler.py.
#include "deep_gemm/scheduler/dense.cuh"

int main() {
    using namespace deep_gemm;
    scheduler::WalkParams params;
    unsigned grid;
    while (std::scanf("%u %u %u %u %u %u %u %u", &params.clusters_m, &params.clusters_n, &params.band, &params.band_on_m,
                      &params.edge_first, &params.edge_last, &params.edge_on_m, &grid) == 8) {
        for (unsigned cluster = 0; cluster < grid; ++cluster) {
            for (scheduler::Dense tile(params, cluster, grid); tile.next();) {
                std::printf("%u %u %u ", cluster, tile.cluster_m, tile.cluster_n);
            }
        }
        std::printf("\n");
    }
}
