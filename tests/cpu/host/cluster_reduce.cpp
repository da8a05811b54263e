// Split-K reductions over a cluster, whose CTAs run one after the other; compiled by tests/cpu/test_cluster.py.
#include <stdio.h>
#include <string.h>

#include <vector>

#include "one_thread.hpp"

namespace deep_gemm::ptx {

constexpr uint32_t kWindow = 1 << 20, kBuffer = 1024, kFull = 64, kEmpty = 72;

// A CTA of the cluster: what lies in its shared memory, and what its barriers have counted.
struct Cta {
    std::vector<unsigned char> bytes;
    std::vector<int> times_written;  // of every 16 bytes
    uint32_t full_arrivals, empty_arrivals, expected, arrived, released, num_misplaced;
};
static Cta ctas[16];

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    (barrier == kFull ? ctas[rank].full_arrivals : ctas[rank].empty_arrivals) = arrivals;
}
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    ctas[rank].expected += bytes;
    ctas[rank].num_misplaced += barrier != kFull;
}
inline void mbarrier_arrive_remote(uint32_t barrier, uint32_t to) {
    ctas[to].released += 1;
    ctas[to].num_misplaced += barrier != kEmpty;
}
inline void mbarrier_wait_cluster(uint32_t, uint32_t) {}

uint32_t map_shared_address(uint32_t address, uint32_t to) { return to * kWindow + address; }

void store_cluster(uint32_t remote, uint32_t remote_barrier, const void* values) {
    Cta& to = ctas[remote / kWindow];
    const uint32_t at = remote % kWindow - kBuffer;
    to.arrived += 16;
    to.num_misplaced += remote_barrier != remote / kWindow * kWindow + kFull;
    if (at % 16 != 0 || at + 16 > to.bytes.size()) {
        to.num_misplaced += 1;
    } else {
        to.times_written[at / 16] += 1;
        memcpy(&to.bytes[at], values, 16);
    }
}
inline const unsigned char* shared_at(uint32_t address) { return &ctas[rank].bytes.at(address - kBuffer); }
template <class Accum>
void load_shared(uint32_t address, Accum (&value)[4]) { memcpy(value, shared_at(address), 16); }

}  // namespace deep_gemm::ptx

#include "deep_gemm/pipeline/cluster_reduce.cuh"

namespace deep_gemm {

// An accumulator of a thread. Floats are of very different sizes, so that a sum depends on the order of its terms; integers, as
// floats, would lose bits.
template <class Accum>
Accum partial(uint32_t cta, uint32_t thread, uint32_t i) {
    const uint32_t hash = (cta * 131071u + thread * 8191u + i * 127u + 1u) * 2654435761u;
    if constexpr (kIsSame<Accum, int>) return int(hash) >> 4;
    else return (float(hash >> 8) - 8388608.0f) * (hash & 128 ? 1.0f : 1e-4f);
}

// What a reduction is to this program; its functions run as the CTA of rank ptx::rank.
struct Reduction {
    uint32_t split_k, tiles, num_accums, num_owned, num_threads, bytes, owners;
    bool is_integer;
    uint32_t (*first_group)(uint32_t owner);
    void (*init)();
    void (*send)(const void* accums, uint32_t thread);
    void (*receive)(const void* accums, void* sums, uint32_t thread);
    void (*release)(uint32_t thread);
};

template <class Accum, uint32_t kSplitK, uint32_t kTiles, uint32_t kGroups, uint32_t kWarpgroups, uint32_t kOwned>
struct ReductionOf {
    using ClusterReduce = pipeline::ClusterReduce<Accum, kSplitK, kTiles, kGroups, kWarpgroups, kOwned>;
    using Accums = Accum[kGroups * 4];
    using Sums = Accum[kOwned * 4];

    static ClusterReduce at_rank() {
        return {ptx::kBuffer, ptx::kFull, ptx::kEmpty, ptx::rank / kTiles, ptx::rank % kTiles};
    }
    static void init() { at_rank().init(); }
    static void send(const void* accums, uint32_t thread) {
        at_rank().send(*static_cast<const Accums*>(accums), thread / kWarpgroupThreads, thread % kWarpgroupThreads);
    }
    static void receive(const void* accums, void* sums, uint32_t thread) {
        const auto& own = *static_cast<const Accums*>(accums);
        at_rank().receive(own, *static_cast<Sums*>(sums), thread / kWarpgroupThreads, thread % kWarpgroupThreads);
    }
    static void release(uint32_t thread) { at_rank().release(thread % kWarpThreads); }

