// Runs cast kernels on the host. Reads a launch and its matrix, prints data, scales, the count of values
// beyond the format, and what is left in scratch memory.
#include "lanes.hpp"

#include "deep_gemm/kernels/cast_block.cuh"
#include "deep_gemm/kernels/cast_given.cuh"
#include "deep_gemm/kernels/cast_grid.cuh"
#include "deep_gemm/kernels/cast_row.cuh"
#include "deep_gemm/kernels/cast_token.cuh"

#include "cases.h"

namespace deep_gemm {

static uint64_t number() {
    uint64_t value;
    if (std::scanf("%llu", &value) != 1) std::exit(1);
    return value;
}

static Divider divider() {
    Divider d;
    d.divisor = number(), d.multiplier = number(), d.shift = number();
    return d;
}

template <class T>
static void print(const std::vector<T>& values) {
    for (T value : values) std::printf("%llu ", static_cast<unsigned long long>(value));
    std::printf("\n");
}

// Bytes a multiple of 16 from memory that is aligned so, and `offset` more.
struct Bytes {
    std::vector<uint4> memory;
    uint8_t* start;
    Bytes(size_t bytes, unsigned offset) : memory(bytes / 16 + 4) {
        const size_t address = reinterpret_cast<size_t>(memory.data());
        start = reinterpret_cast<uint8_t*>((address + 15) / 16 * 16) + offset;
    }
};

static void run() {
    const unsigned index = number(), blocks = number(), threads = number(), at_once = number();
    CastParams p;
    p.pitch_x = number(), p.pitch_q = number(), p.scale_row = number(), p.scale_column = number();
    p.rows = number(), p.columns = number();
    p.per_row = divider(), p.gran_rows = divider(), p.gran_columns = divider();
    p.power_of_two = number();
    const unsigned offset = number(), element = number();
    const uint64_t size_x = number(), size_q = number(), size_scales = number();

    Bytes x(size_x * element, offset), q(size_q, offset);
    for (uint64_t i = 0; i < size_x; ++i) {
        const uint64_t bits = number();
        std::memcpy(x.start + i * element, &bits, element);
    }
    std::vector<uint32_t> scales(size_scales), scratch(cast::kScratchWords), amax(p.columns, 0x7f7fffff);
    for (uint32_t& scale : scales) scale = number();
    std::memset(q.start, 0xa5, size_q);
    uint64_t beyond = 0;
    p.x = x.start, p.q = q.start, p.scales = reinterpret_cast<float*>(scales.data());
    p.beyond = &beyond, p.scratch = scratch.data(), p.amax = amax.data();
    run_grid(blocks, threads, at_once, [&] { run_case(index, p); });

    print(std::vector<uint8_t>(q.start, q.start + size_q));
    print(scales);
    print(std::vector<uint64_t>{beyond});
    print(scratch);
}

}  // namespace deep_gemm

int main() { deep_gemm::run(); }
