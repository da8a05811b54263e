// A grid of CTAs on the host. Each CTA runs on a system thread; its threads are coroutines that yield while they wait at a barrier.
// For kernels that use threadIdx and blockIdx, __syncthreads, shuffles, atomics and static shared memory.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cuda.hpp"

struct Index {
    unsigned x;
};
static thread_local Index this_thread, this_block, grid_size, block_size;
#define threadIdx this_thread
#define blockIdx this_block
#define gridDim grid_size
#define blockDim block_size
#define __shared__ static thread_local

// --- CTAs -----------------------------------------------------------------------------------------

// The CTA that this system thread runs.
struct Cta {
    struct Barrier {
        unsigned arrivals = 0, generation = 0;
    };
    static constexpr size_t kStack = 64 << 10;
    std::vector<ucontext_t> contexts;
    std::vector<std::unique_ptr<char[]>> stacks;
    std::vector<bool> done;
    ucontext_t scheduler;
    Barrier all;                  // of all threads
    std::vector<Barrier> warps;   // one for each warp
    std::vector<unsigned> slots;  // a word of each thread, for shuffles
    unsigned running = 0;
    const std::function<void()>* body = nullptr;

    void yield() { swapcontext(&contexts[running], &scheduler); }
    void arrive_and_wait(Barrier& barrier, unsigned threads) {
        const unsigned generation = barrier.generation;
        if (++barrier.arrivals == threads) {
            barrier.arrivals = 0;
            ++barrier.generation;
        } else {
            while (barrier.generation == generation) yield();
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

// Runs `work` in every thread of a grid, `resident` CTAs at a time.
static void run_grid(unsigned ctas, unsigned threads, unsigned resident, const std::function<void()>& work) {
    std::atomic<unsigned> next{0};
    std::vector<std::thread> pool;
    for (unsigned i = 0; i < std::min(resident, ctas); ++i) {
        pool.emplace_back([&] {
            for (unsigned index; (index = next++) < ctas;) {
                Cta own;
                cta = &own;
                this_block.x = index, grid_size.x = ctas, block_size.x = threads;
                own.run(threads, work);
            }
        });
    }
    for (std::thread& one : pool) one.join();
}

// --- barriers and shuffles ------------------------------------------------------------------------

static void __syncthreads() { cta->arrive_and_wait(cta->all, cta->contexts.size()); }

static float __shfl_xor_sync(unsigned, float value, unsigned lane_mask) {
    const unsigned own = this_thread.x;
    Cta::Barrier& warp = cta->warps[own / 32];
    cta->slots[own] = __float_as_uint(value);
    cta->arrive_and_wait(warp, 32);
    value = __uint_as_float(cta->slots[own ^ lane_mask]);
    cta->arrive_and_wait(warp, 32);
    return value;
}

// --- memory ---------------------------------------------------------------------------------------

constexpr int __NV_ATOMIC_ACQUIRE = 0, __NV_THREAD_SCOPE_DEVICE = 0;
template <class T>
static T __nv_atomic_load_n(const T* at, int, int) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static unsigned __ldcg(const unsigned* at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
template <class T>
static void __stcs(T* at, T value) { *at = value; }
template <class T>
static T atomicAdd(T* at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
static void atomicMax(unsigned* at, unsigned value) {
    unsigned old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (old < value && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
