// A sum over a cluster, its CTAs taking turns; compiled by tests/cpu/test_cluster.py.
#include "intrinsics.hpp"
#define mbarrier_init device_mbarrier_init
#define mbarrier_arrive_expect_tx device_mbarrier_arrive_expect_tx
#define mbarrier_arrive_remote device_mbarrier_arrive_remote
#define mbarrier_wait_cluster device_mbarrier_wait_cluster
#include "deep_gemm/ptx/mbarrier.cuh"
#undef mbarrier_init
#undef mbarrier_arrive_expect_tx
#undef mbarrier_arrive_remote
#undef mbarrier_wait_cluster
#define load_shared device_load_shared
#define shared_address_of device_shared_address_of
#define store_shared_async device_store_shared_async
#include "deep_gemm/ptx/memory.cuh"
#undef load_shared
#undef shared_address_of
#undef store_shared_async

namespace deep_gemm::ptx {

constexpr uint32_t kWindow = 1 << 20, kBuffer = 1024, kFull = 64, kEmpty = 72;

// A CTA of the cluster: what lies in its shared memory, and what its barriers have counted.
struct Memory {
    std::vector<unsigned char> bytes;
    std::vector<int> written;  // times, of every 16 bytes
    uint32_t full_arrivals, empty_arrivals, expected, arrived, released, stray;
    std::vector<int> findings;
};
static Memory ctas[16];
static uint32_t rank;  // of the CTA whose turn it is

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    (barrier == kFull ? ctas[rank].full_arrivals : ctas[rank].empty_arrivals) = arrivals;
}

inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    ctas[rank].expected += bytes;
    ctas[rank].stray += barrier != kFull;
}

inline void mbarrier_arrive_remote(uint32_t barrier, uint32_t to) {
    ctas[to].released += 1;
    ctas[to].stray += barrier != kEmpty;
}

inline void mbarrier_wait_cluster(uint32_t, uint32_t) {}

inline uint32_t shared_address_of(uint32_t address, uint32_t to) { return to * kWindow + address; }

template <class Sum>
void store_shared_async(uint32_t remote, uint32_t barrier, Sum x, Sum y, Sum z, Sum w) {
    Memory& to = ctas[remote / kWindow];
    const uint32_t at = remote % kWindow - kBuffer;
    const Sum values[4] = {x, y, z, w};
    to.arrived += 16;
    to.stray += barrier != remote / kWindow * kWindow + kFull;
    if (at % 16 != 0 || at + 16 > to.bytes.size()) {
        to.stray += 1;
    } else {
        to.written[at / 16] += 1;
        std::memcpy(&to.bytes[at], values, 16);
    }
}

template <class Sum>
void load_shared(uint32_t address, Sum (&value)[4]) { std::memcpy(value, &ctas[rank].bytes.at(address - kBuffer), 16); }

}  // namespace deep_gemm::ptx

#include "deep_gemm/pipeline/exchange.cuh"

namespace deep_gemm {

// One of a thread's sums. Floats are of very different sizes, so that a total depends on the order of its terms; integers, as
// floats, would lose bits.
template <class Sum>
Sum sum(uint32_t cta, uint32_t thread, uint32_t i) {
    const uint32_t mixed = (cta * 131071u + thread * 8191u + i * 127u + 1u) * 2654435761u;
    if constexpr (kSame<Sum, int>) return int(mixed) >> 4;
    else return (float(mixed >> 8) - 8388608.0f) * (mixed & 128 ? 1.0f : 1e-4f);
}

template <class Sum, uint32_t kCtas, uint32_t kTiles, uint32_t kGroups, uint32_t kWarpgroups, uint32_t kOwned>
struct Cluster {
    using Exchange = pipeline::Exchange<Sum, kCtas, kTiles, kGroups, kWarpgroups, kOwned>;
    static constexpr uint32_t kThreads = kWarpgroups * kWarpgroupThreads;

    Sum sums[kGroups * 4], owned[kOwned * 4];

    void take_sums(uint32_t cta, uint32_t thread) {
        for (uint32_t i = 0; i < kGroups * 4; ++i) sums[i] = sum<Sum>(cta, thread, i);
    }

    // Calls step(exchange) as each CTA in turn. CTAs with the same part of K lie side by side.
    template <class Step>
    void each(Step step) {
        for (uint32_t rank = 0; rank < kCtas * kTiles; ++rank) {
            ptx::rank = rank;
            Exchange exchange{ptx::kBuffer, ptx::kFull, ptx::kEmpty, rank / kTiles, rank % kTiles};
            step(exchange);
        }
    }

    void send(const Exchange& exchange) {
        for (uint32_t thread = 0; thread < kThreads; ++thread) {
            take_sums(ptx::rank, thread);
            exchange.send(sums, thread / kWarpgroupThreads, thread % kWarpgroupThreads);
        }
    }

    // Returns how many of the totals are not the parts' sum in order of ranks.
    int receive(const Exchange& exchange) {
        int wrong = 0;
        for (uint32_t thread = 0; thread < kThreads; ++thread) {
            take_sums(ptx::rank, thread);
            exchange.receive(sums, owned, thread / kWarpgroupThreads, thread % kWarpgroupThreads);
            for (uint32_t i = 0; i < kOwned * 4; ++i) {
                const uint32_t element = Exchange::first_group(exchange.rank) * 4 + i;
                Sum total = sum<Sum>(exchange.tile, thread, element);
                for (uint32_t part = 1; part < kCtas; ++part) total += sum<Sum>(part * kTiles + exchange.tile, thread, element);
                wrong += total != owned[i];
            }
        }
        return wrong;
    }

    // One line, of each CTA: arrivals its two barriers wait for, bytes expected and arrived, arrivals of
    // releases, things out of place, slots not written once, first column owned and how many, wrong totals.
    void show() {
        for (auto& cta : ptx::ctas) cta = {std::vector<unsigned char>(Exchange::kBytes), std::vector<int>(Exchange::kBytes / 16)};
        each([](const Exchange& exchange) { exchange.init(); });
        each([this](const Exchange& exchange) { send(exchange); });
        each([this](Exchange& exchange) {
            ptx::Memory& cta = ptx::ctas[ptx::rank];
            const int wrong = exchange.owns() ? receive(exchange) : 0;
            for (uint32_t thread = 0; thread < kThreads; ++thread) exchange.release(thread % kWarpThreads);
            int uneven = 0;
            for (int times : cta.written) uneven += times != (exchange.owns() ? 1 : 0);
            const int first = Exchange::first_group(exchange.rank) * 8;
            cta.findings = {uneven, exchange.owns() ? first : 0, exchange.owns() ? int(kOwned * 8) : 0, wrong};
        });
        for (uint32_t rank = 0; rank < kCtas * kTiles; ++rank) {
            const ptx::Memory& cta = ptx::ctas[rank];
            std::printf("%u %u %u %u ", cta.full_arrivals, cta.empty_arrivals, cta.expected, cta.arrived);
            std::printf("%u %u ", cta.released, cta.stray);
            for (int finding : cta.findings) std::printf("%d ", finding);
        }
        std::printf("\n");
    }
};

}  // namespace deep_gemm

int main() {
#include "cases.inc"
}
