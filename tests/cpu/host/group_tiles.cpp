// Tiles of grouped products over a grid; compiled by tests/cpu/test_group_tiles.py. With WITH_LANES a warp has its 32 lanes, else
// it is one thread.
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#ifdef WITH_LANES
#include "lanes.hpp"
#else
#include "one_thread.hpp"
#endif
#include "deep_gemm/scheduler/grouped.cuh"

namespace deep_gemm::scheduler {

// Words of the tiles of one CTA, one tile after the other.
using Words = std::vector<uint32_t>;
constexpr uint32_t kTileWords = 8;

template <class Scheduler>
Words visit(const TileSchedulerParams& params, const GroupParams& groups, uint32_t cluster, uint32_t grid, uint32_t rank) {
    Words words;
    for (Scheduler tile(params, groups, cluster, grid, rank); tile.next();) {
        words.insert(words.end(), {tile.m_cluster, tile.n_cluster, tile.group, tile.m_begin, tile.m_end, tile.m_store_end, tile.k,
                                   tile.scale_begin});
    }
    return words;
}

// What `visit` returns to a warp, whose lanes must agree.
template <class Visit>
Words visit_by_warp(Visit visit) {
#ifdef WITH_LANES
    Words words[32];
    run_grid(1, 32, 1, [&] { words[threadIdx.x] = visit(); });
    for (const Words& lane : words) {
        if (lane != words[0]) exit(2);
    }
    return words[0];
#else
    return visit();
#endif
}

// One line: for every tile of every CTA the cluster, the CTA's rank along M and the tile's words.
template <class Scheduler>
void print_tiles(const TileSchedulerParams& params, const GroupParams& groups, uint32_t cluster_m, uint32_t grid) {
    for (uint32_t cluster = 0; cluster < grid; ++cluster) {
        for (uint32_t rank = 0; rank < cluster_m; ++rank) {
            const Words words = visit_by_warp([&] { return visit<Scheduler>(params, groups, cluster, grid, rank); });
            for (uint32_t i = 0; i < words.size(); ++i) {
                if (i % kTileWords == 0) printf("%u %u ", cluster, rank);
                printf("%u ", words[i]);
            }
        }
    }
    printf("\n");
}

// --- the scheduler of a launch --------------------------------------------------------------------

struct Launch {
    GroupKind kind;
    uint32_t block_m, cluster_m, grid;
    TileSchedulerParams params{};
    GroupParams groups{};
};

// Whether the launch is of this kind; prints its tiles then.
template <uint32_t kBlockM, uint32_t kClusterM, GroupKind kKind>
bool run(const Launch& launch) {
    if (launch.kind != kKind) return false;
    using Scheduler = typename Conditional<kKind == GroupKind::kLabels, LabelTileScheduler<kBlockM, kClusterM>,
                                           GroupTileScheduler<kKind, kBlockM, kClusterM>>::Type;
    print_tiles<Scheduler>(launch.params, launch.groups, kClusterM, launch.grid);
    return true;
}

template <uint32_t kBlockM, uint32_t kClusterM>
bool run(const Launch& launch) {
    if (launch.block_m != kBlockM || launch.cluster_m != kClusterM) return false;
    return run<kBlockM, kClusterM, GroupKind::kLabels>(launch) || run<kBlockM, kClusterM, GroupKind::kOffsets>(launch) ||
           run<kBlockM, kClusterM, GroupKind::kMasked>(launch) || run<kBlockM, kClusterM, GroupKind::kBatched>(launch) ||
           run<kBlockM, kClusterM, GroupKind::kAlongK>(launch);
}

template <uint32_t... kBlockM>
bool run_any(const Launch& launch) {
    return ((run<kBlockM, 1>(launch) || run<kBlockM, 2>(launch)) || ...);
}

}  // namespace deep_gemm::scheduler

int main() {
    using namespace deep_gemm::scheduler;
    Launch launch;
    auto& params = launch.params;
    auto& groups = launch.groups;
    params.m_clusters = 77;  // not read
    params.residue = {5, 7, 1};
    unsigned kind, num_words;
    while (scanf("%u %u %u %u %u %u %u %u %u %u %u %u", &kind, &launch.block_m, &launch.cluster_m, &params.n_clusters,
                 &params.swizzle_width, &params.raster_along_n, &launch.grid, &groups.num_groups, &groups.m, &groups.alignment,
                 &groups.zero_fill, &num_words) == 12) {
        launch.kind = GroupKind(kind);
        std::vector<int> layout(num_words);
        for (int& word : layout) {
            if (scanf("%d", &word) != 1) return 1;
        }
        groups.grouped_layout = layout.data();
        if (!run_any<8, 24, 64, 72, 128, 192, 256>(launch)) return 1;
    }
}
