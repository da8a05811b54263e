// What the kernel makes of a configuration's constants, which must pass its assertions; compiled by tests/cpu/test_columns.py.
#include "intrinsics.hpp"
#include "deep_gemm/kernels/gemm_plan.cuh"

namespace deep_gemm {

// One line: elements of a k-block; columns of the two parts of a tile and of a piece; CTAs that own one; where the operands
// of the columns, the slabs, the exchange, the scales along K, the vectors, the tiles and the barriers begin; bytes of shared memory.
template <class C>
void show(GemmParams&, uint32_t) {
    using P = Plan<C>;
    using Exchange = typename P::template Exchange<typename C::Sum>;
    std::printf("%u %u %u %u %u ", P::kBlockK, P::kMain, P::kExtra, P::kPiece, Exchange::kOwners);
    std::printf("%u %u %u %u ", P::kOffsetColumns, P::kOffsetSlabs, P::kOffsetExchange, P::kOffsetScales);
    std::printf("%u %u %u %u\n", P::kOffsetVectors, P::kOffsetTiles, P::kOffsetBarriers, P::kSharedBytes);
}

}  // namespace deep_gemm

#include "cases.inc"  // show_case(index, params, grid)

int main() {
    deep_gemm::GemmParams params{};
    for (unsigned index; std::scanf("%u", &index) == 1;) deep_gemm::show_case(index, params, 1);
}
