// Whole kernels on a simulated cluster, beside the documented arithmetic; compiled by tests/cpu/test_simulated*.py.
//
// Producers fill the stages of a CTA, one stage for each k-block. Then each math thread runs to its end. What math threads store
// to shared memory is deferred until all threads of their warpgroup have run, and so are copies from there to D.
#include <stdio.h>
#include <string.h>

#include <map>
#include <vector>

#include "simulator.hpp"

namespace deep_gemm::ptx {

// --- shared memory ------------------------------------------------------------------------------

struct SharedMemory {
    std::vector<unsigned char> bytes;
    std::map<uint32_t, long> pending_bytes;  // by barrier: expected, less those that arrived
};
static std::vector<SharedMemory> ctas;  // of the cluster
static long num_refused;                // accesses that the device would refuse

constexpr uint32_t kWindow = 1 << 20;  // addresses of a CTA's shared memory, as the others see it

static unsigned char* shared_at(uint32_t address, uint32_t size) {
    SharedMemory& memory = address < kWindow ? ctas.at(rank) : ctas.at(address / kWindow - 1);
    address %= kWindow;
    num_refused += address % size != 0;
    return &memory.bytes.at(address + size - 1) - (size - 1);
}
template <class T>
static T get(uint32_t address) {
    T value;
    memcpy(&value, shared_at(address, sizeof(T)), sizeof(T));
    return value;
}
template <class T>
static void put(uint32_t address, T value) { memcpy(shared_at(address, sizeof(T)), &value, sizeof(T)); }

void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) { ctas[rank].pending_bytes[barrier] += bytes; }
uint32_t map_shared_address(uint32_t address, uint32_t to) { return (to + 1) * kWindow + address; }

void store_cluster(uint32_t remote, uint32_t remote_barrier, const void* values) {
    memcpy(shared_at(remote, 16), values, 16);
    num_refused += remote_barrier / kWindow != remote / kWindow;
    ctas.at(remote_barrier / kWindow - 1).pending_bytes[remote_barrier % kWindow] -= 16;
}

static bool is_deferred;                          // stores of math threads, and what is read of them
static uint32_t store_begin, store_end;           // shared addresses of the store stages
constexpr int kFromStoreStage = 0x51a9e51a;       // in place of 16 bytes: from a store stage, at the address that follows

float load_shared(uint32_t address) { return get<float>(address); }
void load_shared(uint32_t address, float (&value)[2]) { memcpy(value, shared_at(address, 8), 8); }
void load_shared(uint32_t address, float (&value)[4]) { memcpy(value, shared_at(address, 16), 16); }
void load_shared(uint32_t address, int (&value)[4]) {
    if (is_deferred && address >= store_begin && address < store_end) {
        value[0] = value[2] = value[3] = kFromStoreStage, value[1] = address;
    } else {
        memcpy(value, shared_at(address, 16), 16);
    }
}

// --- deferred stores ----------------------------------------------------------------------------

struct Store {
    enum { kWords, kMatrix, kTransposedMatrix } kind;
    uint32_t address, count, words[4];
};
struct Copy {
    const TensorMap* map;
    uint32_t smem;
    int inner, outer, matrix;
    bool adds;
    size_t after;                  // so many stores of the thread
    void* destination = nullptr;  // of 16 bytes that a thread copies, without a map
    bool is_zeros = false;        // they are zeros, not from shared memory
};
static std::vector<Store> stores[kWarpgroupThreads];
static std::vector<Copy> copies, prefetches;

static void store_words(uint32_t address, uint32_t count, const void* words) {
    num_refused += address % (4 * count) != 0;
    if (is_deferred) {
        Store store{Store::kWords, address, count};
        memcpy(store.words, words, 4 * count);
        stores[thread].push_back(store);
    } else {
        memcpy(shared_at(address, 4 * count), words, 4 * count);
    }
}
template <class... T>
static void store_values(uint32_t address, T... values) {
    const uint32_t words[] = {__builtin_bit_cast(uint32_t, values)...};
    store_words(address, sizeof...(T), words);
}
void store_shared(uint32_t address, float value) { store_values(address, value); }
void store_shared(uint32_t address, float x, float y) { store_values(address, x, y); }
void store_shared(uint32_t address, int value) { store_values(address, value); }
void store_shared(uint32_t address, int x, int y) { store_values(address, x, y); }
void store_shared(uint32_t address, int x, int y, int z, int w) { store_values(address, x, y, z, w); }

void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({Store::kMatrix, address, 4, {r0, r1, r2, r3}});
}
void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) { stores[thread].push_back({Store::kMatrix, address, 2, {r0, r1}}); }
void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({Store::kTransposedMatrix, address, 4, {r0, r1, r2, r3}});
}
void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1) {
    stores[thread].push_back({Store::kTransposedMatrix, address, 2, {r0, r1}});
}