    static constexpr Reduction kReduction = {
        .split_k = kSplitK,
        .tiles = kTiles,
        .num_accums = kGroups * 4,
        .num_owned = kOwned * 4,
        .num_threads = kWarpgroups * kWarpgroupThreads,
        .bytes = ClusterReduce::kBytes,
        .owners = ClusterReduce::kOwners,
        .is_integer = kIsSame<Accum, int>,
        .first_group = [](uint32_t owner) { return ClusterReduce::first_group(owner); },
        .init = init,
        .send = send,
        .receive = receive,
        .release = release,
    };
};

// Calls step() as each CTA in turn. CTAs with the same part of K lie side by side.
template <class Step>
void each_cta(const Reduction& reduction, Step step) {
    for (ptx::rank = 0; ptx::rank < reduction.split_k * reduction.tiles; ++ptx::rank) step();
}

// The accumulators of a thread of CTA ptx::rank.
template <class Accum>
std::vector<Accum> accums_of(const Reduction& reduction, uint32_t thread) {
    std::vector<Accum> accums(reduction.num_accums);
    for (uint32_t i = 0; i < reduction.num_accums; ++i) accums[i] = partial<Accum>(ptx::rank, thread, i);
    return accums;
}

// Returns how many of a CTA's sums are not the sum of all parts in order of rank.
template <class Accum>
int num_wrong(const Reduction& reduction) {
    int wrong = 0;
    std::vector<Accum> sums(reduction.num_owned);
    const uint32_t tile = ptx::rank % reduction.tiles, first = reduction.first_group(ptx::rank / reduction.tiles) * 4;
    for (uint32_t thread = 0; thread < reduction.num_threads; ++thread) {
        reduction.receive(accums_of<Accum>(reduction, thread).data(), sums.data(), thread);
        for (uint32_t i = 0; i < reduction.num_owned; ++i) {
            Accum sum = partial<Accum>(tile, thread, first + i);
            for (uint32_t rank = 1; rank < reduction.split_k; ++rank) {
                sum += partial<Accum>(rank * reduction.tiles + tile, thread, first + i);
            }
            wrong += sum != sums[i];
        }
    }
    return wrong;
}

// One line, of each CTA: arrivals its two barriers wait for, bytes expected and arrived, arrivals of releases, what is out of
// place, slots not written once, first column owned and how many, wrong sums.
template <class Accum>
void show(const Reduction& reduction) {
    for (auto& cta : ptx::ctas) cta = {std::vector<unsigned char>(reduction.bytes), std::vector<int>(reduction.bytes / 16)};
    each_cta(reduction, [&] { reduction.init(); });
    each_cta(reduction, [&] {
        for (uint32_t thread = 0; thread < reduction.num_threads; ++thread) {
            reduction.send(accums_of<Accum>(reduction, thread).data(), thread);
        }
    });
    std::vector<int> wrong;
    each_cta(reduction, [&] {
        wrong.push_back(ptx::rank / reduction.tiles < reduction.owners ? num_wrong<Accum>(reduction) : 0);
        for (uint32_t thread = 0; thread < reduction.num_threads; ++thread) reduction.release(thread);
    });
    each_cta(reduction, [&] {
        const ptx::Cta& cta = ptx::ctas[ptx::rank];
        const bool is_owner = ptx::rank / reduction.tiles < reduction.owners;
        int uneven = 0;
        for (int times : cta.times_written) uneven += times != is_owner;
        printf("%u %u %u %u ", cta.full_arrivals, cta.empty_arrivals, cta.expected, cta.arrived);
        printf("%u %u %d ", cta.released, cta.num_misplaced, uneven);
        printf("%u ", is_owner ? reduction.first_group(ptx::rank / reduction.tiles) * 8 : 0);
        printf("%u %d ", is_owner ? reduction.num_owned * 2 : 0, wrong[ptx::rank]);
    });
    printf("\n");
}

static const Reduction kReductions[] = {
#include "reductions.inc"
};

}  // namespace deep_gemm

int main() {
    for (const auto& reduction : deep_gemm::kReductions) (reduction.is_integer ? deep_gemm::show<int> : deep_gemm::show<float>)(reduction);
}
