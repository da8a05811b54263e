"""How a cluster shares work, compiled as host C++: parts of K, tiles, multicast boxes, sums.

What the device does by assembly is simulated: a cluster's CTAs take turns, each step of all of them
before the next.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from deep_gemm.config import GemmConfig, StoreConfig, TileConfig, by_name, candidates, reasons
from deep_gemm.config.candidates import complete
from deep_gemm.config.raster import raster
from deep_gemm.kernels.gemm_sm90 import (
    GemmParams,
    Operands,
    fill_params,
    tensor_maps,
    translation_unit,
)
from deep_gemm.problem import GemmProblem

from .host_kit import compile_host

H200 = by_name("h200")
CANDIDATES = candidates(H200)


def config_of(block_m, block_n, split_k, cluster_m=1, cluster_n=1, swapped=False):
    tile = TileConfig(block_m, block_n, 1 if block_m == 64 else 2)
    store = StoreConfig(0, 0, 0)
    config = complete(GemmConfig(tile, cluster_m, cluster_n, 0, store, split_k, swapped), H200)
    assert not reasons(config, H200)
    return config


# --- where a CTA stands, and what it loads ------------------------------------------------------

# Every division of K; then every way to share operands, alone and with K split.
SPLITS = [config_of(64, 8, split_k, swapped=True) for split_k in range(1, 9)]
SHARED = [
    config_of(128, 128, 1, 2, 1),
    config_of(128, 96, 1, 1, 2),
    config_of(64, 96, 2, 2, 1),
    config_of(64, 64, 4, 2, 1),
    config_of(64, 128, 2, 1, 2),
    config_of(64, 16, 4, swapped=True),
    config_of(64, 32, 2, 1, 2, swapped=True),
    config_of(64, 32, 4, 2, 1, swapped=True),
    config_of(256, 128, 1, 1, 2),
]
CONFIGS = [*SPLITS, *SHARED]

CTA_PROGRAM = """
#define cluster_rank device_cluster_rank
#include "deep_gemm/ptx/control.cuh"
#undef cluster_rank
#define tma_load device_tma_load
#define tma_load_multicast device_tma_load_multicast
#include "deep_gemm/ptx/tma.cuh"
#undef tma_load
#undef tma_load_multicast

namespace deep_gemm::ptx {
static uint32_t rank;
inline uint32_t cluster_rank() { return rank; }

// Prints every CTA that a box reaches, which operand's it is, and where it lands.
inline void tma_load_multicast(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer,
                               uint16_t mask) {
    for (int to = 0; to < 16; ++to)
        if (mask >> to & 1) std::printf("%d %llu %u %u %d %d ", to, map->words[0], smem, barrier, inner, outer);
}
inline void tma_load(uint32_t smem, const TensorMap* map, uint32_t barrier, int inner, int outer) {
    tma_load_multicast(smem, map, barrier, inner, outer, 1 << rank);
}
}  // namespace deep_gemm::ptx

#include "deep_gemm/kernels/gemm_producer.cuh"

namespace deep_gemm {
CONFIGS

// Of every CTA of a grid, its tiles and its part of K; then, in a second line, what the first cluster
// loads into stage 1 for the last k-block of each of its parts.
template <class C>
void show(const GemmParams& params, uint32_t grid) {
    using P = Plan<C>;
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        ptx::rank = blockIdx.x % P::kCluster;
        const Cta<C> cta(params, 0);
        for (auto tile = cta.tiles(); tile.next();)
            std::printf("%u %u %u %u %u ", blockIdx.x, cta.row(tile), cta.column(tile), cta.first_block, cta.k_blocks);
    }
    std::printf("\\n");
    for (blockIdx.x = 0; blockIdx.x < P::kCluster; ++blockIdx.x) {
        ptx::rank = blockIdx.x;
        const Cta<C> cta(params, 0);
        auto tile = cta.tiles();
        if (!tile.next() || cta.k_blocks == 0) continue;
        OperandLoader<C, !C::kSwapped>(cta, &params.map_a).load(1, tile, cta.k_blocks - 1);
        OperandLoader<C, C::kSwapped>(cta, &params.map_b).load(1, tile, cta.k_blocks - 1);
    }
    std::printf("\\n");
    std::printf("%u %u %u\\n", P::kStageRows, P::kOffsetColumns + P::kStageColumns, P::kOffsetBarriers + 8);
}
}  // namespace deep_gemm