void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix) {
    copies.push_back({map, smem, inner, outer, matrix, false, stores[0].size()});
}
void tma_reduce_add(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix) {
    copies.push_back({map, smem, inner, outer, matrix, true, stores[0].size()});
}
void tma_prefetch(const TensorMap* map, int inner, int outer, int matrix) {
    prefetches.push_back({map, 0, inner, outer, matrix, false, 0});
}
void store_global(void* address, const int (&words)[4]) {
    const bool is_zeros = words[0] != kFromStoreStage;
    num_refused += is_zeros && (words[0] || words[1] || words[2] || words[3]);
    const uint32_t smem = is_zeros ? 0 : words[1];
    copies.push_back({nullptr, smem, 0, 0, kNoMatrix, false, stores[thread].size(), address, is_zeros});
}

// The index-th store of a warp's lanes.
static void run_store(uint32_t warp, size_t index) {
    const auto lane = [&](uint32_t i) -> const Store& { return stores[warp * kWarpThreads + i].at(index); };
    if (lane(0).kind == Store::kWords) {
        for (uint32_t i = 0; i < kWarpThreads; ++i) {
            for (uint32_t word = 0; word < lane(i).count; ++word) put(lane(i).address + word * 4, lane(i).words[word]);
        }
        return;
    }
    const bool is_transposed = lane(0).kind == Store::kTransposedMatrix;
    for (uint32_t block = 0; block < lane(0).count; ++block) {
        for (uint32_t i = 0; i < 64; ++i) {
            const uint32_t row = i / 8, column = i % 8;  // of the block, before it is transposed
            const uint16_t value = lane(row * 4 + column / 2).words[block] >> column % 2 * 16;
            const uint32_t line = is_transposed ? column : row, place = is_transposed ? row : column;
            num_refused += lane(block * 8 + line).address % 16 != 0;
            put(lane(block * 8 + line).address + place * 2, value);
        }
    }
}

// Does what a warpgroup's threads have asked for, in their order; run_copy(copy) does a copy.
template <class RunCopy>
static void run_stores(RunCopy run_copy) {
    size_t num_stores = 0;
    for (const Copy& copy : copies) num_stores = copy.after > num_stores ? copy.after : num_stores;
    for (size_t done = 0; done <= num_stores; ++done) {
        for (const Copy& copy : copies) {
            if (copy.after == done) run_copy(copy);
        }
        if (done == num_stores) break;
        for (uint32_t warp = 0; warp < 4; ++warp) run_store(warp, done);
    }
    for (auto& of_thread : stores) of_thread.clear();
    copies.clear();
}

// --- output elements ----------------------------------------------------------------------------

// Floats are not rounded to 16 bits but folded, so that any other float shows; and those formats differ.
static uint16_t fold(float value, bool is_float16) {
    const uint32_t bits = __float_as_uint(value);
    return (bits ^ bits >> 16) ^ (is_float16 ? 0x5a5a : 0);
}
template <class Out>
uint32_t pack(float low, float high) {
    constexpr bool kIsFloat16 = kIsSame<Out, Float16>;
    return fold(low, kIsFloat16) | uint32_t(fold(high, kIsFloat16)) << 16;
}
template uint32_t pack<BFloat16>(float, float);
template uint32_t pack<Float16>(float, float);

constexpr uint32_t kOutOfBounds = 0x7fc0beef;  // bits of what lies beyond a matrix: as a float NaN
static long num_out_of_bounds;                 // elements read there
template <class Out>
typename Conditional<kIsSame<Out, int>, int, float>::Type widen(uint32_t bits) {
    num_out_of_bounds += bits == (sizeof(Out) == 4 ? kOutOfBounds : kOutOfBounds & 0xffff);
    if constexpr (kIsSame<Out, int>) return int(bits);
    else if constexpr (kIsSame<Out, float>) return __uint_as_float(bits);
    else return bits * (kIsSame<Out, BFloat16> ? 0.25f : 0.125f);
}
template float widen<BFloat16>(uint32_t);
template float widen<Float16>(uint32_t);
template float widen<float>(uint32_t);
template int widen<int>(uint32_t);

template <class T>
static T load(const void* address, uint32_t size) {
    num_refused += reinterpret_cast<unsigned long long>(address) % size != 0;
    T value;
    memcpy(&value, address, sizeof(T));
    return value;
}
uint32_t load_l2(const uint16_t* address) { return load<uint16_t>(address, 2); }
uint32_t load_l2(const uint32_t* address) { return load<uint32_t>(address, 4); }
void load_l2(const uint32_t* address, uint32_t (&bits)[2]) {
    bits[0] = load<uint32_t>(address, 8), bits[1] = load<uint32_t>(address + 1, 4);
}

// --- operands -----------------------------------------------------------------------------------

// An element, of 1 or 2 bytes, is a small integer of as many.
struct Operand {
    uint32_t matrices, rows, k;
    std::vector<signed char> elements;

