// Tile schedulers of grouped products: which rows of A, or which part of K, belong to which group is known only on the device.
// All CTAs of a cluster visit the same tiles, and a cluster works on one group at a time.
#pragma once
#include "deep_gemm/ptx/warp.cuh"
#include "deep_gemm/scheduler/raster.cuh"

namespace deep_gemm::scheduler {

// What the grouped layout says; class Grouping in problem/grouping.py has the meaning of each kind.
enum class GroupKind : uint32_t { kNone, kLabels, kOffsets, kMasked, kBatched, kAlongK };

// What the host passes.
struct GroupParams {
    const int* grouped_layout;  // kLabels: group of each row of A; else of each group its end, row count, or extent along K
    uint32_t num_groups;
    uint32_t m;           // rows of A, or of each A of a stack
    uint32_t alignment;   // rows of a labelled block, or what a group's first row is a multiple of
    uint32_t zero_fill;   // 1: rows between groups, or groups of no extent along K, are written as zeros
};

constexpr uint32_t kNoGroup = ~0u;

// A tile, and what a CTA needs to know of its group.
struct WorkTile : TileCoord {
    uint32_t group = kNoGroup;
    uint32_t m_begin = 0;      // row of A and D from which the group's tiles are counted
    uint32_t m_end = 0;        // end of the rows that are multiplied
    uint32_t m_store_end = 0;  // end of the rows of D that are written; those from m_end on as zeros
    uint32_t k = 0;            // kAlongK: the group's extent. Else 0 if no CTA of the cluster has valid rows
    uint32_t scale_begin = 0;  // kAlongK: the group's first column of scales
};

// All kinds but kLabels: group after group, each in the raster; cluster t of G takes every G-th tile, counted over all groups.
template <GroupKind kKind, uint32_t kBlockM, uint32_t kClusterM>
struct GroupTileScheduler : WorkTile {
    static constexpr uint32_t kClusterRows = kBlockM * kClusterM;

    const TileSchedulerParams& params;
    const GroupParams& groups;
    uint32_t next_index, num_clusters;  // next_index counts from the group's first tile
    uint32_t num_tiles = 0;             // of the group, in clusters

    __device__ __forceinline__ GroupTileScheduler(const TileSchedulerParams& params, const GroupParams& groups, uint32_t cluster,
                                                  uint32_t num_clusters, uint32_t)
        : params(params), groups(groups), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        while (next_index >= num_tiles) {
            next_index -= num_tiles;
            group = next_group();
            if (group >= groups.num_groups) return false;
            enter_group();
        }
        from_linear(params, next_index, m_clusters(), params.n_clusters);
        if constexpr (kKind != GroupKind::kAlongK) k = kKind != GroupKind::kOffsets || m_begin + m_cluster * kClusterRows < m_end;
        next_index += num_clusters;
        return true;
    }

private:
    __device__ __forceinline__ uint32_t m_clusters() const { return ceil_div(m_store_end - m_begin, kClusterRows); }

    // The next group that may have tiles. Each lane looks at one group, so a warp skips up to 32 empty groups at a time.
    __device__ __forceinline__ uint32_t next_group() const {
        if constexpr (kKind == GroupKind::kMasked) {
            return ptx::warp_find_first(group + 1, groups.num_groups, [this](uint32_t i) { return groups.grouped_layout[i] > 0; });
        } else if constexpr (kKind == GroupKind::kOffsets) {
            return ptx::warp_find_first(group + 1, groups.num_groups,
                                        [this](uint32_t i) { return groups.grouped_layout[i] > int(begin_of(i)); });
        } else {
            return group + 1;
        }
    }

    __device__ __forceinline__ uint32_t begin_of(uint32_t i) const {
        return begin_after(i == 0 ? 0 : groups.grouped_layout[i - 1]);
    }
    __device__ __forceinline__ uint32_t begin_after(int previous_end) const {
        return round_up(previous_end < 0 ? 0 : clamp_m(previous_end), groups.alignment);
    }
    __device__ __forceinline__ uint32_t clamp_m(uint32_t row) const { return row < groups.m ? row : groups.m; }

