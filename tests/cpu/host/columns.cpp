// Which columns a tile has, which scales they meet, and how they reach D; compiled by tests/cpu/test_columns.py.
#define cluster_rank device_cluster_rank
#include "deep_gemm/ptx/control.cuh"
#undef cluster_rank
#define mbarrier_wait device_mbarrier_wait
#include "deep_gemm/ptx/mbarrier.cuh"
#undef mbarrier_wait
#define load_shared device_load_shared
#define store_shared device_store_shared
#define stmatrix_x4 device_stmatrix_x4
#define stmatrix_x2 device_stmatrix_x2
#define stmatrix_x4_transposed device_stmatrix_x4_transposed
#define stmatrix_x2_transposed device_stmatrix_x2_transposed
#define pack_bf16 device_pack_bf16
#include "deep_gemm/ptx/memory.cuh"
#undef load_shared
#undef store_shared
#undef stmatrix_x4
#undef stmatrix_x2
#undef stmatrix_x4_transposed
#undef stmatrix_x2_transposed
#undef pack_bf16
#define tma_store device_tma_store
#include "deep_gemm/ptx/tma.cuh"
#undef tma_store

static unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
static float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

namespace deep_gemm::ptx {

static uint32_t rank;
inline uint32_t cluster_rank() { return rank; }
inline void mbarrier_wait(uint32_t, uint32_t) {}

static std::vector<unsigned char> shared;
template <class T>
T& shared_at(uint32_t address) { return reinterpret_cast<T&>(shared.at(address)); }

inline float load_shared(uint32_t address) { return shared_at<float>(address); }
inline void load_shared(uint32_t address, float (&value)[2]) { std::memcpy(value, &shared.at(address), 8); }
inline void load_shared(uint32_t address, float (&value)[4]) { std::memcpy(value, &shared.at(address), 16); }
inline void store_shared(uint32_t address, float value) { shared_at<float>(address) = value; }

// Matrix stores of each thread of a warpgroup, and the copies of its first one: done when all threads have asked.
struct MatrixStore {
    uint32_t address;
    std::vector<uint32_t> blocks;
    bool transposed;
};
struct Copy {
    const TensorMap* map;
    uint32_t smem;
    int inner, outer;
    size_t after;  // so many matrix stores
};
static std::vector<MatrixStore> stores[kWarpgroupThreads];
static std::vector<Copy> copies;
static uint32_t thread;

inline void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({address, {r0, r1, r2, r3}, false});
}
inline void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1) { stores[thread].push_back({address, {r0, r1}, false}); }
inline void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stores[thread].push_back({address, {r0, r1, r2, r3}, true});
}
inline void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1) { stores[thread].push_back({address, {r0, r1}, true}); }

// Results are whole numbers of 16 bits here.
inline uint32_t pack_bf16(float low, float high) { return uint32_t(low) | uint32_t(high) << 16; }

inline void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer) {
    copies.push_back({map, smem, inner, outer, stores[0].size()});
}

// The index-th matrix store of a warp.
inline void store_matrices(uint32_t warp, size_t index) {
    const auto lane = [&](uint32_t i) -> const MatrixStore& { return stores[warp * 32 + i].at(index); };
    for (uint32_t block = 0; block < lane(0).blocks.size(); ++block) {
        for (uint32_t i = 0; i < 64; ++i) {
            const uint32_t row = i / 8, column = i % 8;  // of the block, before it is transposed
            const uint32_t value = lane(row * 4 + column / 2).blocks[block] >> column % 2 * 16 & 0xffff;
            const uint32_t line = lane(0).transposed ? column : row, place = lane(0).transposed ? row : column;
            shared_at<uint16_t>(lane(block * 8 + line).address + place * 2) = value;
        }
    }
}

}  // namespace deep_gemm::ptx

#include "deep_gemm/kernels/gemm_math.cuh"
#include "deep_gemm/kernels/gemm_producer.cuh"

namespace deep_gemm {

struct NoMma {};

inline float scale_a(uint32_t token, uint32_t block) { return 1.0f + token + 0.25f * block; }
inline float scale_b(uint32_t weights, uint32_t block) { return 3.0f + 0.5f * weights + 16.0f * block; }
inline uint32_t result(uint32_t token, uint32_t weight) { return (token * 251 + weight * 17) % 65521; }

// D, and how often each of its elements was written.
struct Output {
    uint32_t m, n;
    std::vector<int> times;
    int wrong = 0;

    Output(uint32_t m, uint32_t n) : m(m), n(n), times(m * n) {}

    // A map says: columns of a box, rows, bytes over which rows are swizzled.
    void copy(const ptx::Copy& copy) {
        const uint32_t columns = copy.map->words[0], rows = copy.map->words[1], swizzle = copy.map->words[2];
        wrong += copy.smem % 128 != 0;
        for (uint32_t i = 0; i < rows * columns; ++i) {
            const uint32_t token = copy.outer + i / columns, weight = copy.inner + i % columns, at = copy.smem + i * 2;
            const uint32_t units = swizzle ? swizzle / 16 - 1 : 0;
            if (token >= m || weight >= n) continue;
            times[token * n + weight] += 1;
            wrong += ptx::shared_at<uint16_t>(at ^ (at >> 7 & units) << 4) != result(token, weight);
        }
    }
    // What a warpgroup's threads have asked for, in their order.
    void finish() {
        size_t stored = 0;
        for (const ptx::Copy& next : ptx::copies) {
            for (; stored < next.after; ++stored) {
                for (uint32_t warp = 0; warp < 4; ++warp) ptx::store_matrices(warp, stored);
            }
            copy(next);
        }
        for (auto& stores : ptx::stores) stores.clear();
        ptx::copies.clear();
    }
};

template <class C>
struct Tile {
    using P = Plan<C>;
    using Math = MathWarpgroup<C, NoMma>;

