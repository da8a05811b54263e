// What stands in for a cluster: shared memories, copies into and out of them, matrix stores, bytes counted on barriers,
// and the tensor core. One thread runs at a time; barriers are never waited for.
#pragma once
#include "control.hpp"
#define mbarrier_wait device_mbarrier_wait
#define mbarrier_wait_cluster device_mbarrier_wait_cluster
#define mbarrier_arrive_expect_tx device_mbarrier_arrive_expect_tx
#include "deep_gemm/ptx/mbarrier.cuh"
#undef mbarrier_wait
#undef mbarrier_wait_cluster
#undef mbarrier_arrive_expect_tx
#define load_shared device_load_shared
#define store_shared device_store_shared
#define stmatrix_x4 device_stmatrix_x4
#define stmatrix_x2 device_stmatrix_x2
#define stmatrix_x4_transposed device_stmatrix_x4_transposed
#define stmatrix_x2_transposed device_stmatrix_x2_transposed
#define shared_address_of device_shared_address_of
#define store_shared_async device_store_shared_async
#define load_l2 device_load_l2
#define store_global device_store_global
#define pack device_pack
#define widen device_widen
#include "deep_gemm/ptx/memory.cuh"
#undef load_shared
#undef store_shared
#undef stmatrix_x4
#undef stmatrix_x2
#undef stmatrix_x4_transposed
#undef stmatrix_x2_transposed
#undef shared_address_of
#undef store_shared_async
#undef load_l2
#undef store_global
#undef pack
#undef widen
#define tma_load device_tma_load
#define tma_load_multicast device_tma_load_multicast
#define tma_store device_tma_store
#define tma_reduce_add device_tma_reduce_add
#define tma_prefetch device_tma_prefetch
#include "deep_gemm/ptx/tma.cuh"
#undef tma_load
#undef tma_load_multicast
#undef tma_store
#undef tma_reduce_add
#undef tma_prefetch

namespace deep_gemm::ptx {

// --- shared memory ------------------------------------------------------------------------------

struct Memory {
    std::vector<unsigned char> bytes;
    std::map<uint32_t, long> owed;  // by barrier: bytes expected, less those that came
};
static std::vector<Memory> ctas;  // of the cluster
static uint32_t rank, thread;     // whose turn it is; thread: in its warpgroup
static long misplaced;            // accesses that the device would refuse

constexpr uint32_t kWindow = 1 << 20;  // addresses of a CTA's shared memory, as the others see it

// What runs most often is inlined by force, since the rest is compiled with little optimization.
[[gnu::always_inline]] inline unsigned char* shared_at(uint32_t address, uint32_t size) {
    Memory& memory = address < kWindow ? ctas.at(rank) : ctas.at(address / kWindow - 1);
    address %= kWindow;
    misplaced += address % size != 0;
    return &memory.bytes.at(address + size - 1) - (size - 1);
}
template <class T>
[[gnu::always_inline]] inline T get(uint32_t address) {
    T value;
    std::memcpy(&value, shared_at(address, sizeof(T)), sizeof(T));
    return value;
}
template <class T>
void put(uint32_t address, T value) { std::memcpy(shared_at(address, sizeof(T)), &value, sizeof(T)); }

inline uint32_t cluster_rank() { return rank; }
inline void mbarrier_wait(uint32_t, uint32_t) {}
inline void mbarrier_wait_cluster(uint32_t, uint32_t) {}
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) { ctas[rank].owed[barrier] += bytes; }
inline uint32_t shared_address_of(uint32_t address, uint32_t to) { return (to + 1) * kWindow + address; }

static bool deferred;                            // stores of results, and what is read of them
static uint32_t first_of_slabs, end_of_slabs;     // addresses of where they are written
constexpr int kFromSlab = 0x51ab51ab;             // in place of 16 bytes: from there, at the address that follows

inline float load_shared(uint32_t address) { return get<float>(address); }
template <class T, int kCount>
void load_shared(uint32_t address, T (&value)[kCount]) {
    if constexpr (kSame<T, int> && kCount == 4) {
        if (deferred && address >= first_of_slabs && address < end_of_slabs) {
            value[0] = value[2] = value[3] = kFromSlab, value[1] = address;
            return;
        }
    }
    std::memcpy(value, shared_at(address, sizeof(value)), sizeof(value));
}

