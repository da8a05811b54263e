// Tiles of groups on their way from the warp that walks over them to all roles of a CTA, by a ring in shared memory: only that
// warp waits for what the device says of groups, and it does so tiles ahead.
#pragma once
#include "deep_gemm/pipeline/pipeline.cuh"
#include "deep_gemm/ptx/memory.cuh"
#include "deep_gemm/scheduler/groups.cuh"

namespace deep_gemm::scheduler {

constexpr uint32_t kRingSlots = 8, kSlotBytes = 32;

struct Ring {
    uint32_t slots;  // kRingSlots of kSlotBytes, 16-byte aligned
    pipeline::Barriers<kRingSlots> barriers;
};

// Walks, and shows every tile, and the end, to the others; by one warp.
template <class Walk>
struct Publisher : Walk {
    Ring ring;
    pipeline::Position<kRingSlots> at;

    __device__ __forceinline__ Publisher(const Walk& walk, const Ring& ring) : Walk(walk), ring(ring) {}

    __device__ __forceinline__ bool next() {
        const bool more = Walk::next();
        if (!more) this->group = kNone;
        ring.barriers.wait_empty(at);
        if (ptx::elect_one()) {
            const uint32_t slot = ring.slots + at.stage * kSlotBytes;
            ptx::store_shared(slot, int(this->cluster_m), int(this->cluster_n), int(this->group), int(this->first));
            ptx::store_shared(slot + 16, int(this->end), int(this->stored_end), int(this->k), int(this->first_scale));
            ptx::mbarrier_arrive(ring.barriers.full(at.stage));
        }
        at.advance();
        return more;
    }
};

// The same tiles, for any other warp.
struct Reader : GroupTile {
    Ring ring;
    pipeline::Position<kRingSlots> at;

    __device__ __forceinline__ explicit Reader(const Ring& ring) : ring(ring) {}

    __device__ __forceinline__ bool next() {
        const uint32_t slot = ring.slots + at.stage * kSlotBytes;
        int words[4], others[4];
        ring.barriers.wait_full(at);
        ptx::load_shared(slot, words);
        ptx::load_shared(slot + 16, others);
        __syncwarp();
        if (threadIdx.x % kWarpThreads == 0) ptx::mbarrier_arrive(ring.barriers.empty(at.stage));
        at.advance();
        cluster_m = words[0], cluster_n = words[1], group = words[2], first = words[3];
        end = others[0], stored_end = others[1], k = others[2], first_scale = others[3];
        return !ptx::uniformly(group == kNone);
    }
};

}  // namespace deep_gemm::scheduler
