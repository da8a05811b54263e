// Fixed-width types and small compile-time helpers: no toolkit or standard header is included.
#pragma once

// Byte offset of a member. NVRTC has neither offsetof nor __builtin_offsetof, only the compiler's primitive behind them.
#ifdef __CUDACC_RTC__
#define DG_OFFSETOF(type, member) __INTADDR__(&((type*)0)->member)
#else
#define DG_OFFSETOF(type, member) __builtin_offsetof(type, member)
#endif

namespace deep_gemm {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int64_t = long long;

// An encoded CUtensorMap, passed inside a kernel's parameter.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

// 16-bit floats; kernels handle only their bits.
struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

template <class First, class Second>
constexpr bool kIsSame = false;
template <class Type>
constexpr bool kIsSame<Type, Type> = true;

template <bool kFirst, class First, class Second>
struct Conditional {
    using Type = First;
};
template <class First, class Second>
struct Conditional<false, First, Second> {
    using Type = Second;
};

// An array that may have no elements. As a [[no_unique_address]] member it then takes no space.
template <class Type, uint32_t kCount>
struct Array {
    Type elements[kCount];
};
template <class Type>
struct Array<Type, 0> {};

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kWarpgroupThreads = 128;

__host__ __device__ constexpr uint32_t ceil_div(uint32_t x, uint32_t y) { return (x + y - 1) / y; }
__host__ __device__ constexpr uint32_t round_up(uint32_t x, uint32_t y) { return ceil_div(x, y) * y; }

}  // namespace deep_gemm