int main() {
    using namespace deep_gemm;
    GemmParams params{};
    params.map_a.words[0] = 0;
    params.map_b.words[0] = 1;
    unsigned index, grid;
    auto& tiles = params.tiles;
    while (std::scanf("%u %u %u %u %u %u %u %u %u", &index, &params.m, &params.n, &params.k, &tiles.clusters_m,
                      &tiles.clusters_n, &tiles.band, &tiles.band_on_m, &grid) == 9) {
        switch (index) {
CASES
        }
    }
}
"""


def program_of(configs):
    """The program with the constants of some configurations, as their kernels have them."""
    members = [
        re.search(r"struct Config (\{.*?\};)", translation_unit(c).source, re.DOTALL)
        for c in configs
    ]
    structs = [f"struct Config{i} {found[1]}" for i, found in enumerate(members)]
    cases = [f"case {i}: show<Config{i}>(params, grid); break;" for i in range(len(configs))]
    return CTA_PROGRAM.replace("CONFIGS", "\n".join(structs)).replace("CASES", "\n".join(cases))


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return a function: (config, m, n, k, grid in clusters) to three tables.

    Tables: (CTA, row, column, first block, blocks); (CTA reached, operand, address, barrier, first
    element, first row) of the loads; (address of the rows, of the columns, barrier) of stage 1.
    """
    run = compile_host(program_of(CONFIGS), tmp_path_factory.mktemp("cluster"))

    def show(cases):
        text = []
        for config, m, n, k, clusters in cases:
            walk = raster(GemmProblem.block_scaled(m, n, k), config, clusters)
            tiles = walk.clusters_m, walk.clusters_n, walk.band, int(walk.band_on_m)
            line = CONFIGS.index(config), m, n, k, *tiles, clusters * config.cluster
            text.append(" ".join(map(str, line)))
        rows = run("\n".join(text))
        for at in range(0, len(rows), 3):
            tables = zip(rows[at : at + 3], (5, 6, 3), strict=True)
            yield [list(zip(*[iter(row)] * width, strict=True)) for row, width in tables]

    return show


