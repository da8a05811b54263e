// The whole kernel on a simulated cluster, beside the documented arithmetic; compiled by tests/cpu/test_simulated*.py.
#include "device.hpp"

static unsigned in_place, layout;  // of the case at hand: whether C is D, and which strides the scales have
// Of every row of D, where there are groups, its group and what becomes of it, by turns.
enum Fate { kStays, kComputed, kZeros };
static std::vector<unsigned> fates;

namespace deep_gemm {

inline uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (x ^ x >> 15) * 0x2c1b3c6du;
}
inline float random_float(uint32_t seed) { return 0.5f + (mixed(seed) >> 8) * 0x1p-24f; }

template <class Out>
Out random_addend(uint32_t seed) {
    if constexpr (kSame<Out, float>) return random_float(seed) * 1000.0f - 700.0f;
    else if constexpr (kSame<Out, int>) return int(mixed(seed) >> 8) - (1 << 23);
    else return Out{uint16_t(mixed(seed) >> 17)};
}

// A matrix among nothing: with rows behind it, and columns behind each row. Rows begin at multiples of 16 bytes.
template <class Out>
struct Matrix {
    uint32_t pitch;
    std::vector<Out> elements;

    Matrix(uint32_t m, uint32_t n, uint32_t pad) : pitch(n + pad), elements((m + 256) * pitch, ptx::from_bits<Out>(ptx::kNothing)) {}
    Out& at(uint32_t row, uint32_t column) { return elements.at(row * pitch + column); }
};

// So is what is compiled for every configuration; the standard library and device.hpp are optimized.
#pragma GCC push_options
#pragma GCC optimize("O0")
template <class C>
struct Simulation {
    using P = Plan<C>;
    using Out = typename C::Out;
    using Value = typename P::Value;
    using Sum = typename C::Sum;

    GemmParams& params;
    uint32_t groups, rows;  // rows: of D, of all groups
    Matrix<Out> c, d;
    std::vector<Out> before;  // of D
    std::vector<int> times;
    std::vector<float> sfa, sfb;
    std::vector<TensorMap> maps;
    long owed = 0, unfit = 0, inexact = 0, needless = 0;

    explicit Simulation(GemmParams& params)
        : params(params), groups(P::kGrouped ? params.groups.count : 1), rows(params.m * (P::kStacksOutput ? groups : 1)),
          c(rows, params.n, 8), d(rows, params.n, 16), times(rows * params.n) {
        for (uint32_t of = 0; of < 2; ++of) {
            ptx::Operand& operand = ptx::operands[of];
            operand = {(of ? P::kStacksWeights : P::kStacksTokens) ? groups : 1, of ? params.n : params.m, params.k};
            const uint32_t count = operand.matrices * operand.rows * operand.k;
            for (uint32_t i = 0; i < count; ++i) operand.elements.push_back(int(mixed(i * 2 + of) >> 8) % 7 - 3);
        }
        for (uint32_t i = 0; i < rows * params.n; ++i) {
            const uint32_t row = i / params.n, column = i % params.n;
            c.at(row, column) = random_addend<Out>(i);
            if (in_place || C::kAddend == kReduce) d.at(row, column) = c.at(row, column);
            else if (P::kGrouped) d.at(row, column) = random_addend<Out>(i + 1);
        }
        before = d.elements;
        params.c = C::kAddend != kRead ? nullptr : in_place ? d.elements.data() : c.elements.data();
        params.c_stride = in_place ? d.pitch : c.pitch;
        params.d = d.elements.data(), params.d_stride = d.pitch, params.d_stride_group = int64_t(params.m) * d.pitch;
        params.alpha = kSame<Out, int> ? 1.0f : -1.7f, params.beta = kSame<Out, int> ? 1.0f : 0.3f;
        if constexpr (C::kGrouping == scheduler::kAlongK) place_maps();
        ptx::first_of_slabs = P::kOffsetSlabs, ptx::end_of_slabs = P::kOffsetExchange;
    }

