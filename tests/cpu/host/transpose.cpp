// Transposes matrices; compiled by tests/cpu/test_cast_grid.py.
#include "grid.h"
#include "deep_gemm/transpose.cuh"

namespace deep_gemm {

template <bool kVectors>
struct Config {
    static constexpr uint32_t kThreads = 256;
    static constexpr bool kAligned = kVectors;
};

// Reads matrices: whether rows are aligned to 16 bytes, rows, columns, pitch of x, pitch of y. Prints of each how many bytes of the
// result are wrong, and how many are written that lie behind a row's last 16.
static void run() {
    unsigned aligned, rows, columns, pitch_x, pitch_y;
    while (scanf("%u %u %u %u %u", &aligned, &rows, &columns, &pitch_x, &pitch_y) == 5) {
        std::vector<uint4> memory_x(rows * pitch_x / 16 + 2), memory_y(columns * pitch_y / 16 + 2);
        uint8_t* x = reinterpret_cast<uint8_t*>(memory_x.data()) + !aligned;
        uint8_t* y = reinterpret_cast<uint8_t*>(memory_y.data());
        for (unsigned i = 0; i < rows * pitch_x; ++i) x[i] = i * 2654435761u >> 24;
        memset(y, 0xa5, columns * pitch_y);
        const unsigned tiles_across = ceil_div(columns, 128);
        const TransposeParams p{x, y, pitch_x, pitch_y, rows, columns, tiles_across};
        run_grid(tiles_across * ceil_div(rows, 128), 256, 2, [&] {
            aligned ? transpose_bytes<Config<true>>(p) : transpose_bytes<Config<false>>(p);
        });
        long wrong = 0, out_of_bounds = 0;
        for (unsigned i = 0; i < columns; ++i) {
            for (unsigned j = 0; j < pitch_y; ++j) {
                const uint8_t found = y[i * pitch_y + j];
                wrong += j < rows && found != x[j * pitch_x + i];
                out_of_bounds += j >= round_up(rows, 16) && found != 0xa5;
            }
        }
        printf("%ld %ld\n", wrong, out_of_bounds);
    }
}

}  // namespace deep_gemm

int main() { deep_gemm::run(); }
