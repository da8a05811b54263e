// What the cast kernels share: their parameter, chunks of 16 bytes of a row, amax.
//
// A kernel reads x [rows, columns] and writes q, one byte an element, and the scales:
//   token.cuh        a scale for each row and kGran columns: a few lanes hold them
//   row.cuh          a scale for each row: a team of threads holds as much of it as fits
//   block.cuh        a scale for each 128 x 128 block, or for each kGran rows of a column: a CTA holds them
//   grid.cuh         one scale for all, or for each column: a cooperative grid that reads x twice
//   precomputed.cuh  the caller's scales
// Members of Config: Input, Output (below, and scale.cuh); kThreads; kAligned, chunks can be loaded and stored whole.
#pragma once
#include "deep_gemm/cast/scale.cuh"
#include "deep_gemm/common/fast_divmod.cuh"
#include "deep_gemm/ptx/control.cuh"
#include "deep_gemm/ptx/convert.cuh"

namespace deep_gemm {

struct CastParams {
    const void* x;
    uint8_t* q;
    float* scales;
    uint64_t* overflow_count;            // of values beyond the format's largest; may be null
    uint32_t* scratch;                   // grid.cuh: zero before and after; at a multiple of 8 bytes
    uint32_t* amax;                      // cast_column: a word for each column, of any value
    int64_t pitch_x, pitch_q;            // from row to row, in elements
    int64_t scale_row, scale_column;     // strides of the scales, in elements
    uint32_t rows, columns;
    FastDivmod per_row;                  // by the blocks, chunks or strips in a row
    FastDivmod gran_rows, gran_columns;  // precomputed.cuh
    uint32_t power_of_two;
};

namespace cast {

// --- chunks -----------------------------------------------------------------------------------

// An input type unpacks a word of a chunk, and takes the maximum of magnitudes word by word; NaN stays.
struct FP32 {
    using Element = uint32_t;
    static constexpr int kChunkSize = 4;

    static __device__ __forceinline__ void unpack(uint32_t word, float* x) { x[0] = __uint_as_float(word); }
    static __device__ __forceinline__ uint32_t max_abs(uint32_t sofar, uint32_t word) {
        return __float_as_uint(ptx::max_nan(__uint_as_float(sofar), fabsf(__uint_as_float(word))));
    }
};

constexpr uint32_t kMagnitudes = 0x7fff7fffu;  // of two halves

struct BF16 {
    using Element = uint16_t;
    static constexpr int kChunkSize = 8;

    static __device__ __forceinline__ void unpack(uint32_t word, float* x) {
        x[0] = __uint_as_float(word << 16);
        x[1] = __uint_as_float(word & 0xffff0000u);
    }
    static __device__ __forceinline__ uint32_t max_abs(uint32_t sofar, uint32_t word) {
        return ptx::max_nan_bf16x2(sofar, word & kMagnitudes);
    }
};

struct FP16 {
    using Element = uint16_t;
    static constexpr int kChunkSize = 8;