    const signed char* at(uint32_t row, uint32_t column, uint32_t matrix) const { return &elements.at((matrix * rows + row) * k + column); }
};
static Operand operands[2];

// Boxes of A that were loaded.
struct Load {
    int matrix;
    uint32_t outer, rows;
};
static std::vector<Load> loads_a;

// The words of a map here: operand (A, B), bytes of an element, extents of a box (inner, outer), extents, whether it is MN-major,
// matrices of a stack, and the first k of a group along K.
void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix, uint16_t cta_mask) {
    const auto& words = map->words;
    const Operand& operand = operands[words[0]];
    const uint32_t size = words[1], columns = words[2], rows = words[3], first_k = words[8], self = rank;
    const uint32_t stack_idx = matrix == kNoMatrix ? 0 : matrix;
    num_refused += smem % 1024 != 0 || columns * size != 128 || (matrix != kNoMatrix) != (words[7] > 0);
    if (words[0] == 0) loads_a.push_back({matrix, uint32_t(outer), rows});
    for (rank = 0; rank < ctas.size(); ++rank) {
        if (!(cta_mask >> rank & 1)) continue;
        ctas[rank].pending_bytes[barrier] -= rows * columns * size;
        for (uint32_t i = 0; i < rows * columns; ++i) {
            const uint32_t x = inner + i % columns, y = outer + i / columns;
            int value = 0;
            if (x < words[4] && y < words[5] && stack_idx < operand.matrices) {
                value = words[6] ? *operand.at(x, first_k + y, stack_idx) : *operand.at(y, first_k + x, stack_idx);
            }
            uint32_t at = smem + i * size;
            at ^= (at >> 7 & 7) << 4;
            if (size == 1) put<signed char>(at, value);
            else put<short>(at, value);
        }
    }
    rank = self;
}
void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, uint16_t cta_mask) {
    tma_load_multicast(smem, map, barrier, inner, outer, kNoMatrix, cta_mask);
}
void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix) {
    tma_load_multicast(smem, map, barrier, inner, outer, matrix, 1 << rank);
}

}  // namespace deep_gemm::ptx

// --- MMAs -----------------------------------------------------------------------------------------

namespace deep_gemm {

// An element of what a descriptor shows, as in PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
template <class Element>
static Element element_at(uint64_t descriptor, bool is_mn_major, uint32_t row, uint32_t k) {
    const uint32_t start = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    const uint32_t to_box = (descriptor >> 16 & 0x3fff) << 4;
    const uint32_t row_bytes = 256u >> (descriptor >> 62), units = row_bytes / 16 - 1;  // 128, 64 or 32, all of them swizzled
    uint32_t at = start;
    if (is_mn_major) at += row / 64 * to_box + k / 8 * stride + k % 8 * row_bytes + row % 64 * sizeof(Element);
    else at += row / 8 * stride + row % 8 * row_bytes + k * sizeof(Element);
    at ^= (at >> 7 & units) << 4;
    return ptx::get<Element>(at);
}

// What an MMA adds to the accumulators of each thread. Operands in shared memory do not change while math threads run, so it is
// computed once for all threads of a warpgroup.
template <class Sum>
struct Products {
    using Key = std::pair<uint64_t, std::pair<uint64_t, uint64_t>>;  // CTA and count, descriptors

    std::map<Key, std::vector<Sum>> by_key;

    // Returns the `count` sums of the thread that runs; dot(row, column) computes one.
    template <class MakeDot>
    const Sum* get(uint32_t count, uint64_t a, uint64_t b, MakeDot make_dot) {
        std::vector<Sum>& sums = by_key[{uint64_t(ptx::rank) << 32 | count, {a, b}}];
        if (sums.empty()) {
            const auto dot = make_dot();
            // Where a thread's i-th element lies: PTX ISA, "wgmma", "Register Fragments".
            for (uint32_t thread = 0; thread < kWarpgroupThreads; ++thread) {
                const uint32_t row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
                for (uint32_t i = 0; i < count; ++i) sums.push_back(dot(row + i / 2 % 2 * 8, column + i / 4 * 8 + i % 2));
            }
        }
        return &sums[ptx::thread * count];
    }
};
static Products<int> products;
static Products<float> scale_products;

// Rows of 32 bytes that a descriptor shows, one MMA along K.
template <class Element, class Value>
struct Rows {
    static constexpr uint32_t kDepth = 32 / sizeof(Element);
    Value elements[256][kDepth];

