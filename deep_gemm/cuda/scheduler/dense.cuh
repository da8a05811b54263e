// Persistent tile scheduler of one product.
#pragma once
#include "deep_gemm/scheduler/raster.cuh"

namespace deep_gemm::scheduler {

// Tiles t, t + G, t + 2G, ... of the raster for cluster t of G; residue tiles first and last.
struct DenseTileScheduler : TileCoord {
    const TileSchedulerParams& params;
    uint32_t next_index, num_clusters;

    __device__ __forceinline__ DenseTileScheduler(const TileSchedulerParams& params, uint32_t cluster, uint32_t num_clusters)
        : params(params), next_index(cluster), num_clusters(num_clusters) {}

    __device__ __forceinline__ bool next() {
        const ResidueTiles& residue = params.residue;
        const uint32_t count = params.m_clusters * params.n_clusters, num_residue = residue.head + residue.tail;
        if (next_index >= count) return false;
        if (next_index < residue.head) set_residue(next_index);
        else if (next_index >= count - residue.tail) set_residue(next_index - (count - num_residue));
        else set_inner(next_index - residue.head, num_residue > 0);
        next_index += num_clusters;
        return true;
    }

private:
    __device__ __forceinline__ void set_residue(uint32_t index) {
        m_cluster = params.residue.in_m ? params.m_clusters - 1 : index;
        n_cluster = params.residue.in_m ? index : params.n_clusters - 1;
    }

    __device__ __forceinline__ void set_inner(uint32_t index, bool without_residue) {
        from_linear(params, index, params.m_clusters - (without_residue && params.residue.in_m),
                    params.n_clusters - (without_residue && !params.residue.in_m));
    }
};

}  // namespace deep_gemm::scheduler
