// Tensor maps of groups, and how a warp finds a group, by 32 lanes; compiled by tests/cpu/test_group_tensor_maps.py.
#include "lanes.hpp"
#include "deep_gemm/common/types.cuh"

namespace deep_gemm::ptx {

// Words of a map here: its address, its two extents, its row pitch, and how often one of these was set.
inline void tensor_map_set_address(TensorMap* map, const void* address) {
    map->words[0] = reinterpret_cast<uint64_t>(address), ++map->words[4];
}
template <int kDimension>
void tensor_map_set_extent(TensorMap* map, uint32_t elements) { map->words[1 + kDimension] = elements, ++map->words[4]; }
inline void tensor_map_set_pitch(TensorMap* map, uint64_t bytes) { map->words[3] = bytes, ++map->words[4]; }

static long num_releases;
inline void tensor_map_release() { __atomic_fetch_add(&num_releases, 1, __ATOMIC_SEQ_CST); }

}  // namespace deep_gemm::ptx

#include "deep_gemm/group_tensor_maps.cuh"

namespace deep_gemm {

template <bool kIsKMajor, uint32_t kBytes>
struct Config {
    static constexpr bool kKMajor = kIsKMajor;
    static constexpr uint32_t kElementBytes = kBytes;
};

static uint64_t read_word() {
    uint64_t word;
    if (scanf("%llu", &word) != 1) exit(0);
    return word;
}

// One line: the words of the maps of A and B of every group; then how many threads have released them.
static void print_maps(bool k_major) {
    GroupTensorMapsParams params{};
    const uint32_t num_groups = read_word();
    params.a = reinterpret_cast<const uint8_t*>(read_word()), params.b = reinterpret_cast<const uint8_t*>(read_word());
    params.a_bytes_per_k = read_word(), params.b_bytes_per_k = read_word(), params.total_k = read_word();
    for (uint32_t i = 0; i < 16; ++i) params.map_a.words[i] = i == 4 ? 0 : 100 + i, params.map_b.words[i] = i == 4 ? 0 : 200 + i;
    std::vector<int> extents(num_groups);
    for (int& extent : extents) extent = int(read_word());
    std::vector<TensorMap> maps(num_groups * 2);
    params.extents = extents.data(), params.maps = maps.data();
    ptx::num_releases = 0;
    run_grid(num_groups, 32, 2, [&] {
        if (k_major) group_tensor_maps<Config<true, 1>>(params);
        else group_tensor_maps<Config<false, 2>>(params);
    });
    for (const TensorMap& map : maps) {
        for (uint64_t word : map.words) printf("%llu ", word);
    }
    printf("%ld\n", ptx::num_releases);
}

// One line: the first index that satisfies the predicate, as every lane finds it.
static void print_first() {
    const uint32_t begin = read_word(), end = read_word();
    std::vector<uint32_t> satisfies(end), found(32);
    for (uint32_t& one : satisfies) one = read_word();
    run_grid(1, 32, 1, [&] {
        found[threadIdx.x] = ptx::warp_find_first(begin, end, [&](uint32_t i) { return satisfies.at(i) != 0; });
    });
    for (uint32_t index : found) printf("%u ", index);
    printf("\n");
}

}  // namespace deep_gemm

// Launches with operands that are MN-major (0) or K-major (1), and searches of a warp (2).
int main() {
    for (;;) {
        const auto command = deep_gemm::read_word();
        if (command == 2) deep_gemm::print_first();
        else deep_gemm::print_maps(command == 1);
    }
}
