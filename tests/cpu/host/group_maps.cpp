// Maps of groups, and how a warp looks for a group, by 32 lanes; compiled by tests/cpu/test_group_maps.py.
#include "lanes.hpp"

#define tensor_map_set_address device_tensor_map_set_address
#define tensor_map_set_extent device_tensor_map_set_extent
#define tensor_map_set_pitch device_tensor_map_set_pitch
#define tensor_map_release device_tensor_map_release
#include "deep_gemm/ptx/tensor_map.cuh"
#undef tensor_map_set_address
#undef tensor_map_set_extent
#undef tensor_map_set_pitch
#undef tensor_map_release

namespace deep_gemm::ptx {

// A map here has its address, its extents, its pitch in its first words, and says in the next how often each was set.
static long released;
inline void tensor_map_set_address(TensorMap* map, const void* address) {
    map->words[0] = reinterpret_cast<uint64_t>(address), ++map->words[4];
}
template <int kDimension>
void tensor_map_set_extent(TensorMap* map, uint32_t elements) { map->words[1 + kDimension] = elements, ++map->words[4]; }
inline void tensor_map_set_pitch(TensorMap* map, uint64_t bytes) { map->words[3] = bytes, ++map->words[4]; }
inline void tensor_map_release() { __atomic_fetch_add(&released, 1, __ATOMIC_SEQ_CST); }

}  // namespace deep_gemm::ptx

#include "deep_gemm/kernels/group_maps.cuh"

namespace deep_gemm {

template <bool kContiguous, uint32_t kBytes>
struct Config {
    static constexpr bool kKMajor = kContiguous;
    static constexpr uint32_t kElementBytes = kBytes, kParamsBytes = sizeof(GroupMapsParams);
};

static uint64_t number() {
    uint64_t value;
    if (std::scanf("%llu", &value) != 1) std::exit(0);
    return value;
}

// One line: of A and B of every group the words of the map; then how many threads have released it.
static void maps_of_groups(bool k_major) {
    GroupMapsParams params{};
    const uint32_t groups = number();
    params.a = reinterpret_cast<const uint8_t*>(number()), params.b = reinterpret_cast<const uint8_t*>(number());
    params.a_bytes = number(), params.b_bytes = number(), params.total = number();
    for (uint32_t i = 0; i < 16; ++i) params.map_a.words[i] = i == 4 ? 0 : 100 + i, params.map_b.words[i] = i == 4 ? 0 : 200 + i;
    std::vector<int> extents(groups);
    for (int& extent : extents) extent = static_cast<int>(number());
    std::vector<TensorMap> maps(groups * 2);
    params.extents = extents.data(), params.maps = maps.data();
    ptx::released = 0;
    run_grid(groups, 32, 2, [&] { k_major ? group_maps<Config<true, 1>>(params) : group_maps<Config<false, 2>>(params); });
    for (const TensorMap& map : maps) {
        for (uint64_t word : map.words) std::printf("%llu ", word);
    }
    std::printf("%ld\n", ptx::released);
}

// One line: what every lane takes for the first that holds.
static void first_of_warp() {
    const uint32_t from = number(), count = number();
    std::vector<uint32_t> holds(count), found(32);
    for (uint32_t& one : holds) one = number();
    run_grid(1, 32, 1, [&] { found[this_thread.x] = ptx::first_of(from, count, [&](uint32_t i) { return holds.at(i) != 0; }); });
    for (uint32_t one : found) std::printf("%u ", one);
    std::printf("\n");
}

}  // namespace deep_gemm

int main() {
    for (;;) {
        const auto what = deep_gemm::number();
        if (what == 2) deep_gemm::first_of_warp();
        else deep_gemm::maps_of_groups(what == 1);
    }
}
