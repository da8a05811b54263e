"""Kernels compile for sm_90a without a GPU, and their machine code is as intended.

Every candidate of 1D2D FP8, and of each other variant those that are most likely to fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from os import cpu_count

import pytest

from deep_gemm.config import candidates, registers, violations
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.errors import CompileError, DeepGemmError
from deep_gemm.jit import build, sass
from deep_gemm.kernels.gemm_sm90 import spec
from deep_gemm.problem import Mainloop, Major

from .config_kit import CANDIDATES, H200, VARIANTS, config_of
from .sass_kit import disassemble_all

SM_REGISTERS = 65536


def candidate(block_m, block_n, split_k=1, cluster_m=1, swap_ab=False):
    """The first candidate of a kind."""
    wanted = (block_m, block_n, split_k, cluster_m, swap_ab)
    return next(
        c
        for c in CANDIDATES
        if (c.tile.block_m, c.tile.block_n, c.split_k, c.cluster_m, c.tile.swap_ab) == wanted
    )


# One of each way to accumulate: two sets of partial sums, one, and two slices of a warpgroup. Then
# split-K with swap-AB, and with multicast.
DENSE_1D2D = [
    candidate(64, 64),
    candidate(128, 192),
    candidate(256, 128),
    candidate(16, 64, split_k=4, swap_ab=True),
    candidate(64, 96, split_k=2, cluster_m=2),
]


# Legal, and no candidates.
UNUSUAL = [
    config_of(32, 64, 4, cluster_n=2, swap_ab=True),
    config_of(32, 64, 2, cluster_m=2, swap_ab=True),
    config_of(24, 64, 5, swap_ab=True),
    config_of(64, 256, swap_ab=True),
    config_of(128, 32, ctas_per_sm=2),
    config_of(64, 64, 2, compiled=(64, 4096, 7168)),
]


# --- variants -----------------------------------------------------------------------------------


def register_use(config):
    """Share of the registers for accumulators that a configuration takes; ties go to multicast."""
    return registers.accumulators(config) / registers.max_accumulators(config), config.multicast


def demanding(name):
    """Yield the candidates that need most registers: of two warpgroups, and of another kind."""
    found = candidates(H200, VARIANTS[name])

    def most(configs):
        return sorted(configs, key=register_use)[-1:]

    kinds = (
        most(c for c in found if c.split_k > 1 and not c.tile.swap_ab),
        most(c for c in found if c.split_k == 1 and c.tile.num_math_warpgroups == 3),
        most(c for c in found if c.tile.swap_ab),
        most(c for c in found if c.split_k == 1 and c.tile.num_math_warpgroups == 1),
    )
    yield from most(c for c in found if c.split_k == 1 and c.tile.num_math_warpgroups == 2)
    first = list(VARIANTS).index(name)
    yield from next(kinds[(first + i) % 4] for i in range(4) if kinds[(first + i) % 4])


MATRIX = {name: tuple(dict.fromkeys(demanding(name))) for name in VARIANTS if name != "1d2d"}
ALL = [*CANDIDATES, *UNUSUAL, *(config for configs in MATRIX.values() for config in configs)]
DISASSEMBLED = [*DENSE_1D2D, *(configs[0] for configs in MATRIX.values())]
CODE = {}  # instructions by configuration


@pytest.fixture(scope="module", autouse=True)
def kept_cache(kept_kernels):
    """A kernel cache that lasts, filled by every core at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
        yield


@pytest.fixture(scope="module")
def kernels(kept_cache):
    """Compile every kernel of the module, several at a time."""
    in_parallel(lambda config: spec(config).build(), ALL)


@pytest.fixture(scope="module")
def listings(kernels, tmp_path_factory):
    """Disassemble kernels, all at once."""
    read_code(DISASSEMBLED, tmp_path_factory.mktemp("sass"))


