// Casts a matrix with one of the kernels of cuda/cast; compiled by tests/cpu/test_cast_grid.py.
#include "grid.h"
#include "convert.h"
#include "deep_gemm/cast/block.cuh"
#include "deep_gemm/cast/grid.cuh"
#include "deep_gemm/cast/precomputed.cuh"
#include "deep_gemm/cast/row.cuh"
#include "deep_gemm/cast/token.cuh"

#include "kernels.inc"  // DG_FOR_EACH_KERNEL

namespace deep_gemm {

#define KERNEL(function, Config) function<Config>,
static void (*const kKernels[])(const CastParams&) = {DG_FOR_EACH_KERNEL(KERNEL)};

static uint64_t read_word() {
    uint64_t word;
    if (scanf("%llu", &word) != 1) exit(1);
    return word;
}

template <class Word>
static void print(const std::vector<Word>& words) {
    for (Word word : words) printf("%llu ", static_cast<uint64_t>(word));
    printf("\n");
}

// Memory whose address is a multiple of 16, plus `offset`.
struct Bytes {
    std::vector<uint4> memory;
    uint8_t* start;
    Bytes(size_t bytes, unsigned offset) : memory(bytes / 16 + 4) {
        const size_t address = reinterpret_cast<size_t>(memory.data());
        start = reinterpret_cast<uint8_t*>((address + 15) / 16 * 16) + offset;
    }
};

// Reads the kernel's index, its launch, its parameter as the host's struct, and the words of x and of the scales. Prints data,
// scales, the overflow count and the scratch memory, a line each.
static void run() {
    const unsigned index = read_word(), ctas = read_word(), threads = read_word(), resident = read_word();
    const unsigned offset = read_word(), element = read_word();
    const uint64_t size_x = read_word(), size_q = read_word(), size_scales = read_word();
    uint32_t params[sizeof(CastParams) / sizeof(uint32_t)];
    for (uint32_t& word : params) word = read_word();
    CastParams p;
    memcpy(&p, params, sizeof(p));

    Bytes x(size_x * element, offset), q(size_q, offset);
    for (uint64_t i = 0; i < size_x; ++i) {
        const uint64_t bits = read_word();
        memcpy(x.start + i * element, &bits, element);
    }
    std::vector<uint32_t> scales(size_scales), scratch(cast::kScratchWords), amax(p.columns, 0x7f7fffff);
    for (uint32_t& scale : scales) scale = read_word();
    memset(q.start, 0xa5, size_q);
    uint64_t overflow_count = 0;
    p.x = x.start, p.q = q.start, p.scales = reinterpret_cast<float*>(scales.data());
    p.overflow_count = &overflow_count, p.scratch = scratch.data(), p.amax = amax.data();
    run_grid(ctas, threads, resident, [&] { kKernels[index](p); });

    print(std::vector<uint8_t>(q.start, q.start + size_q));
    print(scales);
    print(std::vector<uint64_t>{overflow_count});
    print(scratch);
}

}  // namespace deep_gemm

int main() { deep_gemm::run(); }