    // K of a group: where it begins, its extent, and which column of scales is its first.
    struct Extent {
        uint32_t first = 0, k = 0, first_scale = 0;
    };
    Extent extent_of(uint32_t group) const {
        Extent of{0, params.k, 0};
        if constexpr (C::kGrouping == scheduler::kAlongK) {
            for (uint32_t i = 0; i < group; ++i) of.first += params.groups.of[i], of.first_scale += ceil_div(params.groups.of[i], 128);
            of.k = params.groups.of[group];
        }
        return of;
    }

    // Maps of groups, as another kernel leaves them.
    void place_maps() {
        for (uint32_t group = 0; group < groups; ++group) {
            const Extent of = extent_of(group);
            for (TensorMap map : {params.map_a, params.map_b}) {
                map.words[map.words[6] ? 5 : 4] = of.k, map.words[8] = of.first;
                maps.push_back(map);
            }
        }
        params.group_maps = maps.data();
    }

    // Scales with strides of one of several layouts: from row to row, and along K.
    void place_scales() {
        const Extent last = extent_of(groups - 1);
        const int64_t blocks = last.first_scale + ceil_div(last.k, P::kBlockK), m = params.m;
        const int64_t n = C::kPromotion == kBlock ? ceil_div(params.n, 128) : params.n;
        const int64_t strides[4][4] = {
            {blocks, 1, blocks + 2, 1}, {1, m + 3, 1, n}, {2 * blocks + 1, 2, 3, 3 * n + 1}, {0, 1, blocks, 1}};
        const auto& of = strides[layout % 4];
        params.sfa_stride_m = of[0], params.sfa_stride_k = of[1], params.sfb_stride_n = of[2], params.sfb_stride_k = of[3];
        params.sfa_stride_group = m * of[0] + blocks * of[1], params.sfb_stride_group = n * of[2] + blocks * of[3];
        sfa.resize(params.sfa_stride_group * (P::kStacksTokens ? groups : 1));
        sfb.resize(params.sfb_stride_group * (P::kStacksWeights ? groups : 1));
        for (uint32_t i = 0; i < sfa.size(); ++i) sfa[i] = random_float(i * 2);
        for (uint32_t i = 0; i < sfb.size(); ++i) sfb[i] = random_float(i * 2 + 1);
        params.sfa = sfa.data(), params.sfb = sfb.data();
    }

    // --- documented arithmetic ------------------------------------------------------------------

    // One of D's rows: its group, and its row in the matrices that it belongs to.
    struct Row {
        uint32_t of, group, token;
    };
    Row row_of(uint32_t row) const {
        const uint32_t group = P::kStacksOutput ? row / params.m : P::kGrouped ? fates[row * 2] : 0;
        return {row, group, P::kStacksOutput ? row % params.m : row};
    }

    int dot(const Row& row, uint32_t weight, uint32_t block) const {
        const Extent of = extent_of(row.group);
        const uint32_t end = (block + 1) * P::kBlockK < of.k ? (block + 1) * P::kBlockK : of.k;
        const uint32_t of_tokens = P::kStacksTokens ? row.group : 0, of_weights = P::kStacksWeights ? row.group : 0;
        return ptx::dot({of_tokens, row.token}, {of_weights, weight}, block * P::kBlockK + of.first, end + of.first);
    }

    float scale_of_a(const Row& row, uint32_t block) const {
        const float* of = params.sfa + (P::kStacksTokens ? row.group * params.sfa_stride_group : 0);
        return of[row.token * params.sfa_stride_m + (extent_of(row.group).first_scale + block) * params.sfa_stride_k];
    }
    float scale_of_b(const Row& row, uint32_t weight, uint32_t block) const {
        const float* of = params.sfb + (P::kStacksWeights ? row.group * params.sfb_stride_group : 0);
        return of[weight * params.sfb_stride_n + (extent_of(row.group).first_scale + block) * params.sfb_stride_k];
    }