    __device__ __forceinline__ void enter_group() {
        if constexpr (kKind == GroupKind::kOffsets) {
            const uint32_t end = groups.grouped_layout[group];
            m_begin = clamp_m(begin_after(group == 0 ? 0 : groups.grouped_layout[group - 1]));
            m_end = clamp_m(end);
            m_store_end = groups.zero_fill ? clamp_m(round_up(end, groups.alignment)) : m_end;
        } else {
            m_end = m_store_end = kKind == GroupKind::kMasked ? clamp_m(groups.grouped_layout[group]) : groups.m;
        }
        if constexpr (kKind == GroupKind::kAlongK) {
            scale_begin += ceil_div(k, 128);
            const int extent = groups.grouped_layout[group];
            k = extent < 0 ? 0 : extent;
        }
        num_tiles = m_clusters() * params.n_clusters;
        if constexpr (kKind == GroupKind::kAlongK) num_tiles = k > 0 || groups.zero_fill ? num_tiles : 0;
    }
};

// kLabels: all blocks of rows in the raster; the label of a block's first row names its group. If the two M-blocks of a
// cluster belong to different groups, the pair is visited twice, once with each group's B, and the other CTA is then idle.
template <uint32_t kBlockM, uint32_t kClusterM>
struct LabelTileScheduler : WorkTile {
    static constexpr uint32_t kClusterRows = kBlockM * kClusterM;

    const TileSchedulerParams& params;
    const GroupParams& groups;
    uint32_t next_index, num_clusters;
    uint32_t rank_m;                   // of the CTA along the cluster's M
    uint32_t second_group = kNoGroup;  // of the cluster's two groups, the one still to be visited

    __device__ __forceinline__ LabelTileScheduler(const TileSchedulerParams& params, const GroupParams& groups, uint32_t cluster,
                                                  uint32_t num_clusters, uint32_t rank_m)
        : params(params), groups(groups), next_index(cluster), num_clusters(num_clusters), rank_m(rank_m) {}

    __device__ __forceinline__ bool next() {
        if (kClusterM > 1 && second_group != kNoGroup) {
            enter_group(second_group);
            second_group = kNoGroup;
            return true;
        }
        const uint32_t m_clusters = ceil_div(groups.m, kClusterRows), count = m_clusters * params.n_clusters;
        // Skip blocks without a group. Each lane looks at one tile, so a warp skips up to 32 at a time.
        const uint32_t remaining = next_index < count ? ceil_div(count - next_index, num_clusters) : 0;
        const uint32_t skipped = ptx::warp_find_first(0, remaining, [&](uint32_t i) {
            TileCoord tile;
            tile.from_linear(params, next_index + i * num_clusters, m_clusters, params.n_clusters);
            return group_of(tile, 0) != kNoGroup || (kClusterM > 1 && group_of(tile, 1) != kNoGroup);
        });
        if (skipped >= remaining) return false;
        from_linear(params, next_index + skipped * num_clusters, m_clusters, params.n_clusters);
        next_index += (skipped + 1) * num_clusters;
        const uint32_t first = group_of(*this, 0), second = kClusterM > 1 ? group_of(*this, 1) : first;
        if (first != second && first != kNoGroup && second != kNoGroup) second_group = second;
        enter_group(first != kNoGroup ? first : second);
        return true;
    }

private:
    static __device__ __forceinline__ uint32_t row_of(const TileCoord& tile, uint32_t rank) {
        return (tile.m_cluster * kClusterM + rank) * kBlockM;
    }

    // The group of a CTA's block.
    __device__ __forceinline__ uint32_t group_of(const TileCoord& tile, uint32_t rank) const {
        const uint32_t row = row_of(tile, rank) / groups.alignment * groups.alignment;
        if (row >= groups.m) return kNoGroup;
        const uint32_t label = groups.grouped_layout[row];
        return label < groups.num_groups ? label : kNoGroup;
    }

    // Each half of 64 rows is multiplied if its first row has a label; else zeros are stored.
    __device__ __forceinline__ bool is_labelled(uint32_t row) const { return row < groups.m && groups.grouped_layout[row] >= 0; }

    __device__ __forceinline__ void enter_group(uint32_t entered) {
        group = entered;
        const uint32_t row = row_of(*this, rank_m);
        m_end = m_store_end = 0;
        if (kClusterM == 1 || group_of(*this, rank_m) == entered) {
            m_store_end = row + kBlockM < groups.m ? row + kBlockM : groups.m;
            m_end = m_store_end;
            if (kBlockM > 64 && m_end > row + 64 && !is_labelled(row + 64)) m_end = row + 64;
            if (kBlockM <= 64 && !is_labelled(row / 64 * 64)) m_end = 0;
        }
        k = kClusterM > 1 || m_end > 0;
    }
};

}  // namespace deep_gemm::scheduler
