// The tiles of products whose tokens, or K, belong to groups that only the device knows.
//
// A cluster has its tiles in one group at a time, and each of its CTAs walks alike.
#pragma once
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/scheduler/band.cuh"

namespace deep_gemm::scheduler {

// How tokens, or K, belong to groups: see Grouping in problem.py.
enum Grouping : uint32_t { kUngrouped, kLabels, kOffsets, kMasked, kBatched, kAlongK };

// What the host hands over.
struct GroupParams {
    const int* of;       // labels of rows, or of each group: its end, its count of rows, or its extent along K
    uint32_t count;      // groups
    uint32_t tokens;     // all rows of A, or those of each group
    uint32_t alignment;  // rows of a labelled block, or where groups begin
    uint32_t clears;     // 1: rows between groups, or groups of no extent along K, become zeros
};

constexpr uint32_t kNone = ~0u;  // no group

// A cluster's place, and what of its group a CTA needs.
struct GroupTile : Place {
    uint32_t group = kNone;              // whose weights, or whose D, it is of
    uint32_t first = 0;                  // row of A and D that tiles' rows are counted from
    uint32_t end = 0, stored_end = 0;    // of the tokens that are multiplied, and of the rows of D that are written, the others as zeros
    uint32_t k = 0;                      // extent along K, where it is a group's; else 0 where no CTA of the cluster has tokens
    uint32_t first_scale = 0;            // along K, of the group's
};

// Numbers of a tile that are the same in every kernel of a kind.
template <uint32_t kTileTokens, uint32_t kClusterTokens, bool kSwapped>
struct Shape {
    static constexpr uint32_t kTokens = kTileTokens;                    // of a tile
    static constexpr uint32_t kSharers = kClusterTokens;                // tiles of a cluster with tokens of their own
    static constexpr uint32_t kTogether = kTileTokens * kClusterTokens;  // tokens of a cluster

    // Takes the index-th place of a product with so many clusters along its tokens.
    static __device__ __forceinline__ void take(Place& place, const WalkParams& walk, uint32_t index, uint32_t along_tokens) {
        if constexpr (kSwapped) place.take(walk, index, walk.clusters_m, along_tokens);
        else place.take(walk, index, along_tokens, walk.clusters_n);
    }
    static __device__ __forceinline__ uint32_t of_weights(const WalkParams& walk) { return kSwapped ? walk.clusters_m : walk.clusters_n; }
    static __device__ __forceinline__ uint32_t of_tokens(const Place& place) { return kSwapped ? place.cluster_n : place.cluster_m; }
};

// Group after group, each in bands: cluster t of G has every G-th tile, counted over all groups.
template <uint32_t kGrouping, class S>
struct Groups : GroupTile {
    const WalkParams& walk;
    const GroupParams& groups;
    uint32_t next_index, num_clusters;  // the index counted from the group's first tile
    uint32_t tiles = 0;                 // clusters of tiles of the group

    __device__ __forceinline__ Groups(const WalkParams& walk, const GroupParams& groups, uint32_t cluster, uint32_t num_clusters, uint32_t)
        : walk(walk), groups(groups), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        while (next_index >= tiles) {
            next_index -= tiles;
            group = following();
            if (group >= groups.count) return false;
            enter();
        }
        S::take(*this, walk, next_index, clusters_of_tokens());
        if constexpr (kGrouping != kAlongK) k = kGrouping != kOffsets || first + S::of_tokens(*this) * S::kTogether < end;
        next_index += num_clusters;
        return true;
    }

private:
    __device__ __forceinline__ uint32_t clusters_of_tokens() const { return ceil_div(stored_end - first, S::kTogether); }

    // The next group that may have tiles: those without tokens are passed over, a warp's lanes looking at one each.
    __device__ __forceinline__ uint32_t following() const {
        if constexpr (kGrouping == kMasked) {
            return ptx::first_of(group + 1, groups.count, [this](uint32_t i) { return groups.of[i] > 0; });
        } else if constexpr (kGrouping == kOffsets) {
            return ptx::first_of(group + 1, groups.count, [this](uint32_t i) { return groups.of[i] > int(begin_of(i)); });
        } else {
            return group + 1;
        }
    }