def in_parallel(work, configs: Iterable):
    def attempt(config):
        with suppress(DeepGemmError):  # it fails again where it is asked for
            work(config)

    with ThreadPoolExecutor(cpu_count()) as pool:
        list(pool.map(attempt, configs))


def read_code(configs, folder):
    cubins = {}
    for config in configs:
        with suppress(DeepGemmError):
            cubins[config] = spec(config).build().cubin
    CODE.update(zip(cubins, disassemble_all(list(cubins.values()), folder), strict=True))


def listing(config):
    return CODE.get(config) or sass.disassemble(spec(config).build().cubin)


def opcodes(config):
    return Counter(instruction.opcode for instruction in listing(config))


def vote_loops(instructions):
    """The opcodes of each loop that takes a vector register's value lane by lane."""
    for last in instructions:
        if "BRA.U.ANY" in last.text:
            first = int(last.text.split()[-1], 16)
            yield [i.opcode for i in instructions if first <= i.address <= last.address]


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_kernels_compile_without_spills(config, kernels):
    assert not violations(config, H200)
    built = spec(config).build()
    assert not built.resources.spills
    assert built.resources.stack_bytes == 0
    threads = config.tile.threads * config.ctas_per_sm
    assert built.resources.registers <= SM_REGISTERS // threads // 8 * 8
    producer, math = registers.budgets(config)
    warpgroups = config.tile.num_math_warpgroups
    # setmaxnreg can deal out no more than what the CTA is launched with.
    assert producer + math * warpgroups <= built.resources.registers * (warpgroups + 1)
    assert "gemm_" in built.entry
    log = (built.folder / "log.txt").read_text()
    assert "C7508" not in log, "setmaxnreg was ignored"
    assert "serialized" not in log, "MMAs wait for each other"


def test_code_read_at_once_is_that_of_each(listings):
    for config in DISASSEMBLED[::9]:
        alone = sass.disassemble(spec(config).build().cubin)
        shift = listing(config)[0].address
        for one, other in zip(listing(config), alone, strict=True):
            assert (one.opcode, one.address - shift) == (other.opcode, other.address)
            if one.text != other.text:  # a branch
                *names, target = one.text.replace(",", " ").split()
                moved = [*names, hex(int(target, 16) - shift)]
                assert moved == other.text.replace(",", " ").split()


def mma_opcode(config):
    """The opcode of a variant's MMA, and how it marks MN-major operands."""
    variant, shape = config.variant, f"64x{config.tile.mma_n}"
    a = variant.a.name, variant.a_major
    b = variant.b.name, variant.b_major
    (first, first_major), (second, second_major) = (b, a) if config.tile.swap_ab else (a, b)
    opcode = {
        "bf16": f"HGMMA.{shape}x16.F32.BF16",
        "fp16": f"HGMMA.{shape}x16.F32",
        "int8": f"IGMMA.{shape}x32.S8.S8",
    }.get(first, f"QGMMA.{shape}x32.F32.{first.upper()}.{second.upper()}")
    marks = ".tnspA" * (first_major is Major.MN) + ".tnspB" * (second_major is Major.MN)
    return opcode, marks


@pytest.mark.parametrize("config", DISASSEMBLED, ids=lambda c: c.name)
def test_descriptors_stay_in_uniform_registers(config, listings):
    instructions = listing(config)
    opcode, marks = mma_opcode(config)
    found = [i for i in instructions if i.opcode == opcode]
    # Four MMAs for the 128 bytes of a k-block, each with its own place in the code.
    assert len(found) >= 4 and len(found) % 4 == 0
    assert all(i.text.split("gdesc[")[1].split(",")[0].endswith("]" + marks) for i in found)
    kinds = {i.opcode.split(".")[0] for i in instructions if "GMMA." in i.opcode}
    # Products of scales have an MMA of their own, of another type.
    multiplies_scales = config.variant.mainloop is Mainloop.SCALED_1D1D
    assert kinds == {opcode.split(".")[0]} | ({"HGMMA"} if multiplies_scales else set())
    gaps = sass.between(instructions, opcode.split(".")[0])
    # Within a k-block nothing moves a descriptor out of a vector register. The gaps between
    # k-blocks, where barriers are waited for, are told apart by the barrier's instruction.
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    for gap in inside:
        assert not [op for op in gap if op.startswith("R2UR")]


