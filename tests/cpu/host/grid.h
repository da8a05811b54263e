// A grid of CTAs on the host: a CTA is a system thread, its threads are coroutines that take turns where
// they meet. For kernels that use threads' indices, __syncthreads, shuffles, atomics and shared memory.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "bits.hpp"

struct Index {
    unsigned x;
};
static thread_local Index this_thread, this_block, grid_size, block_size;
#define threadIdx this_thread
#define blockIdx this_block
#define gridDim grid_size
#define blockDim block_size
#define __shared__ static thread_local

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};

// Coroutines of the CTA that runs on this system thread.
struct Cta {
    struct Meeting {
        unsigned count = 0, generation = 0;
    };
    static constexpr size_t kStack = 64 << 10;
    std::vector<ucontext_t> contexts;
    std::vector<std::unique_ptr<char[]>> stacks;
    std::vector<bool> done;
    ucontext_t scheduler;
    Meeting all;
    std::vector<Meeting> warps;
    std::vector<unsigned> slots;
    unsigned running = 0;
    const std::function<void()>* body = nullptr;

    void yield() { swapcontext(&contexts[running], &scheduler); }
    void meet(Meeting& meeting, unsigned members) {
        const unsigned generation = meeting.generation;
        if (++meeting.count == members) {
            meeting.count = 0;
            ++meeting.generation;
        } else {
            while (meeting.generation == generation) yield();
        }
    }
    static void enter();
    void run(unsigned threads, const std::function<void()>& work);
};
static thread_local Cta* cta;

inline void Cta::enter() {
    (*cta->body)();
    cta->done[cta->running] = true;
    cta->yield();
}

inline void Cta::run(unsigned threads, const std::function<void()>& work) {
    body = &work;
    contexts.resize(threads);
    done.assign(threads, false);
    warps.resize((threads + 31) / 32);
    slots.resize(threads);
    for (unsigned i = 0; i < threads; ++i) {
        stacks.emplace_back(new char[kStack]);
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i].get();
        contexts[i].uc_stack.ss_size = kStack;
        makecontext(&contexts[i], Cta::enter, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (unsigned i = 0; i < threads; ++i) {
            if (done[i]) continue;
            running = this_thread.x = i;
            swapcontext(&scheduler, &contexts[i]);
            left = left || !done[i];
        }
    }
}

// Runs `work` in every thread of a grid; so many CTAs at a time.
static void run_grid(unsigned blocks, unsigned threads, unsigned at_once, const std::function<void()>& work) {
    std::atomic<unsigned> next{0};
    std::vector<std::thread> pool;
    for (unsigned i = 0; i < std::min(at_once, blocks); ++i) {
        pool.emplace_back([&] {
            for (unsigned block; (block = next++) < blocks;) {
                Cta mine;
                cta = &mine;
                this_block.x = block, grid_size.x = blocks, block_size.x = threads;
                mine.run(threads, work);
            }
        });
    }
    for (std::thread& one : pool) one.join();
}

static void __syncthreads() { cta->meet(cta->all, cta->contexts.size()); }

static float __shfl_xor_sync(unsigned, float value, unsigned offset) {
    const unsigned me = this_thread.x;
    Cta::Meeting& warp = cta->warps[me / 32];
    std::memcpy(&cta->slots[me], &value, sizeof(value));
    cta->meet(warp, 32);
    std::memcpy(&value, &cta->slots[me ^ offset], sizeof(value));
    cta->meet(warp, 32);
    return value;
}

static unsigned __ldcg(const unsigned* at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
template <class T>
static T __nv_atomic_load_n(const T* at, int, int) {
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
constexpr int __NV_ATOMIC_ACQUIRE = 0, __NV_THREAD_SCOPE_DEVICE = 0;
template <class T>
static void __stcs(T* at, T value) {
    *at = value;
}
template <class T>
static T atomicAdd(T* at, T value) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
static void atomicMax(unsigned* at, unsigned value) {
    unsigned old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (old < value && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// --- arithmetic -------------------------------------------------------------------------------

using std::min;
static unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned long long>(x) * y >> 32; }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return result;
}
static float __fmul_rn(float x, float y) { return x * y; }
static float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
static float __fdiv_rn(float x, float y) { return x / y; }
static float __frcp_rn(float x) { return 1.0f / x; }
static int __float2int_rn(float x) { return std::isnan(x) ? 0 : static_cast<int>(std::nearbyint(x)); }
