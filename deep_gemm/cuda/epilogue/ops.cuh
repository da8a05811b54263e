// Epilogue ops; chain.cuh says what an op is.
#pragma once
#include "deep_gemm/epilogue/chain.cuh"
#include "deep_gemm/ptx/convert.cuh"

namespace deep_gemm::epilogue {

// value *= alpha.
struct Alpha : Op<Alpha> {
    template <class Traits, int kCount>
    static __device__ __forceinline__ void apply(float (&value)[kCount], const Prefetched<Traits>&, const FragmentCoord<Traits>& coord) {
        const float alpha = coord.cta.params.epilogue.alpha;
#pragma unroll
        for (int i = 0; i < kCount; ++i) value[i] *= alpha;
    }
};

// value = value * (sfa[m] * alpha) * sfb[n], in this order.
struct Scale : Op<Scale> {
    static constexpr bool kNeedsScales = true;

    template <class Traits, int kCount>
    static __device__ __forceinline__ void apply(float (&value)[kCount], const Prefetched<Traits>&, const FragmentCoord<Traits>& coord) {
        const float alpha = coord.cta.params.epilogue.alpha;
        const uint32_t rows = coord.row_scales(), columns = coord.column_scales();
        float row[2] = {ptx::load_shared(rows), ptx::load_shared(rows + 8 * 4)};
        if constexpr (!Traits::kSwapAB) row[0] *= alpha, row[1] *= alpha;
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
            float column[2];
            ptx::load_shared(columns + mma::col_offset(i) * 4, column);
            if constexpr (Traits::kSwapAB) column[0] *= alpha, column[1] *= alpha;
#pragma unroll
            for (int j = i; j < i + 4; ++j) {
                const float row_scale = row[j / 2 % 2], column_scale = column[j % 2];
                value[j] = Traits::kSwapAB ? value[j] * column_scale * row_scale : value[j] * row_scale * column_scale;
            }
        }
    }
};

// value += beta * C[m][n]; exact sums, without beta, where the value is an integer. Each thread reads the elements of its own
// values, a store stage ahead if registers allow (kPrefetchC).
struct AddC : Op<AddC> {
    static constexpr bool kReadsC = true;

    template <class Traits>
    struct Prefetched {
        typename Traits::Value c[Traits::kStoreStageValues];
    };

    template <int kCount, class Traits>
    static __device__ __forceinline__ void prefetch(Prefetched<Traits>& prefetched, const FragmentCoord<Traits>& coord) {
        using Value = typename Traits::Value;
        if constexpr (Traits::kPrefetchC) read(reinterpret_cast<Value(&)[kCount]>(prefetched.c), coord);
    }

    template <class Traits, class Value, int kCount>
    static __device__ __forceinline__ void apply(Value (&value)[kCount], const Prefetched<Traits>& prefetched,
                                                 const FragmentCoord<Traits>& coord) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
            Value c[4];
            if constexpr (!Traits::kPrefetchC) read(c, coord.at_column(mma::col_offset(i)));
#pragma unroll
            for (int j = 0; j < 4; ++j) add(value[i + j], Traits::kPrefetchC ? prefetched.c[i + j] : c[j], coord.cta.params.epilogue);
        }
    }

    template <class Traits>
    static __device__ __forceinline__ void prefetch_tile(const CtaContext<Traits>& cta, const typename Traits::Tile& tile) {
        using Out = typename Traits::Out;
        constexpr uint32_t kLine = 128 / sizeof(Out), kLines = ceil_div(Traits::kNHead, kLine);
        if (cta.rank_k > 0) return;
        const auto& p = cta.params.epilogue;
        const uint32_t first_m = cta.m_idx(tile), first_n = cta.n_idx(tile);
        for (uint32_t i = threadIdx.x % kWarpThreads; i < Traits::kBlockM * kLines; i += kWarpThreads) {
            const uint32_t m = first_m + i / kLines, n = first_n + i % kLines * kLine;
            if (m < cta.m() && n < cta.n()) ptx::prefetch_l2(static_cast<const Out*>(p.c) + m * p.c_stride + n);
        }
    }

private:
    template <class Params>
    static __device__ __forceinline__ void add(float& value, float c, const Params& params) { value = __fmaf_rn(params.beta, c, value); }
    template <class Params>
    static __device__ __forceinline__ void add(int& value, int c, const Params&) { value += c; }

    // C, row-major; zeros beyond M and N.
    template <class Out>
    struct Matrix {
        const Out* c;
        int64_t stride;
        uint32_t m, n;

        template <class Value>
        __device__ __forceinline__ void read_one(uint32_t row, uint32_t column, Value& value) const {
            using Bits = typename Conditional<sizeof(Out) == 4, uint32_t, uint16_t>::Type;
            const bool is_valid = row < m && column < n;
            value = is_valid ? ptx::widen<Out>(ptx::load_l2(reinterpret_cast<const Bits*>(c + row * stride + column))) : 0;
        }
        // Two neighbours, of which the first's column is even: both are in bounds or neither.
        template <class Value>
        __device__ __forceinline__ void read_two(uint32_t row, uint32_t column, Value& first, Value& second) const {
            const auto* address = reinterpret_cast<const uint32_t*>(c + row * stride + column);
            uint32_t bits[2] = {};
            if (row < m && column < n) {
                if constexpr (sizeof(Out) == 4) ptx::load_l2(address, bits);
                else bits[0] = ptx::load_l2(address), bits[1] = bits[0] >> 16, bits[0] &= 0xffff;
            }
            first = ptx::widen<Out>(bits[0]), second = ptx::widen<Out>(bits[1]);
        }
    };

    template <class Traits, class Value, int kCount>
    static __device__ __forceinline__ void read(Value (&c)[kCount], const FragmentCoord<Traits>& coord) {
        using Out = typename Traits::Out;
        const auto& p = coord.cta.params.epilogue;
        const Matrix<Out> matrix{static_cast<const Out*>(p.c), p.c_stride, coord.cta.m(), coord.cta.n()};
#pragma unroll
        for (int i = 0; i < kCount; i += 2) {
            if constexpr (Traits::kSwapAB) {
                matrix.read_one(coord.m(i), coord.n(i), c[i]), matrix.read_one(coord.m(i + 1), coord.n(i + 1), c[i + 1]);
            } else {
                matrix.read_two(coord.m(i), coord.n(i), c[i], c[i + 1]);
            }
        }
    }
};

}  // namespace deep_gemm::epilogue
