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
};

// Tiles t, t + G, t + 2G, ... of cluster t of G, walked in bands so that one wave of tiles touches
// few rows and columns together and both stay in L2.
struct Dense {
    const DenseParams& params;
    uint32_t next_index, num_clusters;
    uint32_t cluster_m = 0, cluster_n = 0;

    __device__ __forceinline__ Dense(const DenseParams& params, uint32_t cluster, uint32_t num_clusters)
        : params(params), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        if (next_index >= params.clusters_m * params.clusters_n) return false;
        const uint32_t across = params.band_on_m ? params.clusters_m : params.clusters_n;
        const uint32_t along = params.band_on_m ? params.clusters_n : params.clusters_m;
        const uint32_t first = next_index / (params.band * along) * params.band;
        const uint32_t width = across - first < params.band ? across - first : params.band;
        const uint32_t in_band = next_index - first * along;
        const uint32_t minor = first + in_band % width;
        const uint32_t major = in_band / width;
        cluster_m = params.band_on_m ? minor : major;
        cluster_n = params.band_on_m ? major : minor;
        next_index += num_clusters;
        return true;
    }
};

}  // namespace deep_gemm::scheduler
