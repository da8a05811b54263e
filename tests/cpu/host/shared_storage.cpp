// Constants of the kernels of configurations, which must pass their assertions, and the layout of their shared memory; compiled
// by tests/cpu/test_columns.py.
#include <stdio.h>

#include "one_thread.hpp"
#include "deep_gemm/epilogue/ops.cuh"

#include "configs.inc"  // DG_FOR_EACH_CONFIG

namespace deep_gemm {

// Elements of a k-block; columns of the N head, of the N tail, and of a split-K owner; owners. Bytes of a stage of A. Offsets of
// B, of what the host plans as one part each, and of the barriers of each kind. The size, and the size that the host passes.
template <class Config, class Traits = GemmTraits<Config>, class Storage = SharedStorage<Traits>>
constexpr uint32_t kRow[] = {
    Traits::kBlockK,
    Traits::kNHead,
    Traits::kNTail,
    Traits::kReduceMmaN,
    Traits::ClusterReduce::kOwners,
    sizeof(typename Storage::A),
    DG_OFFSETOF(Storage, b),
    DG_OFFSETOF(Storage, store),
    DG_OFFSETOF(Storage, reduce),
    DG_OFFSETOF(Storage, scales),
    DG_OFFSETOF(Storage, epilogue_scales),
    DG_OFFSETOF(Storage, work_tiles),
    DG_OFFSETOF(Storage, stage_barriers),
    DG_OFFSETOF(Storage, reduce_barriers),
    DG_OFFSETOF(Storage, epilogue_scale_barriers),
    DG_OFFSETOF(Storage, work_tile_barriers),
    sizeof(Storage),
    Traits::kSharedBytes,
};

#define ROW(index, Config) kRow<Config>,
static const uint32_t* const kRows[] = {DG_FOR_EACH_CONFIG(ROW)};

}  // namespace deep_gemm

// One line for each configuration.
int main() {
    for (const auto* row : deep_gemm::kRows) {
        for (int i = 0; i < 18; ++i) printf("%u ", row[i]);
        printf("\n");
    }
}