@pytest.mark.parametrize("config", DISASSEMBLED, ids=lambda c: c.name)
def test_copies_are_issued_from_uniform_registers(config, listings):
    loads = "UTMALDG.2D.MULTICAST" if config.multicast > 1 else "UTMALDG.2D"
    stores, other = "UTMASTG.2D", "UTMAREDG.2D.ADD"
    if config.variant.reduces_into_d:
        stores, other = other, stores
    found = opcodes(config)
    assert found[loads] and found[stores] and not found[other]
    # NOTE: adding to D is wrapped in votes nonetheless; one thread issues it, once a tile.
    assert not [loop for loop in vote_loops(listing(config)) if "UTMAREDG.2D.ADD" not in loop]


@pytest.mark.parametrize("config", DISASSEMBLED, ids=lambda c: c.name)
def test_results_leave_by_shared_memory_and_copies_alone(config, listings):
    found, variant = opcodes(config), config.variant
    stored = {op for op in found if op.startswith("STSM")}
    if variant.d.bytes == 2:
        # MT: 8 x 8 blocks are transposed.
        layout = "STSM.16.MT88" if config.tile.swap_ab else "STSM.16.M88"
        assert stored and all(op.startswith(layout) for op in stored)
        rounded = {"bf16": "F2FP.BF16.F32.PACK_AB", "fp16": "F2FP.F16.F32.PACK_AB"}
        assert found[rounded[variant.d.name]]
    else:
        # Not even partly: 4-byte elements are no matrices of 16 bits.
        assert not stored and not [op for op in found if op.startswith("F2FP")]
        assert [op for op in found if op.startswith("STS")]
    assert not [op for op in found if op.split(".")[0] in ("STG", "ST", "RED", "ATOM", "ATOMG")]
    # Nothing lies in local memory; C is read only where it is asked for.
    assert not [op for op in found if op.split(".")[0] in ("STL", "LDL")]
    scales = variant.has_epilogue_scales or variant.mainloop.scales_along_k
    reads = [op for op in found if op.startswith("LDG")]
    assert bool(reads) == (scales or variant.reads_c)
    # Sums that are exact stay exact.
    if variant.d.name == "int32":
        assert not [op for op in found if op.split(".")[0] in ("FMUL", "FFMA", "FADD", "I2FP")]


@pytest.mark.parametrize("config", DISASSEMBLED, ids=lambda c: c.name)
def test_split_k_sums_are_sent_by_stores_that_count_on_a_barrier(config, listings):
    found = opcodes(config)
    sent = {op: count for op, count in found.items() if op.startswith("STAS")}
    # One of 16 bytes for each group of 8 columns; a CTA's own ones are skipped at run time.
    assert sent == ({"STAS.128": config.tile.mma_n // 8} if config.split_k > 1 else {})
    # No fence beyond the CTA, which would wait for all of its memory traffic.
    assert {op for op in found if op.startswith("MEMBAR")} == {"MEMBAR.ALL.CTA"}
    # No cache is emptied between MMAs, as an acquire from the cluster would.
    for gap in sass.between(listing(config), mma_opcode(config)[0].split(".")[0]):
        assert not [op for op in gap if op.startswith("CCTL")]


def test_the_kernel_checks_the_size_of_shared_memory():
    unit = spec(CANDIDATES[0]).unit
    total = shared_storage(CANDIDATES[0]).total
    wrong = replace(unit, source=unit.source.replace(f"= {total};", f"= {total + 16};"))
    assert wrong.source != unit.source
    with pytest.raises(CompileError, match="the host has another table of shared memory"):
        build(wrong)
