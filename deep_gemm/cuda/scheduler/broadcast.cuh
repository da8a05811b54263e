// Broadcasts work tiles from the scheduler warp to all roles of a CTA through a shared-memory pipeline. Only that warp waits
// on the grouped layout in global memory, up to 8 tiles ahead of the others.
#pragma once
#include "deep_gemm/pipeline/pipeline.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/scheduler/grouped.cuh"

namespace deep_gemm::scheduler {

constexpr uint32_t kWorkTileStages = 8, kWorkTileBytes = 32;

struct WorkTilePipeline {
    uint32_t tiles;  // shared address of kWorkTileStages tiles, 16-byte aligned
    pipeline::PipelineBarriers<kWorkTileStages> barriers;
};

// The scheduler warp: visits the tiles of Scheduler, and hands each one, then the end, to the others.
template <class Scheduler>
struct WorkTileProducer : Scheduler {
    WorkTilePipeline work;
    pipeline::PipelineState<kWorkTileStages> state;

    __device__ __forceinline__ WorkTileProducer(const Scheduler& scheduler, const WorkTilePipeline& work)
        : Scheduler(scheduler), work(work) {}

    __device__ __forceinline__ bool next() {
        const bool found = Scheduler::next();
        if (!found) this->group = kNoGroup;
        work.barriers.wait_empty(state);
        if (ptx::elect_one()) {
            const uint32_t tile = work.tiles + state.stage * kWorkTileBytes;
            ptx::store_shared(tile, int(this->m_cluster), int(this->n_cluster), int(this->group), int(this->m_begin));
            ptx::store_shared(tile + 16, int(this->m_end), int(this->m_store_end), int(this->k), int(this->scale_begin));
            ptx::mbarrier_arrive(work.barriers.full(state.stage));
        }
        state.advance();
        return found;
    }
};

// Any other warp: receives the tiles.
struct WorkTileConsumer : WorkTile {
    WorkTilePipeline work;
    pipeline::PipelineState<kWorkTileStages> state;

    __device__ __forceinline__ explicit WorkTileConsumer(const WorkTilePipeline& work) : work(work) {}

    __device__ __forceinline__ bool next() {
        const uint32_t tile = work.tiles + state.stage * kWorkTileBytes;
        int low[4], high[4];
        work.barriers.wait_full(state);
        ptx::load_shared(tile, low);
        ptx::load_shared(tile + 16, high);
        __syncwarp();
        if (threadIdx.x % kWarpThreads == 0) ptx::mbarrier_arrive(work.barriers.empty(state.stage));
        state.advance();
        m_cluster = low[0], n_cluster = low[1], group = low[2], m_begin = low[3];
        m_end = high[0], m_store_end = high[1], k = high[2], scale_begin = high[3];
        return !ptx::warp_any(group == kNoGroup);
    }
};

}  // namespace deep_gemm::scheduler
