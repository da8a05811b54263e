"""Kernels compile for sm_90a without a GPU; their machine code has the wanted form.

Every candidate of block-scaled FP8, and of the other forms those that are most likely to fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from os import cpu_count

import pytest

from deep_gemm.config import candidates
from deep_gemm.errors import CompileError, DeepGemmError
from deep_gemm.jit import build, sass
from deep_gemm.problem import CMode

from .config_kit import FORMS, H200, config_of

CANDIDATES = candidates(H200)
SM_REGISTERS = 65536


def candidate(block_m, block_n, split_k=1, cluster_m=1, swapped=False):
    """The first candidate of a kind."""
    wanted = (block_m, block_n, split_k, cluster_m, swapped)
    return next(
        c
        for c in CANDIDATES
        if (c.tile.block_m, c.tile.block_n, c.split_k, c.cluster_m, c.tile.swap_ab) == wanted
    )


# One of each way to accumulate: two partial sums, one, and one that two waves share. Then K split,
# with tokens as columns, and with an operand shared.
LISTED = [
    candidate(64, 64),
    candidate(128, 192),
    candidate(256, 128),
    candidate(64, 16, split_k=4, swap_ab=True),
    candidate(64, 96, split_k=2, cluster_m=2),
]


# Legal, and no candidates.
UNUSUAL = [
    config_of(64, 32, 4, cluster_m=2, swap_ab=True),
    config_of(64, 32, 2, cluster_n=2, swap_ab=True),
    config_of(64, 24, 5, swap_ab=True),
    config_of(256, 64, swap_ab=True),
    config_of(128, 32, ctas_per_sm=2),
    config_of(64, 64, 2, compiled=(64, 4096, 7168)),
]


# --- forms --------------------------------------------------------------------------------------


def demanding(form):
    """Yield the candidates that need most registers: of two warpgroups, and of another kind."""
    of_form = candidates(H200, FORMS[form])

    def most(configs):
        ranked = sorted(configs, key=lambda c: (c.accumulators / c.max_accumulators, c.multicast))
        return ranked[-1:]

    kinds = (
        most(c for c in of_form if c.split_k > 1 and not c.tile.swap_ab),
        most(c for c in of_form if c.split_k == 1 and c.tile.num_math_warpgroups == 3),
        most(c for c in of_form if c.tile.swap_ab),
        most(c for c in of_form if c.split_k == 1 and c.tile.num_math_warpgroups == 1),
    )
    yield from most(c for c in of_form if c.split_k == 1 and c.tile.num_math_warpgroups == 2)
    turn = list(FORMS).index(form)
    yield from next(kinds[(turn + i) % 4] for i in range(4) if kinds[(turn + i) % 4])


MATRIX = {form: tuple(dict.fromkeys(demanding(form))) for form in FORMS if form != "block"}
EVERY = [*CANDIDATES, *UNUSUAL, *(config for configs in MATRIX.values() for config in configs)]
LOOKED_AT = [*LISTED, *(configs[0] for configs in MATRIX.values())]


@pytest.fixture(scope="module", autouse=True)
def kept_cache(kept_kernels):
    """A kernel cache that lasts, filled by every core at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
        yield


@pytest.fixture(scope="module")
def kernels(kept_cache):
    """Compile every kernel of the module, several at a time."""
    in_parallel(lambda config: build(unit_of(config)), EVERY)


@pytest.fixture(scope="module")
def listings(kept_cache):
    """Disassemble the kernels that are looked at, several at a time."""
    in_parallel(listing, LOOKED_AT)


def in_parallel(work, configs: Iterable):
    def attempt(config):
        with suppress(DeepGemmError):  # it fails again where it is asked for
            work(config)

    with ThreadPoolExecutor(cpu_count()) as pool:
        list(pool.map(attempt, configs))


@cache
def listing(config):
    return sass.disassemble(build(unit_of(config)).cubin)


def opcodes(config):
    return Counter(instruction.opcode for instruction in listing(config))


def vote_loops(instructions):
    """What lies in each loop that a vector register's value is taken around lane by lane."""
    for last in instructions:
        if "BRA.U.ANY" in last.text:
            first = int(last.text.split()[-1], 16)
            yield [i.opcode for i in instructions if first <= i.address <= last.address]


@pytest.mark.parametrize("config", EVERY, ids=lambda c: c.name)
def test_kernels_compile_without_spills(config, kernels):
    assert not violations(config, H200)
    built = build(unit_of(config))
    assert not built.resources.spills
    assert built.resources.stack_bytes == 0
    threads = config.tile.threads * config.ctas_per_sm
    assert built.resources.registers <= SM_REGISTERS // threads // 8 * 8
    producer, math = config.registers
    warpgroups = config.tile.num_math_warpgroups
    # What the CTA is launched with is all that setmaxnreg can deal out.
    assert producer + math * warpgroups <= built.resources.registers * (warpgroups + 1)
    assert "gemm_" in built.entry
    log = (built.folder / "log.txt").read_text()
    assert "C7508" not in log, "setmaxnreg was ignored"
    assert "serialized" not in log, "MMAs wait for each other"


