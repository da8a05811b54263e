// Sums over a cluster: every CTA holds the same tile's partial sums over its own part of K. Each becomes the
// owner of some of the tile's columns, is sent those of every CTA, and adds them in the order of ranks.
//
// Nothing but shared memory and its barriers is used: no global workspace, no second kernel.
#pragma once
#include "deep_gemm/ptx/mbarrier.cuh"
#include "deep_gemm/ptx/memory.cuh"

namespace deep_gemm::pipeline {

// kGroups: column groups of 8 in a tile, four values of each in every thread. Owners have kOwned of them each: the
// last one's begin earlier where they do not come out even (groups with two owners are summed alike by both), and
// CTAs beyond own nothing. kTiles: tiles that the cluster works on at once. Sum: float or int.
template <class Sum, uint32_t kCtas, uint32_t kTiles, uint32_t kGroups, uint32_t kWarpgroups, uint32_t kOwned>
struct Exchange {
    static constexpr uint32_t kOwners = ceil_div(kGroups, kOwned);
    static_assert(kOwners <= kCtas && kOwned <= kGroups);
    static constexpr uint32_t kGroupBytes = kWarpgroupThreads * 16;
    static constexpr uint32_t kBytes = (kCtas - 1) * kWarpgroups * kOwned * kGroupBytes;

    uint32_t buffer;       // kBytes, 16-byte aligned: [other CTA][warpgroup][owned group][thread] of four sums
    uint32_t full, empty;  // barriers: all sums have come; all CTAs have read theirs, so new ones may be sent
    uint32_t rank;         // among the CTAs of the same tile
    uint32_t tile;         // which of the cluster's
    uint32_t parity = 0;

    __device__ __forceinline__ void init() const {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_init(empty, kCtas * kWarpgroups * 4);
    }

    __device__ __forceinline__ uint32_t cta(uint32_t rank) const { return rank * kTiles + tile; }

    __device__ __forceinline__ bool owns() const { return rank < kOwners; }

    // First of the groups of an owner.
    static __device__ __forceinline__ constexpr uint32_t first_group(uint32_t owner) {
        return owner * kOwned < kGroups - kOwned ? owner * kOwned : kGroups - kOwned;
    }

    // Where an owner keeps what a sender's thread has sent it.
    __device__ __forceinline__ uint32_t place(uint32_t owner, uint32_t sender, uint32_t warpgroup, uint32_t thread) const {
        const uint32_t other = sender < owner ? sender : sender - 1;
        return buffer + (other * kWarpgroups + warpgroup) * kOwned * kGroupBytes + thread * 16;
    }

    // Sends every other CTA its share of this one's sums, once those of the tile before have been read.
    __device__ __forceinline__ void send(const Sum (&sums)[kGroups * 4], uint32_t warpgroup, uint32_t thread) const {
        ptx::mbarrier_wait_cluster(empty, parity ^ 1);
        if (warpgroup == 0 && thread == 0 && owns()) ptx::mbarrier_arrive_expect_tx(full, kBytes);
#pragma unroll
        for (uint32_t owner = 0; owner < kOwners; ++owner) {
            if (owner != rank) {
                const uint32_t to = ptx::shared_address_of(place(owner, rank, warpgroup, thread), cta(owner));
                const uint32_t barrier = ptx::shared_address_of(full, cta(owner));
#pragma unroll
                for (uint32_t i = 0; i < kOwned; ++i) {
                    const Sum* group = &sums[(first_group(owner) + i) * 4];
                    ptx::store_shared_async(to + i * kGroupBytes, barrier, group[0], group[1], group[2], group[3]);
                }
            }
        }
    }

    // Adds up the groups that this CTA owns, its own sums at its own place in the order. To be followed by release().
    __device__ __forceinline__ void receive(const Sum (&sums)[kGroups * 4], Sum (&owned)[kOwned * 4], uint32_t warpgroup,
                                            uint32_t thread) const {
        Sum own[kOwned * 4];
#pragma unroll
        for (uint32_t owner = 0; owner < kOwners; ++owner)
#pragma unroll
            for (uint32_t i = 0; i < kOwned * 4; ++i) own[i] = owner == 0 || owner == rank ? sums[first_group(owner) * 4 + i] : own[i];
        ptx::mbarrier_wait_cluster(full, parity);
#pragma unroll
        for (uint32_t i = 0; i < kOwned; ++i) {
#pragma unroll
            for (uint32_t sender = 0; sender < kCtas; ++sender) {
                Sum part[4] = {own[i * 4], own[i * 4 + 1], own[i * 4 + 2], own[i * 4 + 3]};
                if (sender != rank) ptx::load_shared(place(rank, sender, warpgroup, thread) + i * kGroupBytes, part);
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) owned[i * 4 + j] = sender == 0 ? part[j] : owned[i * 4 + j] + part[j];
            }
        }
    }

    // Every math warp tells every CTA that it has read, and used, what it was sent.
    __device__ __forceinline__ void release(uint32_t lane) {
        __syncwarp();
        if (lane < kCtas) ptx::mbarrier_arrive_remote(empty, cta(lane));
        parity ^= 1;
    }

    // A CTA may not end while another can still write into its shared memory.
    __device__ __forceinline__ void drain() const { ptx::mbarrier_wait_cluster(empty, parity ^ 1); }
};

}  // namespace deep_gemm::pipeline
