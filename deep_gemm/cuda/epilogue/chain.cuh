// The epilogue as a composition: a compile-time list of ops between the accumulators and the store. An absent op costs nothing.
//
// An op is a struct derived from Op<itself> in ops.cuh, all of whose members are static:
//   kNeedsScales, kReadsC            what the rest of the kernel provides for it
//   apply(value, prefetched, coord)  changes a thread's values of one store stage
//   Prefetched, prefetch(...)        operands loaded to registers one store stage ahead
//   prefetch_tile(cta, tile)         called by a producer warp when a tile's main loop begins: brings operands to L2
// It finds its own operands in cta.params.epilogue, whose members the host renders from the same table that names the op
// (EPILOGUE_OPS in problem/epilogue.py).
#pragma once
#include "deep_gemm/gemm/cta.cuh"

namespace deep_gemm::epilogue {

// Where a thread's values of one store stage lie. Index i counts the values.
template <class Traits>
struct FragmentCoord {
    const CtaContext<Traits>& cta;
    uint32_t slot;              // of the tile among those in flight, for its epilogue scales
    uint32_t tile_mma_m;        // first row of the tile along mma_m
    uint32_t slice_mma_m;       // first row of the slice
    SplitRange<CtaContext<Traits>::kNHead> tile_mma_n;  // columns of the tile
    uint32_t tile_col;          // the stage's first column in the tile
    uint32_t thread_row, thread_col;  // the thread's first element in the slice and in the stage

    __device__ __forceinline__ FragmentCoord at_column(uint32_t offset) const {
        return {cta, slot, tile_mma_m, slice_mma_m, tile_mma_n, tile_col + offset, thread_row, thread_col};
    }
    // Along the axes of the MMA.
    __device__ __forceinline__ uint32_t row(uint32_t i) const { return slice_mma_m + thread_row + mma::row_offset(i); }
    __device__ __forceinline__ uint32_t column(uint32_t i) const { return tile_mma_n.at(tile_col + thread_col + mma::col_offset(i)); }
    // Of D.
    __device__ __forceinline__ uint32_t m(uint32_t i) const { return Traits::kSwapAB ? column(i) : row(i); }
    __device__ __forceinline__ uint32_t n(uint32_t i) const { return Traits::kSwapAB ? row(i) : column(i); }
    // Shared addresses of the epilogue scales of the thread's first row and first column; those that follow are 4 bytes apart.
    __device__ __forceinline__ uint32_t row_scales() const {
        const uint32_t scales = Traits::kSwapAB ? cta.epilogue_scales_n(slot) : cta.epilogue_scales_m(slot);
        return scales + (slice_mma_m - tile_mma_m + thread_row) * 4;
    }
    __device__ __forceinline__ uint32_t column_scales() const {
        return (Traits::kSwapAB ? cta.epilogue_scales_m(slot) : cta.epilogue_scales_n(slot)) + (tile_col + thread_col) * 4;
    }
};

// What an op has unless it says otherwise.
template <class Self>
struct Op {
    static constexpr bool kNeedsScales = false;  // one for each m and each n of the tile, in shared memory
    static constexpr bool kReadsC = false;

    template <class Traits>
    struct Prefetched {};
    template <int kCount, class Traits>
    static __device__ __forceinline__ void prefetch(Prefetched<Traits>&, const FragmentCoord<Traits>&) {}
    template <class Traits>
    static __device__ __forceinline__ void prefetch_tile(const CtaContext<Traits>&, const typename Traits::Tile&) {}
};

template <class... Ops>
struct Chain {
    static constexpr bool kNeedsScales = (Ops::kNeedsScales || ...), kReadsC = (Ops::kReadsC || ...);

    template <class Traits>
    struct Prefetched : Ops::template Prefetched<Traits>... {};

    template <int kCount, class Traits>
    static __device__ __forceinline__ void prefetch(Prefetched<Traits>& prefetched, const FragmentCoord<Traits>& coord) {
        (Ops::template prefetch<kCount>(static_cast<typename Ops::template Prefetched<Traits>&>(prefetched), coord), ...);
    }
    template <class Traits, class Value, int kCount>
    static __device__ __forceinline__ void apply(Value (&value)[kCount], const Prefetched<Traits>& prefetched,
                                                 const FragmentCoord<Traits>& coord) {
        (Ops::apply(value, static_cast<const typename Ops::template Prefetched<Traits>&>(prefetched), coord), ...);
    }
    template <class Traits>
    static __device__ __forceinline__ void prefetch_tile(const CtaContext<Traits>& cta, const typename Traits::Tile& tile) {
        (Ops::prefetch_tile(cta, tile), ...);
    }
};

}  // namespace deep_gemm::epilogue