def multiplying(config):
    """The opcode of a form's MMA, and how it marks operands whose rows are contiguous."""
    form, shape = config.variant, f"64x{config.tile.block_n}"
    a, b = (form.b, form.a) if config.tile.swap_ab else (form.a, form.b)
    name = {
        "bf16": f"HGMMA.{shape}x16.F32.BF16",
        "fp16": f"HGMMA.{shape}x16.F32",
        "int8": f"IGMMA.{shape}x32.S8.S8",
    }.get(a.name, f"QGMMA.{shape}x32.F32.{a.name.upper()}.{b.name.upper()}")
    rows, columns = config.majors
    return name, ".tnspA" * (rows == "mn") + ".tnspB" * (columns == "mn")


@pytest.mark.parametrize("config", LOOKED_AT, ids=lambda c: c.name)
def test_descriptors_stay_in_uniform_registers(config, listings):
    instructions = listing(config)
    multiply, turned = multiplying(config)
    found = [i for i in instructions if i.opcode == multiply]
    # Four for the 128 bytes of a k-block, of which each has its place in the code.
    assert len(found) >= 4 and len(found) % 4 == 0
    assert all(i.text.split("gdesc[")[1].split(",")[0].endswith("]" + turned) for i in found)
    others = {i.opcode.split(".")[0] for i in instructions if "GMMA." in i.opcode}
    # Products of scales have an MMA of their own, of another type.
    assert others == {multiply.split(".")[0]} | ({"HGMMA"} if "rows" in config.name else set())
    gaps = sass.between(instructions, multiply.split(".")[0])
    # Within a k-block nothing moves a descriptor out of a vector register. The gaps between
    # k-blocks, where barriers are waited for, are told apart by the barrier's instruction.
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    for gap in inside:
        assert not [op for op in gap if op.startswith("R2UR")]


@pytest.mark.parametrize("config", LOOKED_AT, ids=lambda c: c.name)
def test_copies_are_issued_from_uniform_registers(config, listings):
    loads = "UTMALDG.2D.MULTICAST" if config.multicast > 1 else "UTMALDG.2D"
    stores, other = "UTMASTG.2D", "UTMAREDG.2D.ADD"
    if config.variant.c_mode is CMode.REDUCE:
        stores, other = other, stores
    found = opcodes(config)
    assert found[loads] and found[stores] and not found[other]
    # NOTE: sums onto D are wrapped in votes nonetheless; one thread issues them, once a tile.
    assert not [loop for loop in vote_loops(listing(config)) if "UTMAREDG.2D.ADD" not in loop]


@pytest.mark.parametrize("config", LOOKED_AT, ids=lambda c: c.name)
def test_results_leave_by_shared_memory_and_copies_alone(config, listings):
    found, form = opcodes(config), config.variant
    stored = {op for op in found if op.startswith("STSM")}
    if form.d.bytes == 2:
        layout = (
            "STSM.16.MT88" if config.tile.swap_ab else "STSM.16.M88"
        )  # T: 8 x 8 blocks transposed
        assert stored and all(op.startswith(layout) for op in stored)
        rounded = {"bf16": "F2FP.BF16.F32.PACK_AB", "fp16": "F2FP.F16.F32.PACK_AB"}[form.d.name]
        assert found[rounded]
    else:
        # Not even partly: 4-byte elements are no matrices of 16 bits.
        assert not stored and not [op for op in found if op.startswith("F2FP")]
        assert [op for op in found if op.startswith("STS")]
    assert not [op for op in found if op.split(".")[0] in ("STG", "ST", "RED", "ATOM", "ATOMG")]
    # Nothing lies in local memory; C is read only where it is asked for.
    assert not [op for op in found if op.split(".")[0] in ("STL", "LDL")]
    scales = form.scaled or form.mainloop.scales_along_k
    reads = [op for op in found if op.startswith("LDG")]
    assert bool(reads) == (scales or form.c_mode is CMode.READ)
    # Sums that are exact stay so.
    if form.d.name == "int32":
        assert not [op for op in found if op.split(".")[0] in ("FMUL", "FFMA", "FADD", "I2FP")]


@pytest.mark.parametrize("config", LOOKED_AT, ids=lambda c: c.name)
def test_sums_are_exchanged_by_stores_that_count_on_a_barrier(config, listings):
    found = opcodes(config)
    sent = {op: count for op, count in found.items() if op.startswith("STAS")}
    # One of 16 bytes for each group of 8 columns; a CTA's own ones are skipped at run time.
    assert sent == ({"STAS.128": config.tile.block_n // 8} if config.split_k > 1 else {})
    # No fence beyond the CTA, which would wait for all of its memory traffic.
    assert {op for op in found if op.startswith("MEMBAR")} == {"MEMBAR.ALL.CTA"}
    # Nor is a cache emptied between MMAs, as by an acquire from the cluster.
    for gap in sass.between(listing(config), multiplying(config)[0].split(".")[0]):
        assert not [op for op in gap if op.startswith("CCTL")]


def test_the_kernel_checks_the_shared_memory_plan():
    unit = unit_of(CANDIDATES[0])
    total = plan(CANDIDATES[0]).total
    wrong = replace(unit, source=unit.source.replace(f"= {total};", f"= {total + 16};"))
    assert wrong.source != unit.source
    with pytest.raises(CompileError, match="plans shared memory by another table"):
        build(wrong)
