// Order of the clusters of tiles of one product, or of one group: in bands, so that one wave of tiles touches few rows and
// columns together and both stay in L2.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::scheduler {

// What the host hands over; counts are in clusters of tiles, so that a cluster never splits.
struct WalkParams {
    uint32_t clusters_m;  // ceil(rows / (BLOCK_M * kClusterM)); along tokens of no use where there are groups
    uint32_t clusters_n;
    uint32_t band;        // tiles walked side by side along the band axis before the other axis advances
    uint32_t band_on_m;   // 1: bands lie along rows, 0: along columns
    // Of a last row of tiles (edge_on_m), or column, that is walked apart: so many tiles first, and so many last. They hold
    // half of their rows or columns and cost less; whoever has one tile more than others then has two of them.
    uint32_t edge_first, edge_last, edge_on_m;
};

// A cluster of tiles among those of its product.
struct Place {
    uint32_t cluster_m = 0, cluster_n = 0;

    // Takes the index-th place of rows x columns clusters.
    __device__ __forceinline__ void take(const WalkParams& walk, uint32_t index, uint32_t rows, uint32_t columns) {
        const uint32_t across = walk.band_on_m ? rows : columns, along = walk.band_on_m ? columns : rows;
        const uint32_t first = index / (walk.band * along) * walk.band;
        const uint32_t width = across - first < walk.band ? across - first : walk.band;
        const uint32_t in_band = index - first * along;
        const uint32_t minor = first + in_band % width, major = in_band / width;
        cluster_m = walk.band_on_m ? minor : major;
        cluster_n = walk.band_on_m ? major : minor;
    }
};

}  // namespace deep_gemm::scheduler