    static __device__ __forceinline__ void unpack(uint32_t word, float* x) {
        x[0] = ptx::from_fp16(word);
        x[1] = ptx::from_fp16(word >> 16);
    }
    static __device__ __forceinline__ uint32_t max_abs(uint32_t sofar, uint32_t word) {
        return ptx::max_nan_fp16x2(sofar, word & kMagnitudes);
    }
};

// Elements of a chunk, as int for loops over them.
template <class C>
constexpr int kChunkSize = C::Input::kChunkSize;

template <class C>
__device__ __forceinline__ void unpack(const uint4& raw, float (&x)[kChunkSize<C>]) {
    C::Input::unpack(raw.x, x);
    C::Input::unpack(raw.y, x + kChunkSize<C> / 4);
    C::Input::unpack(raw.z, x + kChunkSize<C> / 2);
    C::Input::unpack(raw.w, x + kChunkSize<C> * 3 / 4);
}

// The chunk of row `row` that starts at `column`; what lies outside of x counts as zero.
// Not __ldg: under dependent launch x may still have been written when this kernel started.
template <class C>
__device__ __forceinline__ uint4 load_chunk(const CastParams& p, uint32_t row, uint32_t column) {
    using Element = typename C::Input::Element;
    const Element* start = static_cast<const Element*>(p.x) + row * p.pitch_x + column;
    const bool exists = row < p.rows && column < p.columns;
    if constexpr (C::kAligned) {
        return exists ? *reinterpret_cast<const uint4*>(start) : uint4{};
    } else {
        const uint32_t count = exists ? p.columns - column : 0;
        uint32_t words[4] = {};
#pragma unroll
        for (uint32_t i = 0; i < kChunkSize<C>; ++i) {
            const uint32_t element = i < count ? start[i] : 0;
            if constexpr (sizeof(Element) == 4) {
                words[i] = element;
            } else {
                words[i / 2] |= element << (i % 2 * 16);
            }
        }
        return uint4{words[0], words[1], words[2], words[3]};
    }
}

template <bool kStreaming, class Word>
__device__ __forceinline__ void store_word(Word* at, Word value) {
    if constexpr (kStreaming) {
        __stcs(at, value);
    } else {
        *at = value;
    }
}

// kStreaming: what is stored leaves L2 before anything else.
template <class C, bool kStreaming>
__device__ __forceinline__ void store_chunk(const CastParams& p, uint32_t row, uint32_t column,
                                            const uint32_t (&packed)[kChunkSize<C> / 4]) {
    if (row >= p.rows || column >= p.columns) return;
    uint8_t* start = p.q + row * p.pitch_q + column;
    if constexpr (!C::kAligned) {
#pragma unroll
        for (uint32_t i = 0; i < kChunkSize<C>; ++i) {
            if (i < p.columns - column) start[i] = packed[i / 4] >> (i % 4 * 8);
        }
    } else if constexpr (kChunkSize<C> == 8) {
        store_word<kStreaming>(reinterpret_cast<uint2*>(start), uint2{packed[0], packed[1]});
    } else {
        store_word<kStreaming>(reinterpret_cast<uint32_t*>(start), packed[0]);
    }
}

// Casts a chunk, stores it, and returns how many values overflow the format.
template <class C, bool kPrecomputed = false, bool kStreaming = false, class S>
__device__ __forceinline__ uint32_t cast_chunk(const CastParams& p, uint32_t row, uint32_t column, uint4 raw,
                                               const S& scales) {
    float x[kChunkSize<C>];
    ptx::opaque(raw);  // chunks unpacked for their amax are not kept unpacked
    unpack<C>(raw, x);
    uint32_t packed[kChunkSize<C> / 4];
    const uint32_t overflows = convert<typename C::Output, kPrecomputed>(x, scales, packed);
    store_chunk<C, kStreaming>(p, row, column, packed);
    return overflows;
}

__device__ __forceinline__ void add_overflows(const CastParams& p, uint32_t overflows) {
    if (__builtin_expect(overflows != 0, 0) && p.overflow_count != nullptr) atomicAdd(p.overflow_count, static_cast<uint64_t>(overflows));
}

template <class C>
__device__ __forceinline__ Scale scale_for(const CastParams& p, float amax, bool infinite) {
    return Scale(scale_of<typename C::Output>(amax, p.power_of_two), infinite);
}

// --- amax -------------------------------------------------------------------------------------

constexpr float kLargestFloat = 0x1.fffffep127f;

// A magnitude that counts: infinities do not.
__device__ __forceinline__ float finite_or_zero(float x) { return fabsf(x) > kLargestFloat ? 0.0f : fabsf(x); }

// Largest magnitude at each place of some chunks; NaN where there is one.
template <class C, int kCount>
__device__ __forceinline__ uint4 max_abs(const uint4 (&chunks)[kCount]) {
    uint4 found = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        found.x = C::Input::max_abs(found.x, chunks[i].x);
        found.y = C::Input::max_abs(found.y, chunks[i].y);
        found.z = C::Input::max_abs(found.z, chunks[i].z);
        found.w = C::Input::max_abs(found.w, chunks[i].w);
    }
    return found;
}

// Raises amax, a column each, to the finite magnitudes of chunks that lie below each other; NaN stays.
// Sets `infinite` where there are infinities.
template <class C, int kCount>
__device__ __forceinline__ void column_amax(const uint4 (&chunks)[kCount], float (&amax)[kChunkSize<C>],
                                            bool& infinite) {
    float found[kChunkSize<C>], x[kChunkSize<C>], any = 0.0f;
    unpack<C>(max_abs<C>(chunks), found);
#pragma unroll
    for (int j = 0; j < kChunkSize<C>; ++j) any = fmaxf(any, found[j]);
    if (__builtin_expect(any > kLargestFloat, 0)) {
        infinite = true;
#pragma unroll
        for (int j = 0; j < kChunkSize<C>; ++j) found[j] = finite_or_zero(found[j]);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            unpack<C>(chunks[i], x);
#pragma unroll
            for (int j = 0; j < kChunkSize<C>; ++j) found[j] = ptx::max_nan(found[j], finite_or_zero(x[j]));
        }
    }
#pragma unroll
    for (int j = 0; j < kChunkSize<C>; ++j) amax[j] = ptx::max_nan(amax[j], found[j]);
}

// Largest finite magnitude of some chunks; NaN where there is one. Sets `infinite` where there are
// infinities and no NaN.
template <class C, int kCount>
__device__ __forceinline__ float finite_amax(const uint4 (&chunks)[kCount], bool& infinite) {
    using Input = typename C::Input;
    const uint4 found = max_abs<C>(chunks);
    float x[kChunkSize<C>];
    Input::unpack(Input::max_abs(Input::max_abs(found.x, found.y), Input::max_abs(found.z, found.w)), x);
    float amax = x[0];
    if constexpr (kChunkSize<C> == 8) amax = ptx::max_nan(amax, x[1]);
    if (__builtin_expect(amax > kLargestFloat, 0)) {
        infinite = true;
        amax = 0.0f;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            unpack<C>(chunks[i], x);
#pragma unroll
            for (int j = 0; j < kChunkSize<C>; ++j) amax = fmaxf(amax, finite_or_zero(x[j]));
        }
    }
    return amax;
}

constexpr uint32_t kWholeWarp = 0xffffffffu;

// The largest of lanes kFirst, 2 kFirst, ... below kEnd apart, in all of them; NaN where one is.
template <uint32_t kFirst, uint32_t kEnd>
__device__ __forceinline__ float lane_amax(float amax) {
#pragma unroll
    for (uint32_t offset = kFirst; offset < kEnd; offset *= 2) {
        amax = ptx::max_nan(amax, __shfl_xor_sync(kWholeWarp, amax, offset));
    }
    return amax;
}

// The largest of all threads of the CTA, in all of them. To be called once.
template <uint32_t kThreads>
__device__ __forceinline__ float cta_amax(float amax) {
    constexpr uint32_t kWarps = kThreads / kWarpThreads;
    __shared__ float parts[kWarps];
    amax = lane_amax<1, kWarpThreads>(amax);
    if (threadIdx.x % kWarpThreads == 0) parts[threadIdx.x / kWarpThreads] = amax;
    __syncthreads();
    return lane_amax<1, kWarps>(parts[threadIdx.x % kWarps]);
}

}  // namespace cast
}  // namespace deep_gemm