    // A scale is 24 bits, and a product of two of them one of the CUDA cores, or, with a scale for every row of both operands,
    // the six largest products of their thirds, by one more MMA.
    static float product(float x, float y) {
        if constexpr (C::kPromotion != kRows) return x * y;
        double cut[2][3];
        float rests[2] = {x, y};
        for (uint32_t i = 0; i < 6; ++i) {
            float& rest = rests[i % 2];
            cut[i % 2][i / 2] = __uint_as_float(__float_as_uint(rest) & 0xffff0000u);
            rest -= cut[i % 2][i / 2];
        }
        const auto &[x1, x2, x3] = cut[0];
        const auto &[y1, y2, y3] = cut[1];
        return x1 * y1 + x1 * y2 + x1 * y3 + x2 * y1 + x2 * y2 + x3 * y1;
    }

    Sum sum_of_blocks(const Row& row, uint32_t weight, uint32_t first, uint32_t end) {
        Sum total = 0;
        for (uint32_t block = first; block < end; ++block) {
            const Sum partial = dot(row, weight, block);
            if constexpr (P::kScalesAlongK) {
                const float of_a = scale_of_a(row, block), of_b = scale_of_b(row, C::kPromotion == kRows ? weight : weight / 128, block);
                const float scale = product(of_a, of_b);
                inexact += !(std::fabs(scale / (double(of_a) * of_b) - 1.0) <= 0x1p-21);
                total = __builtin_fmaf(partial, scale, total);
            } else {
                total += partial;
            }
        }
        return total;
    }

    // Parts of K, the first ones longer, are summed apart and added in order.
    Value result(const Row& row, uint32_t weight) {
        const uint32_t blocks = ceil_div(extent_of(row.group).k, P::kBlockK);
        Sum sum = 0;
        for (uint32_t part = 0, first = 0; part < C::kSplitK; ++part) {
            const uint32_t end = first + blocks / C::kSplitK + (part < blocks % C::kSplitK);
            const Sum own = sum_of_blocks(row, weight, first, end);
            sum = part == 0 ? own : sum + own;
            first = end;
        }
        Value value = static_cast<Value>(sum);
        if constexpr (kSame<Value, float>) {
            if constexpr (P::kScaled) value = value * (scale_of_a(row, 0) * params.alpha) * scale_of_b(row, weight, 0);
            else value *= params.alpha;
        }
        return value;
    }

    Out expected(const Row& row, uint32_t weight) {
        Value value = result(row, weight);
        if constexpr (C::kAddend == kRead) {
            uint32_t bits = 0;
            std::memcpy(&bits, &c.at(row.of, weight), sizeof(Out));
            const Value addend = ptx::widen<Out>(bits);
            if constexpr (kSame<Value, int>) value += addend;
            else value = __builtin_fmaf(params.beta, addend, value);
        }
        if constexpr (C::kAddend == kReduce) return c.at(row.of, weight) + value;
        else if constexpr (sizeof(Out) == 2) return Out{ptx::folded<Out>(value)};
        else return value;
    }

    // --- the kernel -----------------------------------------------------------------------------

    void write(uint32_t row, uint32_t column, Out value, bool adds) {
        times[row * params.n + column] += 1;
        if constexpr (sizeof(Out) == 4) d.at(row, column) = adds ? d.at(row, column) + value : value;
        else d.at(row, column) = value;
    }

    // A map of D says: columns of a box, rows, bytes over which rows are swizzled, and how many matrices there are.
    void copy(const ptx::Copy& copy) {
        if (copy.to) return copy_unit(copy);
        const uint32_t columns = copy.map->words[0], rows = copy.map->words[1], swizzle = copy.map->words[2];
        const auto same = [&](const ptx::Copy& one) {
            return one.map == copy.map && one.inner == copy.inner && one.outer == copy.outer && one.matrix == copy.matrix;
        };
        needless -= std::count_if(ptx::prefetched.begin(), ptx::prefetched.end(), same);
        unfit += copy.smem % 128 != 0 || copy.adds != (C::kAddend == kReduce);
        unfit += (copy.matrix >= 0) != P::kStacksOutput || copy.matrix >= int(copy.map->words[3]) + !P::kStacksOutput;
        const uint32_t first = copy.matrix < 0 ? 0 : copy.matrix * params.m;
        for (uint32_t i = 0; i < rows * columns; ++i) {
            const uint32_t token = copy.outer + i / columns, weight = copy.inner + i % columns;
            const uint32_t at = copy.smem + i * sizeof(Out), units = swizzle ? swizzle / 16 - 1 : 0;
            if (token >= params.m || weight >= params.n) continue;
            write(first + token, weight, ptx::get<Out>(at ^ (at >> 7 & units) << 4), copy.adds);
        }
    }