    template <class Convert>
    Rows(uint64_t descriptor, bool is_mn_major, uint32_t rows, Convert convert) {
        for (uint32_t row = 0; row < rows; ++row) {
            for (uint32_t k = 0; k < kDepth; ++k) elements[row][k] = convert(element_at<Element>(descriptor, is_mn_major, row, k));
        }
    }
};

template <class Element, class Sum, class Value, class Convert>
static auto make_dot(uint64_t a, OperandLayout layout_a, uint64_t b, OperandLayout layout_b, uint32_t n, Convert convert) {
    using AllRows = Rows<Element, Value>;
    return [rows = AllRows(a, layout_a.is_mn_major, 64, convert), columns = AllRows(b, layout_b.is_mn_major, n, convert)](
               uint32_t row, uint32_t column) {
        Sum sum = 0;
        for (uint32_t k = 0; k < AllRows::kDepth; ++k) sum += Sum(rows.elements[row][k]) * columns.elements[column][k];
        return sum;
    };
}

// Sums of small integers, so that they are exact.
template <class Element>
static const int* products_of(uint32_t count, uint64_t a, uint64_t b, OperandLayout layout_a, OperandLayout layout_b) {
    return products.get(count, a, b, [=] {
        ptx::num_refused += a >> 62 != 1 || b >> 62 != 1;
        return make_dot<Element, int, short>(a, layout_a, b, layout_b, count * 2, [](Element element) { return element; });
    });
}
template <class Accum>
static void run_mma(Accum* accum, uint32_t count, uint64_t a, uint64_t b, bool accumulate, OperandLayout layout_a, OperandLayout layout_b) {
    const auto find = layout_a.element_bytes == 1 ? products_of<signed char> : products_of<short>;
    const int* sums = find(count, a, b, layout_a, layout_b);
    for (uint32_t i = 0; i < count; ++i) accum[i] = (accumulate ? accum[i] : 0) + sums[i];
}
void simulate_mma(int* accum, uint32_t count, uint64_t a, uint64_t b, bool accumulate, OperandLayout layout_a, OperandLayout layout_b) {
    run_mma(accum, count, a, b, accumulate, layout_a, layout_b);
}
void simulate_mma(float* accum, uint32_t count, uint64_t a, uint64_t b, bool accumulate, OperandLayout layout_a, OperandLayout layout_b) {
    run_mma(accum, count, a, b, accumulate, layout_a, layout_b);
}

// Rounded once.
void simulate_scale_mma(float* accum, uint32_t count, uint64_t a, uint64_t b) {
    const float* sums = scale_products.get(count, a, b, [=] {
        const auto widen = [](uint16_t bf16) { return __uint_as_float(uint32_t(bf16) << 16); };
        return make_dot<uint16_t, double, float>(a, {2, false}, b, {2, false}, count * 2, widen);
    });
    memcpy(accum, sums, count * sizeof(float));
}

// --- data -----------------------------------------------------------------------------------------

static unsigned in_place, scale_layout;  // of the launch at hand: whether C is D, and which strides the scales have
// With groups: of every row of D its group, and what becomes of it, alternately.
enum Fate { kStays, kComputed, kZeros };
static std::vector<unsigned> fates;

static uint32_t hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (x ^ x >> 15) * 0x2c1b3c6du;
}
static float random_float(uint32_t seed) { return 0.5f + (hash(seed) >> 8) * 0x1p-24f; }

// A matrix of D's elements, as bits, among elements that are out of bounds: behind its rows, and behind each of them. Rows begin
// at multiples of 16 bytes.
struct Matrix {
    uint32_t pitch, element_bytes;
    std::vector<unsigned char> bytes;

    Matrix(uint32_t m, uint32_t n, uint32_t padding, uint32_t element_bytes)
        : pitch(n + padding), element_bytes(element_bytes), bytes((m + 256) * pitch * element_bytes) {
        for (uint32_t row = 0; row < m + 256; ++row) {
            for (uint32_t column = 0; column < pitch; ++column) set(row, column, ptx::kOutOfBounds);
        }
    }
    unsigned char* at(uint32_t row, uint32_t column) {
        return &bytes.at((row * pitch + column + 1) * element_bytes - 1) + 1 - element_bytes;
    }
    uint32_t get(uint32_t row, uint32_t column) {
        uint32_t bits = 0;
        memcpy(&bits, at(row, column), element_bytes);
        return bits;
    }
    void set(uint32_t row, uint32_t column, uint32_t bits) { memcpy(at(row, column), &bits, element_bytes); }
};

// A launch of a kernel, its tensors, and what it computes.
struct Simulation {
    const Kernel& kernel;
    Launch& launch;
    GemmParams<EpilogueOperands>& params;
    const uint32_t element_bytes, num_groups, rows;  // rows: of D, of all groups
    Matrix c, d, before;                             // before: D
    std::vector<int> times_stored;
    std::vector<float> sfa, sfb;
    std::vector<TensorMap> group_maps;
    alignas(64) unsigned char kernel_params[2048];
    long num_pending = 0, num_wrong_copies = 0, num_inexact = 0, num_needless = 0;

