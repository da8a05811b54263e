// Fixed-width types, spelled out because no toolkit or standard header is included.
#pragma once

namespace deep_gemm {

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int64_t = long long;

// An encoded CUtensorMap, passed inside the kernel's parameter.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

// 16-bit floats, of which only the bits are handled.
struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

template <class First, class Second>
constexpr bool kSame = false;
template <class Type>
constexpr bool kSame<Type, Type> = true;

template <bool kFirst, class First, class Second>
struct Choose {
    using Type = First;
};
template <class First, class Second>
struct Choose<false, First, Second> {
    using Type = Second;
};

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kWarpgroupThreads = 128;

__host__ __device__ constexpr uint32_t ceil_div(uint32_t x, uint32_t y) { return (x + y - 1) / y; }
__host__ __device__ constexpr uint32_t round_up(uint32_t x, uint32_t y) { return ceil_div(x, y) * y; }

}  // namespace deep_gemm