@pytest.mark.parametrize("config", SPLITS, ids=lambda c: f"split{c.split_k}")
def test_parts_of_k_cover_every_block_once_in_order(config, shown):
    extents = [16, *(128 * blocks - over for blocks in range(1, 201) for over in (0, 112))]
    for k, (parts, _, _) in zip(
        extents, shown((config, 8, 64, k, 1) for k in extents), strict=True
    ):
        assert [cta for cta, *_ in parts] == list(range(config.split_k))
        blocks = [first + i for *_, first, count in parts for i in range(count)]
        assert blocks == list(range(-(-k // 128)))
        counts = [count for *_, count in parts]
        # The first has most: the host counts with it what may be read early.
        assert counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


def test_no_k_gives_every_cta_an_empty_part(shown):
    for config, (parts, loads, _) in zip(
        SPLITS, shown((config, 8, 64, 0, 1) for config in SPLITS), strict=True
    ):
        assert [count for *_, count in parts] == [0] * config.split_k
        assert not loads


@pytest.mark.parametrize("config", SHARED, ids=lambda c: c.name)
def test_a_grid_computes_every_block_of_every_tile_once(config, shown):
    chance = random.Random(0)
    cases = [
        (config, *(chance.randint(1, 2000) for _ in range(3)), chance.choice([1, 2, 7, 16]))
        for _ in range(40)
    ]
    for (_, m, n, k, _), (parts, _, _) in zip(cases, shown(cases), strict=True):
        rows, columns = config.oriented(m, n)
        done = Counter(
            (row, column, first + i)
            for _, row, column, first, count in parts
            if row < rows and column < columns
            for i in range(count)
        )
        assert set(done.values()) == {1}
        assert set(done) == {
            (row, column, block)
            for row in range(0, rows, config.tile.block_m)
            for column in range(0, columns, config.tile.block_n)
            for block in range(-(-k // 128))
        }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_a_stage_is_filled_once_with_its_own_part(config, shown):
    """The boxes that reach a CTA, its own and multicast ones, are its tile, and its barrier's bytes."""
    chance = random.Random(1)
    shapes = [(1, 8, 1024), (5, 40, 4096), (2000, 2000, 2000), (2000, 8, 9000), (3, 3000, 1152)]
    shapes += [tuple(chance.randint(1, 1500) for _ in range(3)) for _ in range(20)]
    for (m, n, k), (parts, loads, ((at_rows, at_columns, barrier),)) in zip(
        shapes, shown((config, m, n, k, 1) for m, n, k in shapes), strict=True
    ):
        operands = Operands(m, n, k, k, k, n, (1, m), (1, 1))
        maps = list(tensor_maps(config, operands).values())[:2]
        params = GemmParams()
        fill_params(
            params, config, operands, raster(GemmProblem.block_scaled(m, n, k), config, 1), 0
        )
        for cta, row, column, first, count in dict((p[0], p) for p in reversed(parts)).values():
            if not count:
                assert not [load for load in loads if load[0] == cta]
                continue
            mine = [load[1:] for load in loads if load[0] == cta]
            assert {(at, inner) for _, _, at, inner, _ in mine} == {
                (barrier, (first + count - 1) * 128)
            }
            boxes = [maps[of] for of, *_ in mine]
            assert sum(box.box_outer * box.box_inner for box in boxes) == params.stage_bytes
            for operand in (0, 1):
                is_rows = (operand == 1) == config.swapped
                start, block, at, extent = (
                    (row, config.tile.block_m, at_rows, config.oriented(m, n)[0])
                    if is_rows
                    else (column, config.tile.block_n, at_columns, config.oriented(m, n)[1])
                )
                own = [(smem, outer) for of, smem, _, _, outer in mine if of == operand]
                assert all(outer - start == (smem - at) / 128 for smem, outer in own)
                filled = [outer + i for _, outer in own for i in range(maps[operand].box_outer)]
                assert len(set(filled)) == len(filled)
                assert set(filled) <= set(range(start, start + block))
                # Rows that the product does not have may stay as they were.
                assert set(filled) >= set(range(start, min(start + block, extent)))


# --- sums over a cluster ------------------------------------------------------------------------

EXCHANGE_PROGRAM = """
#define mbarrier_init device_mbarrier_init
#define mbarrier_arrive_expect_tx device_mbarrier_arrive_expect_tx
#define mbarrier_arrive_remote device_mbarrier_arrive_remote
#include "deep_gemm/ptx/mbarrier.cuh"
#undef mbarrier_init
#undef mbarrier_arrive_expect_tx
#undef mbarrier_arrive_remote
#define load_shared device_load_shared
#define shared_address_of device_shared_address_of
#define store_shared_async device_store_shared_async
#include "deep_gemm/ptx/memory.cuh"
#undef load_shared
#undef shared_address_of
#undef store_shared_async

namespace deep_gemm::ptx {
constexpr uint32_t kWindow = 1 << 20, kBuffer = 1024, kFull = 64, kEmpty = 72;

// A CTA of the cluster: what lies in its shared memory, and what its barriers have counted.
struct Memory {
    std::vector<unsigned char> bytes;
    std::vector<int> written;  // of every 16 bytes
    uint32_t initial[2], expected, arrived, released, stray;
};
static Memory ctas[16];
static uint32_t rank;  // of the one that runs

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) { ctas[rank].initial[barrier == kEmpty] = arrivals; }
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    ctas[rank].expected += bytes;
    ctas[rank].stray += barrier != kFull;
}
inline void mbarrier_arrive_remote(uint32_t barrier, uint32_t to) {
    ctas[to].released += 1;
    ctas[to].stray += barrier != kEmpty;
}
inline uint32_t shared_address_of(uint32_t address, uint32_t to) { return to * kWindow + address; }
inline void store_shared_async(uint32_t remote, uint32_t barrier, float x, float y, float z, float w) {
    Memory& to = ctas[remote / kWindow];
    const uint32_t at = remote % kWindow - kBuffer;
    const float values[4] = {x, y, z, w};
    to.stray += barrier != remote / kWindow * kWindow + kFull || at % 16 != 0 || at + 16 > to.bytes.size();
    to.arrived += 16;
    if (at + 16 > to.bytes.size()) return;
    to.written[at / 16] += 1;
    std::memcpy(&to.bytes[at], values, 16);
}
inline void load_shared(uint32_t address, float (&value)[4]) { std::memcpy(value, &ctas[rank].bytes[address - kBuffer], 16); }
}  // namespace deep_gemm::ptx

#include "deep_gemm/pipeline/exchange.cuh"

using namespace deep_gemm;

// A sum whose rounding depends on the order of its terms.
static float value(unsigned cta, unsigned thread, unsigned i) {
    const unsigned mixed = (cta * 131071u + thread * 8191u + i * 127u + 1u) * 2654435761u;
    return (float(mixed >> 8) - 8388608.0f) * (mixed & 128 ? 1.0f : 1e-4f);
}

// Prints, for each CTA: arrivals its barriers wait for, bytes expected and come, arrivals of releases,
// things out of place, slots written otherwise than once, columns stored, columns wrongly summed.
template <uint32_t kCtas, uint32_t kTiles, uint32_t kGroups, uint32_t kWarpgroups>
void show() {
    using E = pipeline::Exchange<kCtas, kTiles, kGroups, kWarpgroups>;
    constexpr uint32_t kThreads = kWarpgroups * kWarpgroupThreads, kAll = kCtas * kTiles;
    for (auto& cta : ptx::ctas) cta = {std::vector<unsigned char>(E::kBytes), std::vector<int>(E::kBytes / 16)};
    const auto sums = [](uint32_t cta, uint32_t thread, float (&all)[kGroups * 4]) {
        for (uint32_t i = 0; i < kGroups * 4; ++i) all[i] = value(cta, thread, i);
    };
    const auto each = [](auto step) {
        for (ptx::rank = 0; ptx::rank < kAll; ++ptx::rank) {
            // As Cta ranks them: CTAs of one part of K lie side by side.
            E exchange{ptx::kBuffer, ptx::kFull, ptx::kEmpty, ptx::rank / kTiles, ptx::rank % kTiles};
            step(exchange);
        }
    };
    int wrong[16] = {}, stored[16] = {};
    each([](E& exchange) { exchange.init(); });
    each([&](E& exchange) {
        float all[kGroups * 4];
        for (uint32_t thread = 0; thread < kThreads; ++thread) {
            sums(ptx::rank, thread, all);
            exchange.send(all, thread / 128, thread % 128);
        }
    });
    each([&](E& exchange) {
        if (exchange.owns()) {
            stored[ptx::rank] = E::kOwned * 8;
            for (uint32_t thread = 0; thread < kThreads; ++thread) {
                float all[kGroups * 4], owned[E::kOwned * 4];
                sums(ptx::rank, thread, all);
                exchange.receive(all, owned, thread / 128, thread % 128);
                for (uint32_t i = 0; i < E::kOwned * 4; ++i) {
                    float wanted = 0;
                    for (uint32_t part = 0; part < kCtas; ++part) {
                        sums(part * kTiles + ptx::rank % kTiles, thread, all);
                        const float term = all[exchange.rank * E::kOwned * 4 + i];
                        wanted = part == 0 ? term : wanted + term;
                    }
                    wrong[ptx::rank] += wanted != owned[i];
                }
            }
        }
        for (uint32_t thread = 0; thread < kThreads; ++thread) E(exchange).release(thread % 32);
    });
    for (uint32_t cta = 0; cta < kAll; ++cta) {
        const ptx::Memory& memory = ptx::ctas[cta];
        int uneven = 0;
        for (int count : memory.written) uneven += count != 1;
        std::printf("%u %u %u %u %u %u %d %d %d ", memory.initial[0], memory.initial[1], memory.expected, memory.arrived,
                    memory.released, memory.stray, stored[cta] ? uneven : 0, stored[cta], wrong[cta]);
    }
    std::printf("\\n");
}

int main() {
SHOWN
}
"""

# (CTAs of a tile, tiles of a cluster, groups of 8 columns, math warpgroups): of all candidates; then
# more CTAs than groups, in numbers that no candidate has.
EXCHANGES = sorted(
    {
        (c.split_k, c.multicast, c.tile.block_n // 8, c.tile.num_math_warpgroups)
        for c in CANDIDATES
        if c.split_k > 1
    }
    | {(3, 1, 12, 1), (3, 2, 1, 2), (5, 1, 2, 1), (7, 1, 4, 1), (8, 1, 3, 2)}
)


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """Return for each of EXCHANGES its CTAs, in order of their ranks, as the program prints them."""
    calls = "\n".join(f"    show<{', '.join(map(str, numbers))}>();" for numbers in EXCHANGES)
    program = EXCHANGE_PROGRAM.replace("SHOWN", calls)
    rows = compile_host(program, tmp_path_factory.mktemp("exchange"))("")
    ctas = [list(zip(*[iter(row)] * 9, strict=True)) for row in rows]
    return dict(zip(EXCHANGES, ctas, strict=True))


@pytest.mark.parametrize("numbers", EXCHANGES, ids=lambda n: "x".join(map(str, n)))
def test_every_column_is_summed_once_in_order_of_ranks(numbers, exchanged):
    split, tiles, groups, warpgroups = numbers
    found = exchanged[numbers]
    assert len(found) == split * tiles
    owned = -(-groups // split)
    bytes_of_others = (split - 1) * warpgroups * 128 * owned * 16
    stored = 0
    for cta, (full, empty, expected, come, released, stray, uneven, columns, wrong) in enumerate(
        found
    ):
        assert (full, empty) == (1, split * warpgroups * 4)
        assert released == empty, "the buffer is free when all math warps of all CTAs have said so"
        assert stray == uneven == wrong == 0
        owns = cta // tiles * owned < groups
        assert columns == (owned * 8 if owns else 0)
        assert expected == come == (bytes_of_others if owns else 0)
        stored += columns
    assert stored == tiles * groups * 8


@pytest.mark.parametrize("config", [c for c in CANDIDATES if c.split_k > 1], ids=lambda c: c.name)
def test_the_host_plans_pieces_and_buffers_as_the_exchange_does(config, exchanged):
    from deep_gemm.config.smem_plan import plan

    tile = config.tile
    numbers = config.split_k, config.multicast, tile.block_n // 8, tile.num_math_warpgroups
    assert exchanged[numbers][0][7] == config.piece_n
    assert exchanged[numbers][0][2] == plan(config).exchange
    assert plan(replace(config, split_k=1)).exchange == 0