    Simulation(const Kernel& kernel, Launch& launch)
        : kernel(kernel), launch(launch), params(launch.params), element_bytes(kernel.out >= Kernel::kFloat ? 4 : 2),
          num_groups(kernel.is_grouped ? params.groups.num_groups : 1), rows(params.m * (kernel.is_stacked_d ? num_groups : 1)),
          c(rows, params.n, 8, element_bytes), d(rows, params.n, 16, element_bytes), before(d), times_stored(rows * params.n) {
        place_operand(0, kernel.is_stacked_a, params.m);
        place_operand(1, kernel.is_stacked_b, params.n);
        place_outputs();
        place_scales();
        if (kernel.group_kind == GroupKind::kAlongK) place_group_maps();
        ptx::store_begin = kernel.store_begin, ptx::store_end = kernel.store_end;
        kernel.make_params(launch, kernel_params);
    }

    void place_operand(uint32_t index, bool is_stacked, uint32_t operand_rows) {
        ptx::Operand& operand = ptx::operands[index];
        operand = {is_stacked ? num_groups : 1, operand_rows, params.k, {}};
        const uint32_t count = operand.matrices * operand.rows * operand.k;
        for (uint32_t i = 0; i < count; ++i) operand.elements.push_back(int(hash(i * 2 + index) >> 8) % 7 - 3);
    }

    void place_outputs() {
        for (uint32_t i = 0; i < rows * params.n; ++i) {
            const uint32_t row = i / params.n, column = i % params.n;
            c.set(row, column, random_element(i));
            if (in_place || kernel.reduce_adds) d.set(row, column, c.get(row, column));
            else if (kernel.is_grouped) d.set(row, column, random_element(i + 1));
        }
        before = d;
        params.d = d.bytes.data(), params.d_stride = d.pitch, params.d_stride_group = int64_t(params.m) * d.pitch;
        auto& epilogue = params.epilogue;
        epilogue.c = !kernel.reads_c ? nullptr : in_place ? d.bytes.data() : c.bytes.data();
        epilogue.c_stride = in_place ? d.pitch : c.pitch;
        epilogue.alpha = kernel.out == Kernel::kInt ? 1.0f : -1.7f, epilogue.beta = kernel.out == Kernel::kInt ? 1.0f : 0.3f;
    }

    uint32_t random_element(uint32_t seed) const {
        if (kernel.out == Kernel::kFloat) return __float_as_uint(random_float(seed) * 1000.0f - 700.0f);
        if (kernel.out == Kernel::kInt) return int(hash(seed) >> 8) - (1 << 23);
        return hash(seed) >> 17;
    }

    // K of a group: where it begins, its extent, and which column of scales is its first.
    struct Extent {
        uint32_t first = 0, k = 0, first_scale = 0;
    };
    Extent extent_of(uint32_t group) const {
        Extent extent{0, params.k, 0};
        if (kernel.group_kind == GroupKind::kAlongK) {
            const int* extents = params.groups.grouped_layout;
            for (uint32_t i = 0; i < group; ++i) extent.first += extents[i], extent.first_scale += ceil_div(extents[i], 128);
            extent.k = extents[group];
        }
        return extent;
    }

    // Maps of groups, as another kernel leaves them.
    void place_group_maps() {
        for (uint32_t group = 0; group < num_groups; ++group) {
            const Extent extent = extent_of(group);
            for (TensorMap map : {params.map_a, params.map_b}) {
                map.words[map.words[6] ? 5 : 4] = extent.k, map.words[8] = extent.first;
                group_maps.push_back(map);
            }
        }
        params.group_maps = group_maps.data();
    }

    // Scales with strides of one of several layouts: from row to row, and along K.
    void place_scales() {
        const Extent last = extent_of(num_groups - 1);
        const int64_t blocks = last.first_scale + ceil_div(last.k, kernel.block_k), m = params.m;
        const int64_t n = kernel.mainloop == Mainloop::kScaled1d2d ? ceil_div(params.n, 128) : params.n;
        const int64_t strides[4][4] = {
            {blocks, 1, blocks + 2, 1}, {1, m + 3, 1, n}, {2 * blocks + 1, 2, 3, 3 * n + 1}, {0, 1, blocks, 1}};
        const auto& [a_m, a_k, b_n, b_k] = strides[scale_layout % 4];
        params.sfa_stride_m = a_m, params.sfa_stride_k = a_k, params.sfa_stride_group = m * a_m + blocks * a_k;
        params.sfb_stride_n = b_n, params.sfb_stride_k = b_k, params.sfb_stride_group = n * b_n + blocks * b_k;
        sfa.resize(params.sfa_stride_group * (kernel.is_stacked_a ? num_groups : 1));
        sfb.resize(params.sfb_stride_group * (kernel.is_stacked_b ? num_groups : 1));
        for (uint32_t i = 0; i < sfa.size(); ++i) sfa[i] = random_float(i * 2);
        for (uint32_t i = 0; i < sfb.size(); ++i) sfb[i] = random_float(i * 2 + 1);
        params.sfa = sfa.data(), params.sfb = sfb.data();
    }