    // 16 bytes that a thread stores.
    void copy_unit(const ptx::Copy& copy) {
        const auto place = static_cast<Out*>(copy.to) - d.elements.data();
        const uint32_t row = place / d.pitch, column = place % d.pitch;
        unfit += place * sizeof(Out) % 16 != 0 || row >= rows || column + 16 / sizeof(Out) > params.n || C::kAddend != kNoAddend;
        for (uint32_t i = 0; i < 16 / sizeof(Out) && row < rows && column + i < params.n; ++i) {
            write(row, column + i, copy.zeros ? ptx::from_bits<Out>(0) : ptx::get<Out>(copy.smem + i * sizeof(Out)), false);
        }
    }

    // Calls step(cta) as each CTA of the current cluster in turn.
    template <class Step>
    void each(uint32_t cluster, Step step) {
        for (uint32_t rank = 0; rank < P::kCluster; ++rank) {
            ptx::rank = rank;
            blockIdx.x = cluster * P::kCluster + rank;
            step(Cta<C>(params, 0));
        }
    }

    static void produce(const Cta<C>& cta) {
        ptx::deferred = false;
        if constexpr (C::kPromotion == kRows) {
            for (threadIdx.x = 0; threadIdx.x < P::kMathThreads + kWarpgroupThreads; ++threadIdx.x) clear_scales(cta);
        }
        if constexpr (P::kHasWalker) walk_groups(cta);
        produce_operands(cta);
        for (uint32_t lane = 0; lane < kWarpThreads; ++lane) {
            if constexpr (C::kPromotion == kRows) {
                for (uint32_t warp = 0; warp < kOuterWarps; ++warp) produce_outer_scales(cta, warp, lane);
            } else if constexpr (P::kScalesAlongK) produce_block_scales(cta, 0, lane), produce_block_scales(cta, 1, lane);
            else if constexpr (P::kScaled) produce_vectors(cta, lane);
        }
    }

    void compute_all(const Cta<C>& cta, bool keep) {
        ptx::deferred = true;
        for (uint32_t warpgroup = 0; warpgroup < C::kMathWarpgroups; ++warpgroup) {
            for (ptx::thread = 0; ptx::thread < kWarpgroupThreads; ++ptx::thread) {
                compute<C, SimulatedMma<C>>(cta, warpgroup, ptx::thread);
            }
            ptx::finish_stores([&](const ptx::Copy& one) {
                if (keep) copy(one);
            });
        }
    }

    // Boxes of A without a row that is multiplied, where such are to be left out.
    long idle_loads() const {
        constexpr uint32_t kBox = C::kSwapped ? C::kSomeColumns : C::kSomeRows, kSharers = C::kSwapped ? C::kClusterN : C::kClusterM;
        constexpr bool kLeavesOut = P::kGrouped && kBox > 0 && kSharers == 1 && C::kPromotion != kRows;
        if (!kLeavesOut) return 0;
        return std::count_if(ptx::loads.begin(), ptx::loads.end(), [this](const ptx::Load& load) {
            for (uint32_t row = load.outer; row < load.outer + load.rows && row < params.m; ++row) {
                if (fates.at((load.matrix < 0 ? row : load.matrix * params.m + row) * 2 + 1) == kComputed) return false;
            }
            return true;
        });
    }

