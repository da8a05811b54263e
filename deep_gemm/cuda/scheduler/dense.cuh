// Order of the tiles of one dense problem over a persistent grid.
#pragma once
#include "deep_gemm/ptx/types.cuh"

namespace deep_gemm::scheduler {

// What the host hands over; counts are in clusters of tiles, so that a cluster never splits.
struct DenseParams {
    uint32_t clusters_m;  // ceil(rows / (BLOCK_M * kClusterM))
    uint32_t clusters_n;
    uint32_t band;        // tiles walked side by side along the band axis before the other axis advances
    uint32_t band_on_m;   // 1: bands lie along rows, 0: along columns
    // Of a last row of tiles (edge_on_m), or column, that is walked apart: so many tiles first, and so many last. They hold
    // half of their rows or columns and cost less; whoever has one tile more than others then has two of them.
    uint32_t edge_first, edge_last, edge_on_m;
};

// Tiles t, t + G, t + 2G, ... of cluster t of G, walked in bands so that one wave of tiles touches
// few rows and columns together and both stay in L2; before and after them the tiles of an edge.
struct Dense {
    const DenseParams& params;
    uint32_t next_index, num_clusters;
    uint32_t cluster_m = 0, cluster_n = 0;

    __device__ __forceinline__ Dense(const DenseParams& params, uint32_t cluster, uint32_t num_clusters)
        : params(params), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        const uint32_t count = params.clusters_m * params.clusters_n, edge = params.edge_first + params.edge_last;
        if (next_index >= count) return false;
        if (next_index < params.edge_first) walk_edge(next_index);
        else if (next_index >= count - params.edge_last) walk_edge(next_index - (count - edge));
        else walk_band(next_index - params.edge_first, edge > 0);
        next_index += num_clusters;
        return true;
    }

private:
    __device__ __forceinline__ void walk_edge(uint32_t index) {
        cluster_m = params.edge_on_m ? params.clusters_m - 1 : index;
        cluster_n = params.edge_on_m ? index : params.clusters_n - 1;
    }

    __device__ __forceinline__ void walk_band(uint32_t index, bool without_edge) {
        const uint32_t rows = params.clusters_m - (without_edge && params.edge_on_m);
        const uint32_t columns = params.clusters_n - (without_edge && !params.edge_on_m);
        const uint32_t across = params.band_on_m ? rows : columns, along = params.band_on_m ? columns : rows;
        const uint32_t first = index / (params.band * along) * params.band;
        const uint32_t width = across - first < params.band ? across - first : params.band;
        const uint32_t in_band = index - first * along;
        const uint32_t minor = first + in_band % width, major = in_band / width;
        cluster_m = params.band_on_m ? minor : major;
        cluster_n = params.band_on_m ? major : minor;
    }
};

}  // namespace deep_gemm::scheduler