    // --- documented arithmetic ------------------------------------------------------------------

    // A row of D: its group, and its row in the matrix of D or A that it belongs to.
    struct Row {
        uint32_t d_row, group, m;
    };
    Row row_at(uint32_t d_row) const {
        const uint32_t group = kernel.is_stacked_d ? d_row / params.m : kernel.is_grouped ? fates[d_row * 2] : 0;
        return {d_row, group, kernel.is_stacked_d ? d_row % params.m : d_row};
    }

    int dot(const Row& row, uint32_t n, uint32_t block) const {
        const Extent extent = extent_of(row.group);
        const uint32_t end = (block + 1) * kernel.block_k < extent.k ? (block + 1) * kernel.block_k : extent.k;
        const uint32_t a_group = kernel.is_stacked_a ? row.group : 0, b_group = kernel.is_stacked_b ? row.group : 0;
        const uint32_t first = block * kernel.block_k;
        const signed char* a = ptx::operands[0].at(row.m, extent.first + first, a_group);
        const signed char* b = ptx::operands[1].at(n, extent.first + first, b_group);
        int sum = 0;
        for (uint32_t k = 0; k < end - first; ++k) sum += a[k] * b[k];
        return sum;
    }

    float scale_a(const Row& row, uint32_t block) const {
        const float* scales = params.sfa + (kernel.is_stacked_a ? row.group * params.sfa_stride_group : 0);
        return scales[row.m * params.sfa_stride_m + (extent_of(row.group).first_scale + block) * params.sfa_stride_k];
    }
    float scale_b(const Row& row, uint32_t index, uint32_t block) const {
        const float* scales = params.sfb + (kernel.is_stacked_b ? row.group * params.sfb_stride_group : 0);
        return scales[index * params.sfb_stride_n + (extent_of(row.group).first_scale + block) * params.sfb_stride_k];
    }

    // A scale has 24 bits. With 1D2D scaling the CUDA cores multiply two of them; with 1D1D scaling one more MMA adds the six
    // largest products of their thirds.
    float product(float x, float y) const {
        if (kernel.mainloop != Mainloop::kScaled1d1d) return x * y;
        double thirds[2][3];
        float left[2] = {x, y};
        for (uint32_t i = 0; i < 6; ++i) {
            thirds[i % 2][i / 2] = __uint_as_float(__float_as_uint(left[i % 2]) & 0xffff0000u);
            left[i % 2] -= thirds[i % 2][i / 2];
        }
        const auto &[x1, x2, x3] = thirds[0];
        const auto &[y1, y2, y3] = thirds[1];
        return x1 * y1 + x1 * y2 + x1 * y3 + x2 * y1 + x2 * y2 + x3 * y1;
    }

    template <class Accum>
    Accum sum_of_blocks(const Row& row, uint32_t n, uint32_t first, uint32_t end) {
        Accum total = 0;
        for (uint32_t block = first; block < end; ++block) {
            const Accum partial = dot(row, n, block);
            if (kernel.mainloop == Mainloop::kScaled1d2d || kernel.mainloop == Mainloop::kScaled1d1d) {
                const float a = scale_a(row, block), b = scale_b(row, kernel.mainloop == Mainloop::kScaled1d1d ? n : n / 128, block);
                const float scale = product(a, b);
                num_inexact += !(__builtin_fabs(scale / (double(a) * b) - 1.0) <= 0x1p-21);
                total = __builtin_fmaf(partial, scale, total);
            } else {
                total += partial;
            }
        }
        return total;
    }

    // Parts of a split K, the first ones longer, are summed apart and added in order.
    template <class Accum>
    Accum sum_of_parts(const Row& row, uint32_t n) {
        const uint32_t blocks = ceil_div(extent_of(row.group).k, kernel.block_k);
        Accum sum = 0;
        for (uint32_t part = 0, first = 0; part < kernel.split_k; ++part) {
            const uint32_t end = first + blocks / kernel.split_k + (part < blocks % kernel.split_k);
            const Accum partial = sum_of_blocks<Accum>(row, n, first, end);
            sum = part == 0 ? partial : sum + partial;
            first = end;
        }
        return sum;
    }

    float widen(uint32_t bits) const {
        if (kernel.out == Kernel::kFloat) return ptx::widen<float>(bits);
        return kernel.out == Kernel::kBFloat16 ? ptx::widen<BFloat16>(bits) : ptx::widen<Float16>(bits);
    }