    __device__ __forceinline__ uint32_t begin_of(uint32_t i) const { return begin_after(i == 0 ? 0 : groups.of[i - 1]); }
    __device__ __forceinline__ uint32_t begin_after(int before) const {
        return round_up(before < 0 ? 0 : within(before), groups.alignment);
    }
    __device__ __forceinline__ uint32_t within(uint32_t row) const { return row < groups.tokens ? row : groups.tokens; }

    __device__ __forceinline__ void enter() {
        if constexpr (kGrouping == kOffsets) {
            const uint32_t after = groups.of[group];
            first = within(begin_after(group == 0 ? 0 : groups.of[group - 1]));
            end = within(after);
            stored_end = groups.clears ? within(round_up(after, groups.alignment)) : end;
        } else {
            end = stored_end = kGrouping == kMasked ? within(groups.of[group]) : groups.tokens;
        }
        if constexpr (kGrouping == kAlongK) {
            first_scale += ceil_div(k, 128);
            const int extent = groups.of[group];
            k = extent < 0 ? 0 : extent;
        }
        tiles = clusters_of_tokens() * S::of_weights(walk);
        if constexpr (kGrouping == kAlongK) tiles = k > 0 || groups.clears ? tiles : 0;
    }
};

// All blocks of rows in bands, whose labels say where they belong; blocks of two groups in a cluster are two tiles of it, in
// turn, in each of which one CTA has no tokens.
template <class S>
struct Labels : GroupTile {
    const WalkParams& walk;
    const GroupParams& groups;
    uint32_t next_index, num_clusters;
    uint32_t rank;  // of the CTA, among those with tokens of their own
    uint32_t other = kNone;  // the second of a cluster's groups, still to be had

    __device__ __forceinline__ Labels(const WalkParams& walk, const GroupParams& groups, uint32_t cluster, uint32_t num_clusters,
                                      uint32_t rank)
        : walk(walk), groups(groups), next_index(cluster), num_clusters(num_clusters), rank(rank) {}

    __device__ __forceinline__ bool next() {
        if (S::kSharers > 1 && other != kNone) {
            enter(other);
            other = kNone;
            return true;
        }
        const uint32_t along_tokens = ceil_div(groups.tokens, S::kTogether), count = along_tokens * S::of_weights(walk);
        // Blocks of padding are passed over, a warp's lanes looking at one tile each.
        const uint32_t left = next_index < count ? ceil_div(count - next_index, num_clusters) : 0;
        const uint32_t passed = ptx::first_of(0, left, [&](uint32_t i) {
            Place place;
            S::take(place, walk, next_index + i * num_clusters, along_tokens);
            return label_of(place, 0) != kNone || (S::kSharers > 1 && label_of(place, 1) != kNone);
        });
        if (passed >= left) return false;
        S::take(*this, walk, next_index + passed * num_clusters, along_tokens);
        next_index += (passed + 1) * num_clusters;
        const uint32_t one = label_of(*this, 0), two = S::kSharers > 1 ? label_of(*this, 1) : one;
        if (one != two && one != kNone && two != kNone) other = two;
        enter(one != kNone ? one : two);
        return true;
    }

private:
    static __device__ __forceinline__ uint32_t row_of(const Place& place, uint32_t sharer) {
        return (S::of_tokens(place) * S::kSharers + sharer) * S::kTokens;
    }

    // The group of a CTA's block.
    __device__ __forceinline__ uint32_t label_of(const Place& place, uint32_t sharer) const {
        const uint32_t row = row_of(place, sharer) / groups.alignment * groups.alignment;
        if (row >= groups.tokens) return kNone;
        const uint32_t label = groups.of[row];
        return label < groups.count ? label : kNone;
    }

    // 64 rows whose first is padding are not multiplied: zeros are stored.
    __device__ __forceinline__ bool has_tokens(uint32_t row) const { return row < groups.tokens && groups.of[row] >= 0; }

    __device__ __forceinline__ void enter(uint32_t of) {
        group = of;
        const uint32_t row = row_of(*this, rank);
        end = stored_end = 0;
        if (S::kSharers == 1 || label_of(*this, rank) == of) {
            stored_end = row + S::kTokens < groups.tokens ? row + S::kTokens : groups.tokens;
            end = stored_end;
            if (S::kTokens > 64 && end > row + 64 && !has_tokens(row + 64)) end = row + 64;
            if (S::kTokens <= 64 && !has_tokens(row / 64 * 64)) end = 0;
        }
        k = S::kSharers > 1 || end > 0;
    }
};

}  // namespace deep_gemm::scheduler