    const Cta<C>& cta;
    const scheduler::Dense& tile;
    const Columns<C> columns = cta.columns(tile);

    // Calls visit(element, token, weight) for a thread's elements of a 64-row wave, from the tile's column `first` on.
    template <class Visit>
    void elements(const Math& math, uint32_t wave, uint32_t first, uint32_t count, Visit visit) {
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t row = cta.row(tile) + math.first_row + wave * 64 + math.thread / 32 * 16 + i / 2 % 2 * 8 + math.lane / 4;
            const uint32_t column = columns.at(first + i / 4 * 8 + math.lane % 4 * 2 + i % 2);
            visit(i, C::kSwapped ? column : row, C::kSwapped ? row : column);
        }
    }

    // How many products of D's elements with their scales are wrong, over the k-blocks of a CTA.
    int wrong_scales() {
        for (uint32_t lane = 0; lane < 2 * kWarpThreads; ++lane) produce_scales(cta, lane / kWarpThreads, lane % kWarpThreads);
        int wrong = 0;
        for (uint32_t block = 0; block < cta.k_blocks; ++block) {
            for (uint32_t thread = 0; thread < P::kMathThreads * P::kWaves; ++thread) {
                const uint32_t wave = thread / P::kMathThreads, own = thread % P::kMathThreads;
                Math math(cta, own / kWarpgroupThreads, own % kWarpgroupThreads);
                math.weight = cta.weight(tile) % 128;
                float total[P::kElements] = {}, partial[P::kElements];
                for (float& one : partial) one = 1.0f;
                typename Math::Scales scales;
                math.load_scales(scales, block, wave);
                scales.promote(total, partial);
                elements(math, wave, 0, P::kElements, [&](uint32_t i, uint32_t token, uint32_t weight) {
                    if (token >= cta.m() || weight >= cta.n()) return;
                    const uint32_t at = cta.first_block + block;
                    wrong += !(total[i] == scale_a(token, at) * scale_b(weight / 128, at));
                });
            }
        }
        return wrong;
    }

    void store(Output& output) {
        const auto exchange = cta.exchange();
        if (!exchange.owns()) return;
        const uint32_t first = C::kSplitK > 1 ? exchange.first_group(cta.rank_k) * 8 : 0;
        for (uint32_t warpgroup = 0; warpgroup < C::kMathWarpgroups; ++warpgroup) {
            for (ptx::thread = 0; ptx::thread < kWarpgroupThreads; ++ptx::thread) {
                Math math(cta, warpgroup, ptx::thread);
                for (uint32_t wave = 0; wave < P::kWaves; ++wave) {
                    float sums[P::kPiece / 2];
                    elements(math, wave, first, P::kPiece / 2,
                             [&](uint32_t i, uint32_t token, uint32_t weight) { sums[i] = result(token, weight); });
                    math.store(sums, cta.row(tile) + math.first_row + wave * 64, columns, first);
                }
            }
            output.finish();
        }
    }
};

// Two lines. Of every tile: its first row, the places of its columns, the scale blocks of its two parts. Of all: wrong
// products with scales, wrong results in D, elements of D that no CTA has written, elements written more than once.
template <class C>
void show(GemmParams& params, uint32_t grid) {
    using P = Plan<C>;
    const uint32_t blocks = ceil_div(params.k, kBlockK), weights = ceil_div(params.n, 128);
    std::vector<float> sfa, sfb;
    for (uint32_t i = 0; i < params.m * blocks; ++i) sfa.push_back(scale_a(i / blocks, i % blocks));
    for (uint32_t i = 0; i < weights * blocks; ++i) sfb.push_back(scale_b(i / blocks, i % blocks));
    params.sfa = sfa.data(), params.sfa_stride_m = blocks, params.sfa_stride_k = 1;
    params.sfb = sfb.data(), params.sfb_stride_n = blocks, params.sfb_stride_k = 1;
    Output output(params.m, params.n);
    int wrong_scales = 0;
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        ptx::rank = blockIdx.x % P::kCluster;
        ptx::shared.assign(P::kSharedBytes, 255);
        const Cta<C> cta(params, 0);
        auto tile = cta.tiles();
        tile.next();
        Tile<C> of{cta, tile};
        wrong_scales += of.wrong_scales();
        of.store(output);
        if (cta.rank_k > 0) continue;
        std::printf("%u ", cta.row(tile));
        for (uint32_t offset = 0; offset < C::kBlockN; ++offset) std::printf("%u ", of.columns.at(offset));
        std::printf("%u %u ", cta.scale_block(tile, 0), cta.scale_block(tile, 1));
    }
    int missing = 0, repeated = 0;
    for (int times : output.times) missing += times == 0, repeated += times > 1;
    std::printf("\n%d %d %d %d\n", wrong_scales, output.wrong, missing, repeated);
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)

int main() {
    deep_gemm::GemmParams params{};
    auto& tiles = params.tiles;
    auto &d = params.map_d.words, &rest = params.map_rest.words;
    unsigned index, grid;
    while (std::scanf("%u %u %u %u %u %u %u %u %u", &index, &params.m, &params.n, &params.k, &tiles.clusters_m, &tiles.clusters_n,
                      &tiles.band, &tiles.band_on_m, &grid) == 9) {
        if (std::scanf("%llu %llu %llu %llu %llu %llu", &d[0], &d[1], &d[2], &rest[0], &rest[1], &rest[2]) != 6) return 1;
        deep_gemm::show_case(index, params, grid);
    }
}