    // Bits of an element of D.
    uint32_t expected(const Row& row, uint32_t n) {
        const uint32_t c_bits = c.get(row.d_row, n);
        if (kernel.out == Kernel::kInt) {
            const int sum = sum_of_parts<int>(row, n);
            return sum + (kernel.reads_c || kernel.reduce_adds ? int(c_bits) : 0);
        }
        float value = kernel.is_integer ? sum_of_parts<int>(row, n) : sum_of_parts<float>(row, n);
        const float alpha = params.epilogue.alpha;
        if (kernel.has_epilogue_scales) value = value * (scale_a(row, 0) * alpha) * scale_b(row, n, 0);
        else value *= alpha;
        if (kernel.reads_c) value = __builtin_fmaf(params.epilogue.beta, widen(c_bits), value);
        if (kernel.reduce_adds) value = __uint_as_float(c_bits) + value;
        return kernel.out == Kernel::kFloat ? __float_as_uint(value) : round(value);
    }

    uint16_t round(float value) const { return ptx::fold(value, kernel.out == Kernel::kFloat16); }

    bool is_zero(uint32_t bits) const {
        if (kernel.out == Kernel::kFloat) return __uint_as_float(bits) == 0;
        return bits == 0 || (kernel.out != Kernel::kInt && (bits == round(0.0f) || bits == round(-0.0f)));
    }

    // --- the kernel -----------------------------------------------------------------------------

    void write(uint32_t row, uint32_t column, uint32_t bits, bool adds) {
        times_stored[row * params.n + column] += 1;
        const uint32_t old = d.get(row, column);
        if (adds && kernel.out == Kernel::kFloat) bits = __float_as_uint(__uint_as_float(old) + __uint_as_float(bits));
        else if (adds && kernel.out == Kernel::kInt) bits += old;
        d.set(row, column, bits);
    }
    uint32_t get_staged(uint32_t smem) const { return element_bytes == 4 ? ptx::get<uint32_t>(smem) : ptx::get<uint16_t>(smem); }

    void run_copy(const ptx::Copy& copy) {
        if (copy.destination) copy_16_bytes(copy);
        else copy_box(copy);
    }

    // The words of a map of D: extents of a box (columns, rows), bytes over which rows are swizzled, and matrices of a stack.
    void copy_box(const ptx::Copy& copy) {
        const uint32_t columns = copy.map->words[0], box_rows = copy.map->words[1], swizzle = copy.map->words[2];
        for (const ptx::Copy& one : ptx::prefetches) {
            num_needless -= one.map == copy.map && one.inner == copy.inner && one.outer == copy.outer && one.matrix == copy.matrix;
        }
        const bool has_matrix = copy.matrix != ptx::kNoMatrix;
        num_wrong_copies += copy.smem % 128 != 0 || copy.adds != kernel.reduce_adds;
        num_wrong_copies += has_matrix != kernel.is_stacked_d || copy.matrix >= int(copy.map->words[3]) + !kernel.is_stacked_d;
        const uint32_t first_row = has_matrix ? copy.matrix * params.m : 0, units = swizzle ? swizzle / 16 - 1 : 0;
        for (uint32_t i = 0; i < box_rows * columns; ++i) {
            const uint32_t m = copy.outer + i / columns, n = copy.inner + i % columns, at = copy.smem + i * element_bytes;
            if (m < params.m && n < params.n) write(first_row + m, n, get_staged(at ^ (at >> 7 & units) << 4), copy.adds);
        }
    }

    void copy_16_bytes(const ptx::Copy& copy) {
        const uint32_t offset = static_cast<unsigned char*>(copy.destination) - d.bytes.data(), count = 16 / element_bytes;
        const uint32_t row = offset / element_bytes / d.pitch, column = offset / element_bytes % d.pitch;
        num_wrong_copies += offset % 16 != 0 || row >= rows || column + count > params.n || kernel.reads_c || kernel.reduce_adds;
        for (uint32_t i = 0; i < count && row < rows && column + i < params.n; ++i) {
            write(row, column + i, copy.is_zeros ? 0 : get_staged(copy.smem + i * element_bytes), false);
        }
    }

    // Calls step() as each CTA of a cluster.
    template <class Step>
    void each_cta(uint32_t cluster, Step step) {
        for (ptx::rank = 0; ptx::rank < kernel.cluster_size; ++ptx::rank) {
            blockIdx.x = cluster * kernel.cluster_size + ptx::rank;
            step();
        }
    }

    void consume(bool is_last) {
        for (uint32_t warpgroup = 0; warpgroup < kernel.num_math_warpgroups; ++warpgroup) {
            kernel.consume(kernel_params, warpgroup);
            ptx::run_stores([&](const ptx::Copy& copy) {
                if (is_last) run_copy(copy);
            });
        }
    }

