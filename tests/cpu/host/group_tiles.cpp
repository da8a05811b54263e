// The tiles of groups over a grid; compiled by tests/cpu/test_group_tiles.py.
#include "control.hpp"
#include "deep_gemm/scheduler/groups.cuh"

namespace deep_gemm::scheduler {

// Prints a tile: the CTA's cluster and rank; its place; its group, rows, whether it is idle; of K the extent and first scale.
template <class Tile>
void print(const Tile& tile, unsigned cluster, unsigned rank, uint32_t k, uint32_t first_scale) {
    std::printf("%u %u %u %u %u ", cluster, rank, tile.cluster_m, tile.cluster_n, tile.group);
    std::printf("%u %u %u %d %u %u ", tile.first, tile.end, tile.stored_end, tile.idle, k, first_scale);
}

template <uint32_t kGrouping, class S>
void walk_tiles(const WalkParams& walk, const GroupParams& groups, unsigned grid) {
    for (unsigned cluster = 0; cluster < grid; ++cluster) {
        for (unsigned rank = 0; rank < S::kSharers; ++rank) {
            if constexpr (kGrouping == kLabels) {
                for (Labels<S> tile(walk, groups, cluster, grid, rank); tile.next();) print(tile, cluster, rank, 0, 0);
            } else {
                for (Groups<kGrouping, S> tile(walk, groups, cluster, grid, rank); tile.next();) {
                    print(tile, cluster, rank, tile.k, tile.first_scale);
                }
            }
        }
    }
    std::printf("\n");
}

template <class S>
void of_kind(unsigned kind, const WalkParams& walk, const GroupParams& groups, unsigned grid) {
    if (kind == kLabels) walk_tiles<kLabels, S>(walk, groups, grid);
    if (kind == kOffsets) walk_tiles<kOffsets, S>(walk, groups, grid);
    if (kind == kMasked) walk_tiles<kMasked, S>(walk, groups, grid);
    if (kind == kBatched) walk_tiles<kBatched, S>(walk, groups, grid);
    if (kind == kAlongK) walk_tiles<kAlongK, S>(walk, groups, grid);
}

template <uint32_t kTokens>
bool of_tokens(unsigned tokens, unsigned sharers, unsigned swapped, unsigned kind, const WalkParams& walk, const GroupParams& groups,
               unsigned grid) {
    if (tokens != kTokens) return false;
    if (sharers == 1) swapped ? of_kind<Shape<kTokens, 1, true>>(kind, walk, groups, grid) : of_kind<Shape<kTokens, 1, false>>(kind, walk, groups, grid);
    else swapped ? of_kind<Shape<kTokens, 2, true>>(kind, walk, groups, grid) : of_kind<Shape<kTokens, 2, false>>(kind, walk, groups, grid);
    return true;
}

}  // namespace deep_gemm::scheduler

int main() {
    using namespace deep_gemm::scheduler;
    WalkParams walk{};
    GroupParams groups{};
    unsigned kind, tokens, sharers, swapped, grid, words;
    while (std::scanf("%u %u %u %u %u %u %u %u %u %u %u %u %u %u", &kind, &tokens, &sharers, &swapped, &walk.clusters_m, &walk.clusters_n,
                      &walk.band, &walk.band_on_m, &grid, &groups.count, &groups.tokens, &groups.alignment, &groups.clears, &words) == 14) {
        std::vector<int> of(words);
        for (int& word : of) std::scanf("%d", &word);
        groups.of = of.data();
        const auto run = [&](auto... call) { return (call(tokens, sharers, swapped, kind, walk, groups, grid) || ...); };
        if (!run(of_tokens<8>, of_tokens<24>, of_tokens<64>, of_tokens<72>, of_tokens<128>, of_tokens<192>, of_tokens<256>)) return 1;
    }
}