template <class T>
void store_shared_async(uint32_t remote, uint32_t barrier, T x, T y, T z, T w) {
    const T values[4] = {x, y, z, w};
    std::memcpy(shared_at(remote, 16), values, 16);
    misplaced += barrier / kWindow != remote / kWindow;
    ctas.at(barrier / kWindow - 1).owed[barrier % kWindow] -= 16;
}

// --- stores of results --------------------------------------------------------------------------

// Those of math threads wait until all threads of their warpgroup have asked; so do copies of its first thread, and what any
// of them copies to global memory.
enum Kind { kWords, kMatrix, kTransposed };
struct Store {
    Kind kind;
    uint32_t address;
    std::vector<uint32_t> words;
};
struct Copy {
    const TensorMap* map;
    uint32_t smem;
    int inner, outer, matrix;  // -1: not of a stack
    bool adds;
    size_t after;              // so many stores
    void* to = nullptr;        // 16 bytes there, without a map; of zeros, if not from shared memory
    bool zeros = false;
};
static std::vector<Store> stores[kWarpgroupThreads];
static std::vector<Copy> copies;

template <class T>
uint32_t bits_of(T value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
template <class... T>
void store_shared(uint32_t address, T... values) {
    const std::vector<uint32_t> words{bits_of(values)...};
    misplaced += address % (4 * words.size()) != 0;
    if (deferred) stores[thread].push_back({kWords, address, words});
    else for (uint32_t i = 0; i < words.size(); ++i) put(address + i * 4, words[i]);
}
inline void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({kMatrix, address, {r0, r1, r2, r3}});
}
inline void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) { stores[thread].push_back({kMatrix, address, {r0, r1}}); }
inline void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({kTransposed, address, {r0, r1, r2, r3}});
}
inline void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1) {
    stores[thread].push_back({kTransposed, address, {r0, r1}});
}
static std::vector<Copy> prefetched;
inline void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix = -1) {
    copies.push_back({map, smem, inner, outer, matrix, false, stores[0].size()});
}
inline void tma_reduce_add(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix = -1) {
    copies.push_back({map, smem, inner, outer, matrix, true, stores[0].size()});
}
inline void tma_prefetch(const TensorMap* map, int inner, int outer, int matrix = -1) {
    prefetched.push_back({map, 0, inner, outer, matrix, false, 0});
}
inline void store_global(void* to, const int (&unit)[4]) {
    const bool zeros = unit[0] != kFromSlab;
    misplaced += zeros && (unit[0] || unit[1] || unit[2] || unit[3]);
    copies.push_back({nullptr, zeros ? 0 : uint32_t(unit[1]), 0, 0, -1, false, stores[thread].size(), to, zeros});
}

// The index-th store of a warp's lanes.
inline void store_of_warp(uint32_t warp, size_t index) {
    const auto lane = [&](uint32_t i) -> const Store& { return stores[warp * 32 + i].at(index); };
    if (lane(0).kind == kWords) {
        for (uint32_t i = 0; i < 32; ++i) {
            for (uint32_t word = 0; word < lane(i).words.size(); ++word) put(lane(i).address + word * 4, lane(i).words[word]);
        }
        return;
    }
    const bool transposed = lane(0).kind == kTransposed;
    for (uint32_t block = 0; block < lane(0).words.size(); ++block) {
        for (uint32_t i = 0; i < 64; ++i) {
            const uint32_t row = i / 8, column = i % 8;  // of the block, before it is transposed
            const uint16_t value = lane(row * 4 + column / 2).words[block] >> column % 2 * 16;
            const uint32_t line = transposed ? column : row, place = transposed ? row : column;
            misplaced += lane(block * 8 + line).address % 16 != 0;
            put(lane(block * 8 + line).address + place * 2, value);
        }
    }
}

// Apart from its caller, of which every configuration has one.
inline void sort_copies() {
    std::stable_sort(copies.begin(), copies.end(), [](const Copy& one, const Copy& two) { return one.after < two.after; });
}

// Does what a warpgroup's threads have asked for, in their order; copy(one) does a copy.
template <class Do>
void finish_stores(Do copy) {
    size_t stored = 0;
    sort_copies();
    for (const Copy& next : copies) {
        for (; stored < next.after; ++stored) {
            for (uint32_t warp = 0; warp < 4; ++warp) store_of_warp(warp, stored);
        }
        copy(next);
    }
    for (auto& of_thread : stores) of_thread.clear();
    copies.clear();
}

