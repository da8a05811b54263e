// The tiles of groups over a grid; compiled by tests/cpu/test_group_tiles.py.
#ifdef WITH_LANES
#include "lanes.hpp"
#else
#include "control.hpp"
#endif
#include "deep_gemm/scheduler/groups.cuh"

namespace deep_gemm::scheduler {

using Words = std::vector<unsigned>;

// What walk() returns: to one thread, or to each of the 32 lanes of a warp, which must agree.
template <class Walk>
Words by_warp(Walk walk) {
#ifdef WITH_LANES
    Words of_lane[32];
    run_grid(1, 32, 1, [&] { of_lane[threadIdx.x] = walk(); });
    for (const Words& words : of_lane) {
        if (words != of_lane[0]) std::exit(2);
    }
    return of_lane[0];
#else
    return walk();
#endif
}

// Tells of a tile its place; its group, rows, whether it is idle; of K the extent and first scale.
template <bool kAlong>
void tell(Words& words, const GroupTile& tile) {
    const uint32_t idle = !kAlong && tile.k == 0, k = kAlong ? tile.k : 0;
    for (uint32_t word : {tile.cluster_m, tile.cluster_n, tile.group, tile.first, tile.end, tile.stored_end, idle, k, tile.first_scale}) {
        words.push_back(word);
    }
}

template <uint32_t kGrouping, class S>
Words tiles_of(const WalkParams& walk, const GroupParams& groups, unsigned cluster, unsigned grid, unsigned rank) {
    Words words;
    if constexpr (kGrouping == kLabels) {
        for (Labels<S> tile(walk, groups, cluster, grid, rank); tile.next();) tell<false>(words, tile);
    } else {
        for (Groups<kGrouping, S> tile(walk, groups, cluster, grid, rank); tile.next();) tell<kGrouping == kAlongK>(words, tile);
    }
    return words;
}

// One line: of every tile the CTA's cluster and rank, and what is told of it.
template <uint32_t kGrouping, class S>
void walk_tiles(const WalkParams& walk, const GroupParams& groups, unsigned grid) {
    for (unsigned cluster = 0; cluster < grid; ++cluster) {
        for (unsigned rank = 0; rank < S::kSharers; ++rank) {
            const Words words = by_warp([&] { return tiles_of<kGrouping, S>(walk, groups, cluster, grid, rank); });
            for (unsigned i = 0; i < words.size(); ++i) {
                if (i % 9 == 0) std::printf("%u %u ", cluster, rank);
                std::printf("%u ", words[i]);
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
    if (sharers == 1 && swapped) of_kind<Shape<kTokens, 1, true>>(kind, walk, groups, grid);
    if (sharers == 1 && !swapped) of_kind<Shape<kTokens, 1, false>>(kind, walk, groups, grid);
    if (sharers == 2 && swapped) of_kind<Shape<kTokens, 2, true>>(kind, walk, groups, grid);
    if (sharers == 2 && !swapped) of_kind<Shape<kTokens, 2, false>>(kind, walk, groups, grid);
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
