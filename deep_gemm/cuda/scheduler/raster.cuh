// Raster: the order of the tiles of one product, or of one group, so that tiles in flight share rows of A and B in L2.
#pragma once
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::scheduler {

// Tiles of the last row (in_m) or column of tiles that are at most half full and so take less time: `head` of them run
// before all other tiles and `tail` after. A CTA with one tile more than the others then has two cheap ones among its tiles.
struct ResidueTiles {
    uint32_t head, tail, in_m;
};

// What the host passes. Counts are clusters of tiles, so that a cluster stays together.
struct TileSchedulerParams {
    uint32_t m_clusters;     // ceil(M / (BLOCK_M * kClusterM)); not read where M belongs to groups
    uint32_t n_clusters;     // ceil(N / (BLOCK_N * kClusterN))
    uint32_t swizzle_width;  // clusters side by side along one axis before the other axis advances
    uint32_t raster_along_n;  // 1: the raster advances along n with swizzle_width clusters of m side by side; 0: along m
    ResidueTiles residue;
};

// A cluster of tiles.
struct TileCoord {
    uint32_t m_cluster = 0, n_cluster = 0;

    // Sets the coordinate of the index-th cluster of m_clusters x n_clusters.
    __device__ __forceinline__ void from_linear(const TileSchedulerParams& params, uint32_t index, uint32_t m_clusters,
                                                uint32_t n_clusters) {
        const uint32_t minor_count = params.raster_along_n ? m_clusters : n_clusters;
        const uint32_t major_count = params.raster_along_n ? n_clusters : m_clusters;
        const uint32_t first = index / (params.swizzle_width * major_count) * params.swizzle_width;
        const uint32_t width = minor_count - first < params.swizzle_width ? minor_count - first : params.swizzle_width;
        const uint32_t in_swizzle = index - first * major_count;
        const uint32_t minor = first + in_swizzle % width, major = in_swizzle / width;
        m_cluster = params.raster_along_n ? minor : major;
        n_cluster = params.raster_along_n ? major : minor;
    }
};

}  // namespace deep_gemm::scheduler
