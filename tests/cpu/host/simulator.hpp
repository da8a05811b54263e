// Whole kernels on a simulated cluster. Here are the functions of cuda/ptx in the words of the host, and what a kernel is to the
// simulator. kernels.cpp has the kernels, one for each configuration, compiled quickly; simulator.cpp all else, optimized.
//
// One thread runs at a time, to its end; barriers are never waited for. See simulator.cpp.
#pragma once
#include "one_thread.hpp"
#include "mma.hpp"

namespace deep_gemm::ptx {

inline uint32_t thread;  // that runs, in its warpgroup

// --- mbarrier.cuh ---------------------------------------------------------------------------------

inline void mbarrier_init(uint32_t, uint32_t) {}
inline void fence_mbarrier_init() {}
void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes);
inline void mbarrier_arrive(uint32_t) {}
inline void mbarrier_arrive_remote(uint32_t, uint32_t) {}
inline void mbarrier_wait(uint32_t, uint32_t) {}
inline void mbarrier_wait_cluster(uint32_t, uint32_t) {}

// --- memory.cuh -----------------------------------------------------------------------------------

inline uint32_t shared_address(const void*) { return 0; }
float load_shared(uint32_t address);
void load_shared(uint32_t address, float (&value)[2]);
void load_shared(uint32_t address, float (&value)[4]);
void load_shared(uint32_t address, int (&value)[4]);
void store_shared(uint32_t address, float value);
void store_shared(uint32_t address, float x, float y);
void store_shared(uint32_t address, int value);
void store_shared(uint32_t address, int x, int y);
void store_shared(uint32_t address, int x, int y, int z, int w);
uint32_t load_l2(const uint16_t* address);
uint32_t load_l2(const uint32_t* address);
void load_l2(const uint32_t* address, uint32_t (&bits)[2]);
void store_global(void* address, const int (&words)[4]);
inline void prefetch_l2(const void*) {}

// --- matrix.cuh -----------------------------------------------------------------------------------

void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3);
void stmatrix_x2(uint32_t address, uint32_t r0, uint32_t r1);
void stmatrix_x4_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3);
void stmatrix_x2_transposed(uint32_t address, uint32_t r0, uint32_t r1);

// --- convert.cuh ----------------------------------------------------------------------------------

// Stored and read values of 16 bits are not those of the format: see simulator.cpp.
template <class Out>
uint32_t pack(float low, float high);
template <class Out>
typename Conditional<kIsSame<Out, int>, int, float>::Type widen(uint32_t bits);

// --- tma.cuh --------------------------------------------------------------------------------------

constexpr int kNoMatrix = -1;  // of a map that is not 3D

inline void tma_prefetch_map(const TensorMap*) {}
inline void tensor_map_acquire(const TensorMap*) {}
void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix = kNoMatrix);
void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, uint16_t cta_mask);
void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer, int matrix, uint16_t cta_mask);
void tma_store(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix = kNoMatrix);
void tma_reduce_add(const TensorMap* map, uint32_t smem, int inner, int outer, int matrix = kNoMatrix);
void tma_prefetch(const TensorMap* map, int inner, int outer, int matrix = kNoMatrix);
inline void tma_store_commit() {}
template <int kPending>
void tma_store_wait_read() {}
inline void fence_async_proxy() {}

// --- wgmma.cuh ------------------------------------------------------------------------------------

inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int kPending>
void wgmma_wait() {}
template <class Registers>
void fence_registers(Registers&) {}

}  // namespace deep_gemm::ptx

#include "launch.hpp"
#include "deep_gemm/gemm/traits.cuh"

namespace deep_gemm {

// What the simulator knows of a kernel, and calls. `params` is what make_params() has written.
struct Kernel {
    uint32_t block_k, cluster_size, cluster_m, split_k, num_math_warpgroups;
    Mainloop mainloop;
    GroupKind group_kind;
    bool is_grouped, is_stacked_a, is_stacked_b, is_stacked_d;
    bool has_epilogue_scales, reads_c, reduce_adds, is_integer;
    enum { kBFloat16, kFloat16, kFloat, kInt } out;
    uint32_t load_box_m;
    uint32_t shared_bytes, store_begin, store_end;  // shared addresses of the store stages

    void (*make_params)(const Launch& launch, void* params);
    void (*produce)(const void* params);                      // all that the producer warpgroup of a CTA does
    void (*consume)(const void* params, uint32_t warpgroup);  // all that the threads of a math warpgroup do
};

void add_kernel(uint32_t index, const Kernel& kernel);

}  // namespace deep_gemm