    // Sums are exchanged in a first turn, whose results are of none; every CTA has them in the second.
    void run(uint32_t grid) {
        gridDim.x = grid;
        ptx::prefetched.clear();
        ptx::loads.clear();
        for (uint32_t cluster = 0; cluster < grid / P::kCluster; ++cluster) {
            ptx::ctas.assign(P::kCluster, {std::vector<unsigned char>(P::kSharedBytes, 255)});
            each(cluster, [](const Cta<C>& cta) { produce(cta); });
            if (C::kSplitK > 1) {
                const auto loaded = ptx::ctas;
                const long read = ptx::beyond;
                each(cluster, [this](const Cta<C>& cta) { compute_all(cta, false); });
                for (uint32_t i = 0; i < P::kCluster; ++i) ptx::ctas[i].owed = loaded[i].owed;
                ptx::beyond = read;
            }
            each(cluster, [this](const Cta<C>& cta) { compute_all(cta, true); });
            for (const ptx::Memory& cta : ptx::ctas) {
                for (const auto& [barrier, bytes] : cta.owed) owed += bytes != 0;
            }
        }
        needless += ptx::prefetched.size() + idle_loads();
    }
};

// Zeros as they may be stored.
template <class Out>
bool is_zero(Out found) {
    if constexpr (sizeof(Out) == 4) return found == 0;
    else return found.bits == 0 || found.bits == ptx::folded<Out>(0.0f) || found.bits == ptx::folded<Out>(-0.0f);
}

// One line: wrong elements of D, elements that nobody has stored, elements stored more than once, elements of C read where
// there are none, barriers whose bytes did not come out even, accesses that the device would refuse, copies to D of another kind
// than the form asks for, products of scales that are off by more than 2^-21, elements written that were to stay; boxes of D
// brought to L2; those of them that no store adds to, and boxes of A that were loaded for nothing.
template <class C>
void show(GemmParams& params, uint32_t grid) {
    Simulation<C> simulated(params);
    simulated.place_scales();
    ptx::misplaced = ptx::beyond = 0;
    simulated.run(grid);
    const long beyond = ptx::beyond;
    int wrong = 0, missing = 0, repeated = 0, spoilt = 0;
    for (uint32_t i = 0; i < simulated.rows * params.n; ++i) {
        const uint32_t row = i / params.n, column = i % params.n, fate = Plan<C>::kGrouped ? fates.at(row * 2 + 1) : kComputed;
        const auto found = simulated.d.at(row, column), was = simulated.before.at(row * simulated.d.pitch + column);
        if (fate == kStays) {
            spoilt += simulated.times[i] > 0 || std::memcmp(&was, &found, sizeof(was)) != 0;
            continue;
        }
        missing += simulated.times[i] == 0, repeated += simulated.times[i] > 1;
        if (fate == kZeros) {
            wrong += !is_zero(found);
            continue;
        }
        const auto right = simulated.expected(simulated.row_of(row), column);
        wrong += std::memcmp(&right, &found, sizeof(right)) != 0;
    }
    std::printf("%d %d %d %ld %ld %ld %ld %ld %d %zu %ld\n", wrong, missing, repeated, beyond, simulated.owed, ptx::misplaced,
                simulated.unfit, simulated.inexact, spoilt, ptx::prefetched.size(), simulated.needless);
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)
#pragma GCC pop_options
#include "launch.hpp"

static void read(unsigned long long (&words)[16], int count) {
    for (int i = 0; i < count; ++i) std::scanf("%llu", &words[i]);
}

static void read_groups(deep_gemm::scheduler::GroupParams& groups, std::vector<int>& of) {
    unsigned words, rows;
    std::scanf("%u %u %u %u %u %u", &groups.count, &groups.tokens, &groups.alignment, &groups.clears, &words, &rows);
    of.resize(words), fates.resize(rows * 2);
    for (int& word : of) std::scanf("%d", &word);
    for (unsigned& fate : fates) std::scanf("%u", &fate);
    groups.of = of.data();
}

int main() {
    for (Launch launch; launch.read();) {
        auto& params = launch.params;
        std::scanf("%u %u %u %u", &params.stage_bytes, &params.early_blocks, &in_place, &layout);
        for (auto* map : {&params.map_a, &params.map_b, &params.map_extra}) read(map->words, 8);
        for (auto* map : {&params.map_d, &params.map_rest}) read(map->words, 4);
        std::vector<int> of;
        read_groups(params.groups, of);
        deep_gemm::show_case(launch.index, launch.params, launch.grid);
    }
}