// --- output elements ----------------------------------------------------------------------------

// Floats are not rounded to 16 bits but folded, so that any other float shows; and those formats differ.
template <class Out>
uint16_t folded(float value) {
    const uint32_t bits = bits_of(value);
    return (bits ^ bits >> 16) ^ (kSame<Out, Float16> ? 0x5a5a : 0);
}
template <class Out>
uint32_t pack(float low, float high) { return folded<Out>(low) | uint32_t(folded<Out>(high)) << 16; }

constexpr uint32_t kNothing = 0x7fc0beef;  // bits of what lies beyond a matrix: as a float NaN
static long beyond;                        // elements read there
template <class Out>
Out from_bits(uint32_t bits) {
    Out value;
    std::memcpy(&value, &bits, sizeof(Out));
    return value;
}
template <class Out>
auto widen(uint32_t bits) {
    constexpr uint32_t kMask = sizeof(Out) == 4 ? ~0u : 0xffffu;
    beyond += bits == (kNothing & kMask);
    if constexpr (sizeof(Out) == 4) return from_bits<Out>(bits);
    else return bits * (kSame<Out, BFloat16> ? 0.25f : 0.125f);
}

template <class T>
T load(const void* address, uint32_t size) {
    misplaced += reinterpret_cast<unsigned long long>(address) % size != 0;
    T value;
    std::memcpy(&value, address, sizeof(T));
    return value;
}
inline uint32_t load_l2(const uint16_t* address) { return load<uint16_t>(address, 2); }
inline uint32_t load_l2(const uint32_t* address) { return load<uint32_t>(address, 4); }
inline void load_l2(const uint32_t* address, uint32_t (&bits)[2]) {
    bits[0] = load<uint32_t>(address, 8), bits[1] = load<uint32_t>(address + 1, 4);
}

// --- operands -----------------------------------------------------------------------------------

// An element, of 1 or 2 bytes, is a small integer of as many.
struct Operand {
    uint32_t matrices, rows, k;
    std::vector<signed char> elements;

    [[gnu::always_inline]] int at(uint32_t row, uint32_t column, uint32_t matrix = 0) const {
        return elements.at((matrix * rows + row) * k + column);
    }
};
static Operand operands[2];
// A row of an operand's matrix.
struct OperandRow {
    uint32_t matrix, row;
};
inline int dot(const OperandRow& a, const OperandRow& b, uint32_t first, uint32_t end) {
    int sum = 0;
    for (uint32_t k = first; k < end; ++k) sum += operands[0].at(a.row, k, a.matrix) * operands[1].at(b.row, k, b.matrix);
    return sum;
}
// Boxes of A that have been loaded.
struct Load {
    int matrix;
    uint32_t outer, rows;
};
static std::vector<Load> loads;

// A map says: operand, bytes of an element, extents of a box, extents, whether rows are contiguous, matrices of a stack, and
// of a group along K where it begins.
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix, uint16_t mask) {
    const auto& words = map->words;
    const Operand& operand = operands[words[0]];
    const uint32_t size = words[1], columns = words[2], rows = words[3], turn = rank;
    misplaced += smem % 1024 != 0 || columns * size != 128 || (matrix >= 0) != (words[7] > 0);
    const uint32_t of_stack = matrix < 0 ? 0 : matrix, first_k = words[8];
    if (words[0] == 0) loads.push_back({matrix, uint32_t(outer), rows});
    for (rank = 0; rank < ctas.size(); ++rank) {
        if (!(mask >> rank & 1)) continue;
        ctas[rank].owed[barrier] -= rows * columns * size;
        for (uint32_t i = 0; i < rows * columns; ++i) {
            const uint32_t x = inner + i % columns, y = outer + i / columns;
            int value = 0;
            if (x < words[4] && y < words[5] && of_stack < operand.matrices) {
                value = words[6] ? operand.at(x, first_k + y, of_stack) : operand.at(y, first_k + x, of_stack);
            }
            uint32_t at = smem + i * size;
            at ^= (at >> 7 & 7) << 4;
            if (size == 1) put<signed char>(at, value);
            else put<short>(at, value);
        }
    }
    rank = turn;
}
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, uint16_t mask) {
    tma_load_multicast(smem, map, barrier, inner, outer, -1, mask);
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix = -1) {
    tma_load_multicast(smem, map, barrier, inner, outer, matrix, 1 << rank);
}

