// Split-K reduction over a cluster, through distributed shared memory: no global workspace, no second kernel.
//
// The CTAs of a cluster hold partial sums of one tile over their own parts of K. Each CTA owns some of the tile's columns:
// it receives those columns from all others and adds them in order of rank, so the result does not depend on timing.
#pragma once
#include "deep_gemm/ptx/cluster.cuh"
#include "deep_gemm/ptx/mbarrier.cuh"
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::pipeline {

// kTiles: tiles that the cluster computes at a time. kColumnGroups: groups of 8 columns in a tile, of which a thread holds 4
// accumulators each. kOwned: column groups of an owner. Where they do not divide evenly, the last owner's range begins
// earlier and overlaps the one before (both get equal sums), and CTAs beyond own nothing.
template <class Accum, uint32_t kSplitK, uint32_t kTiles, uint32_t kColumnGroups, uint32_t kWarpgroups, uint32_t kOwned>
struct ClusterReduce {
    static constexpr uint32_t kOwners = ceil_div(kColumnGroups, kOwned);
    static_assert(kOwners <= kSplitK && kOwned <= kColumnGroups);
    static constexpr uint32_t kGroupBytes = kWarpgroupThreads * 16;
    static constexpr uint32_t kBytes = (kSplitK - 1) * kWarpgroups * kOwned * kGroupBytes;

    uint32_t buffer;       // kBytes, 16-byte aligned: [sender][warpgroup][owned group][thread] of 4 accumulators
    uint32_t full, empty;  // barriers: all partial sums have arrived; all CTAs have read theirs
    uint32_t rank;         // of this CTA along K
    uint32_t tile;         // of the cluster's kTiles
    uint32_t phase = 0;

    __device__ __forceinline__ void init() const {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_init(empty, kSplitK * kWarpgroups * 4);
    }

    __device__ __forceinline__ uint32_t cta_of(uint32_t rank) const { return rank * kTiles + tile; }

    __device__ __forceinline__ bool is_owner() const { return rank < kOwners; }

    // First column group that a CTA owns.
    static __device__ __forceinline__ constexpr uint32_t first_group(uint32_t owner) {
        return owner * kOwned < kColumnGroups - kOwned ? owner * kOwned : kColumnGroups - kOwned;
    }

    // Where an owner receives a thread's partial sums from a sender.
    __device__ __forceinline__ uint32_t slot(uint32_t owner, uint32_t sender, uint32_t warpgroup, uint32_t thread) const {
        const uint32_t index = sender < owner ? sender : sender - 1;
        return buffer + (index * kWarpgroups + warpgroup) * kOwned * kGroupBytes + thread * 16;
    }

    // Sends each other owner its columns of this CTA's partial sums, once the previous tile's have been read.
    __device__ __forceinline__ void send(const Accum (&accum)[kColumnGroups * 4], uint32_t warpgroup, uint32_t thread) const {
        ptx::mbarrier_wait_cluster(empty, phase ^ 1);
        if (warpgroup == 0 && thread == 0 && is_owner()) ptx::mbarrier_arrive_expect_tx(full, kBytes);
#pragma unroll
        for (uint32_t owner = 0; owner < kOwners; ++owner) {
            if (owner != rank) {
                const uint32_t to = ptx::map_shared_address(slot(owner, rank, warpgroup, thread), cta_of(owner));
                const uint32_t barrier = ptx::map_shared_address(full, cta_of(owner));
#pragma unroll
                for (uint32_t i = 0; i < kOwned; ++i) {
                    const Accum* group = &accum[(first_group(owner) + i) * 4];
                    ptx::store_cluster_async(to + i * kGroupBytes, barrier, group[0], group[1], group[2], group[3]);
                }
            }
        }
    }

    // Adds the columns that this CTA owns, in order of rank. Followed by release().
    __device__ __forceinline__ void receive(const Accum (&accum)[kColumnGroups * 4], Accum (&sum)[kOwned * 4], uint32_t warpgroup,
                                            uint32_t thread) const {
        Accum own[kOwned * 4];
#pragma unroll
        for (uint32_t owner = 0; owner < kOwners; ++owner)
#pragma unroll
            for (uint32_t i = 0; i < kOwned * 4; ++i)
                own[i] = owner == 0 || owner == rank ? accum[first_group(owner) * 4 + i] : own[i];
        ptx::mbarrier_wait_cluster(full, phase);
#pragma unroll
        for (uint32_t i = 0; i < kOwned; ++i) {
#pragma unroll
            for (uint32_t sender = 0; sender < kSplitK; ++sender) {
                Accum part[4] = {own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]};
                if (sender != rank) ptx::load_shared(slot(rank, sender, warpgroup, thread) + i * kGroupBytes, part);
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) sum[i * 4 + j] = sender == 0 ? part[j] : sum[i * 4 + j] + part[j];
            }
        }
    }

    // Each math warp tells every CTA that it has read what it received.
    __device__ __forceinline__ void release(uint32_t lane) {
        __syncwarp();
        if (lane < kSplitK) ptx::mbarrier_arrive_remote(empty, cta_of(lane));
        phase ^= 1;
    }

    // Before a CTA exits: no other may still write into its shared memory.
    __device__ __forceinline__ void wait_all_read() const { ptx::mbarrier_wait_cluster(empty, phase ^ 1); }
};

}  // namespace deep_gemm::pipeline
