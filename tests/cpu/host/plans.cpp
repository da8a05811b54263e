// What the kernel makes of a configuration's constants, which must pass its assertions; compiled by tests/cpu/test_columns.py.
#include "deep_gemm/kernels/gemm_plan.cuh"

namespace deep_gemm {

// One line: columns of the two parts of a tile and of a piece; CTAs that own one; bytes of shared memory.
template <class C>
void show(GemmParams&, uint32_t) {
    using P = Plan<C>;
    std::printf("%u %u %u %u %u\n", P::kMain, P::kExtra, P::kPiece, P::Exchange::kOwners, P::kSharedBytes);
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)

int main() {
    deep_gemm::GemmParams params{};
    for (unsigned index; std::scanf("%u", &index) == 1;) deep_gemm::show_case(index, params, 1);
}