// An element of what a descriptor shows, as in PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
template <class Element, bool kMnMajor>
[[gnu::always_inline]] inline Element element_of(uint64_t descriptor, uint32_t row, uint32_t k) {
    const uint32_t start = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    const uint32_t to_box = (descriptor >> 16 & 0x3fff) << 4;
    const uint32_t row_bytes = 256u >> (descriptor >> 62), units = row_bytes / 16 - 1;  // 128, 64 or 32, all of them swizzled
    uint32_t at = start;
    if (kMnMajor) at += row / 64 * to_box + k / 8 * stride + k % 8 * row_bytes + row % 64 * sizeof(Element);
    else at += row / 8 * stride + row % 8 * row_bytes + k * sizeof(Element);
    at ^= (at >> 7 & units) << 4;
    return get<Element>(at);
}

}  // namespace deep_gemm::ptx

// The kernel is compiled for every configuration, and quickly; what it calls above and below is what takes time to run.
#pragma GCC push_options
#pragma GCC optimize("O0")
#include "deep_gemm/kernels/gemm_math.cuh"
#include "deep_gemm/kernels/gemm_producer.cuh"
#pragma GCC pop_options

namespace deep_gemm {

// The element of a fragment's first row and column that a thread holds: PTX ISA, "wgmma", "Register Fragments".
inline uint32_t first_row() { return ptx::thread / 32 * 16 + ptx::thread % 32 / 4; }
inline uint32_t first_column() { return ptx::thread % 4 * 2; }

// What an MMA adds to a thread's sums: of small integers, so that it is exact.
template <class Element, bool kRowsMnMajor, bool kColumnsMnMajor>
void add_products(int* sums, uint32_t count, uint64_t rows, uint64_t columns) {
    constexpr uint32_t kDepth = 32 / sizeof(Element);
    int of_rows[2][kDepth];
    for (uint32_t k = 0; k < kDepth; ++k) {
        for (uint32_t i = 0; i < 2; ++i) of_rows[i][k] = ptx::element_of<Element, kRowsMnMajor>(rows, first_row() + i * 8, k);
    }
    for (uint32_t i = 0; i < count; i += 4) {
        for (uint32_t j = 0; j < 2; ++j) {
            for (uint32_t k = 0; k < kDepth; ++k) {
                const int one = ptx::element_of<Element, kColumnsMnMajor>(columns, i / 4 * 8 + first_column() + j, k);
                sums[i + j] += of_rows[0][k] * one;
                sums[i + j + 2] += of_rows[1][k] * one;
            }
        }
    }
}

#pragma GCC push_options
#pragma GCC optimize("O0")
template <class C>
struct SimulatedMma {
    using Sum = typename C::Sum;

    template <int kCount>
    static void issue(Sum (&d)[kCount], uint64_t rows, uint64_t columns, bool accumulate) {
        using Element = typename Choose<C::kElementBytes == 1, signed char, short>::Type;
        ptx::misplaced += rows >> 62 != 1 || columns >> 62 != 1;
        int sums[kCount] = {};
        add_products<Element, C::kRowsMnMajor, C::kColumnsMnMajor>(sums, kCount, rows, columns);
        for (uint32_t i = 0; i < kCount; ++i) d[i] = (accumulate ? d[i] : 0) + sums[i];
    }
};
#pragma GCC pop_options

// Products of scales: bf16, K-major, 16 deep; rounded once.
struct ScaleMma {
    template <int kCount>
    static void issue(float (&d)[kCount], uint64_t rows, uint64_t columns, bool) {
        for (uint32_t i = 0; i < kCount; ++i) {
            const uint32_t row = first_row() + i / 2 % 2 * 8, column = i / 4 * 8 + first_column() + i % 2;
            double sum = 0;
            for (uint32_t k = 0; k < 16; ++k) sum += bf16(rows, row, k) * bf16(columns, column, k);
            d[i] = sum;
        }
    }

    static double bf16(uint64_t descriptor, uint32_t row, uint32_t k) {
        return __uint_as_float(uint32_t(ptx::element_of<uint16_t, false>(descriptor, row, k)) << 16);
    }
};

}  // namespace deep_gemm