    // Split-K: partial sums are exchanged in a first pass, whose results are dropped; in the second all CTAs have them.
    void run_cluster(uint32_t cluster) {
        ptx::ctas.assign(kernel.cluster_size, {std::vector<unsigned char>(kernel.shared_bytes, 255), {}});
        products.by_key.clear(), scale_products.by_key.clear();
        ptx::is_deferred = false;
        each_cta(cluster, [&] { kernel.produce(kernel_params); });
        ptx::is_deferred = true;
        if (kernel.split_k > 1) {
            const auto loaded = ptx::ctas;
            const long num_out_of_bounds = ptx::num_out_of_bounds;
            each_cta(cluster, [&] { consume(false); });
            for (uint32_t i = 0; i < kernel.cluster_size; ++i) ptx::ctas[i].pending_bytes = loaded[i].pending_bytes;
            ptx::num_out_of_bounds = num_out_of_bounds;
        }
        each_cta(cluster, [&] { consume(true); });
        for (const ptx::SharedMemory& cta : ptx::ctas) {
            for (const auto& [barrier, bytes] : cta.pending_bytes) num_pending += bytes != 0;
        }
    }

    void run() {
        gridDim.x = launch.grid;
        ptx::prefetches.clear();
        ptx::loads_a.clear();
        for (uint32_t cluster = 0; cluster < launch.grid / kernel.cluster_size; ++cluster) run_cluster(cluster);
        num_needless += ptx::prefetches.size() + num_idle_loads();
    }

    // Boxes of A without a row that is multiplied, where such boxes are to be skipped.
    long num_idle_loads() const {
        const bool skips = kernel.is_grouped && kernel.load_box_m > 0 && kernel.cluster_m == 1;
        if (!skips || kernel.mainloop == Mainloop::kScaled1d1d) return 0;
        long idle = 0;
        for (const ptx::Load& load : ptx::loads_a) {
            bool has_rows = false;
            for (uint32_t row = load.outer; row < load.outer + load.rows && row < params.m; ++row) {
                const uint32_t d_row = load.matrix == ptx::kNoMatrix ? row : load.matrix * params.m + row;
                has_rows = has_rows || fates.at(d_row * 2 + 1) == kComputed;
            }
            idle += !has_rows;
        }
        return idle;
    }

    // Prints a line: wrong elements of D, elements that nobody has stored, elements stored more than once, elements of C read
    // out of bounds, barriers with pending bytes, accesses that the device would refuse, copies to D of another kind than the
    // variant asks for, products of scales that are off by more than 2^-21, elements written that were to stay; boxes of D
    // that were prefetched; those of them that no store adds to, and boxes of A that were loaded for nothing.
    void report() {
        const long num_out_of_bounds = ptx::num_out_of_bounds;
        int wrong = 0, missing = 0, repeated = 0, overwritten = 0;
        for (uint32_t i = 0; i < rows * params.n; ++i) {
            const uint32_t row = i / params.n, column = i % params.n, fate = kernel.is_grouped ? fates.at(row * 2 + 1) : kComputed;
            const uint32_t found = d.get(row, column);
            if (fate == kStays) {
                overwritten += times_stored[i] > 0 || found != before.get(row, column);
                continue;
            }
            missing += times_stored[i] == 0, repeated += times_stored[i] > 1;
            wrong += fate == kZeros ? !is_zero(found) : found != expected(row_at(row), column);
        }
        printf("%d %d %d %ld %ld %ld ", wrong, missing, repeated, num_out_of_bounds, num_pending, ptx::num_refused);
        printf("%ld %ld %d %zu %ld\n", num_wrong_copies, num_inexact, overwritten, ptx::prefetches.size(), num_needless);
    }
};

// --- launches -------------------------------------------------------------------------------------

static std::map<uint32_t, Kernel>& kernels() {
    static std::map<uint32_t, Kernel> found;
    return found;
}
void add_kernel(uint32_t index, const Kernel& kernel) { kernels()[index] = kernel; }

static void read_map(TensorMap& map, int count) {
    for (int i = 0; i < count; ++i) scanf("%llu", &map.words[i]);
}

static void read_groups(scheduler::GroupParams& groups, std::vector<int>& grouped_layout) {
    unsigned words, rows;
    scanf("%u %u %u %u %u %u", &groups.num_groups, &groups.m, &groups.alignment, &groups.zero_fill, &words, &rows);
    grouped_layout.resize(words), fates.resize(rows * 2);
    for (int& word : grouped_layout) scanf("%d", &word);
    for (unsigned& fate : fates) scanf("%u", &fate);
    groups.grouped_layout = grouped_layout.data();
}

static void run_launches() {
    for (Launch launch; launch.read();) {
        auto& params = launch.params;
        std::vector<int> grouped_layout;
        scanf("%u %u %u %u", &params.stage_bytes, &params.early_k_blocks, &in_place, &scale_layout);
        for (auto* map : {&params.map_a, &params.map_b, &params.map_b_tail}) read_map(*map, 8);
        for (auto* map : {&params.map_d, &params.map_d_tail}) read_map(*map, 4);
        read_groups(params.groups, grouped_layout);
        ptx::num_refused = ptx::num_out_of_bounds = 0;
        Simulation simulation(kernels().at(launch.index), launch);
        simulation.run();
        simulation.report();
    }
}

}  // namespace deep_gemm

int main() { deep_gemm::run_launches(); }
