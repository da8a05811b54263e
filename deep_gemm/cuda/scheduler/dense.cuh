// The tiles of one product over a persistent grid.
#pragma once
#include "deep_gemm/scheduler/band.cuh"

namespace deep_gemm::scheduler {

// Tiles t, t + G, t + 2G, ... of cluster t of G, in bands; before and after them the tiles of an edge.
struct Dense : Place {
    const WalkParams& walk;
    uint32_t next_index, num_clusters;

    __device__ __forceinline__ Dense(const WalkParams& walk, uint32_t cluster, uint32_t num_clusters)
        : walk(walk), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        const uint32_t count = walk.clusters_m * walk.clusters_n, edge = walk.edge_first + walk.edge_last;
        if (next_index >= count) return false;
        if (next_index < walk.edge_first) take_edge(next_index);
        else if (next_index >= count - walk.edge_last) take_edge(next_index - (count - edge));
        else take_inner(next_index - walk.edge_first, edge > 0);
        next_index += num_clusters;
        return true;
    }

private:
    __device__ __forceinline__ void take_edge(uint32_t index) {
        cluster_m = walk.edge_on_m ? walk.clusters_m - 1 : index;
        cluster_n = walk.edge_on_m ? index : walk.clusters_n - 1;
    }

    __device__ __forceinline__ void take_inner(uint32_t index, bool without_edge) {
        take(walk, index, walk.clusters_m - (without_edge && walk.edge_on_m), walk.clusters_n - (without_edge && !walk.edge_on_m));
    }
};

}  // namespace deep_gemm::scheduler
