"""Every candidate compiles for sm_90a without a GPU; its machine code has the wanted form."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from deep_gemm.config import candidates, reasons
from deep_gemm.config.smem_plan import plan
from deep_gemm.errors import CompileError
from deep_gemm.jit import build, sass
from deep_gemm.kernels.gemm_sm90 import translation_unit

from .config_kit import H200, config_of

CANDIDATES = candidates(H200)
SM_REGISTERS = 65536


def candidate(block_m, block_n, split_k=1, cluster_m=1, swapped=False):
    """The first candidate of a kind."""
    wanted = (block_m, block_n, split_k, cluster_m, swapped)
    return next(
        c
        for c in CANDIDATES
        if (c.tile.block_m, c.tile.block_n, c.split_k, c.cluster_m, c.swapped) == wanted
    )


# One of each way to accumulate: two partial sums, one, and one that two waves share. Then K split,
# with tokens as columns, and with an operand shared.
LISTED = [
    candidate(64, 64),
    candidate(128, 192),
    candidate(256, 128),
    candidate(64, 16, split_k=4, swapped=True),
    candidate(64, 96, split_k=2, cluster_m=2),
]


# Legal, and no candidates.
UNUSUAL = [
    config_of(64, 32, 4, cluster_m=2, swapped=True),
    config_of(64, 32, 2, cluster_n=2, swapped=True),
    config_of(64, 24, 5, swapped=True),
    config_of(256, 64, swapped=True),
    config_of(128, 32, ctas_per_sm=2),
    config_of(64, 64, 2, compiled=(64, 4096, 7168)),
]


@pytest.fixture(scope="module", autouse=True)
def kept_cache(tmp_path_factory):
    """One kernel cache for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@cache
def listing(config):
    return sass.disassemble(build(translation_unit(config)).cubin)


def opcodes(config):
    return Counter(instruction.opcode for instruction in listing(config))


def vote_loops(instructions):
    """What lies in each loop that a vector register's value is taken around lane by lane."""
    for last in instructions:
        if "BRA.U.ANY" in last.text:
            first = int(last.text.split()[-1], 16)
            yield [i.opcode for i in instructions if first <= i.address <= last.address]


@pytest.mark.parametrize("config", [*CANDIDATES, *UNUSUAL], ids=lambda c: c.name)
def test_kernels_compile_without_spills(config):
    assert not reasons(config, H200)
    built = build(translation_unit(config))
    assert not built.resources.spills
    assert built.resources.stack_bytes == 0
    threads = config.tile.threads * config.ctas_per_sm
    assert built.resources.registers <= SM_REGISTERS // threads // 8 * 8
    producer, math = config.registers
    warpgroups = config.tile.num_math_warpgroups
    # What the CTA is launched with is all that setmaxnreg can deal out.
    assert producer + math * warpgroups <= built.resources.registers * (warpgroups + 1)
    assert "gemm_" in built.entry
    assert "C7508" not in (built.folder / "log.txt").read_text(), "setmaxnreg was ignored"


@pytest.mark.parametrize("config", LISTED, ids=lambda c: c.name)
def test_descriptors_stay_in_uniform_registers(config):
    instructions = listing(config)
    multiply = f"QGMMA.64x{config.tile.block_n}x32.F32.E4M3.E4M3"
    assert any(i.text.startswith(multiply) for i in instructions)
    gaps = sass.between(instructions, "QGMMA")
    # Within a k-block nothing moves a descriptor out of a vector register. The gaps between
    # k-blocks, where barriers are waited for, are told apart by the barrier's instruction.
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    for gap in inside:
        assert not [op for op in gap if op.startswith("R2UR")]


@pytest.mark.parametrize("config", LISTED, ids=lambda c: c.name)
def test_copies_are_issued_from_uniform_registers(config):
    loads = "UTMALDG.2D.MULTICAST" if config.multicast > 1 else "UTMALDG.2D"
    found = opcodes(config)
    assert found[loads] and found["UTMASTG.2D"]
    assert not list(vote_loops(listing(config)))


@pytest.mark.parametrize("config", LISTED, ids=lambda c: c.name)
def test_results_leave_by_matrix_stores_and_copies_alone(config):
    found = opcodes(config)
    stored = {op for op in found if op.startswith("STSM")}
    form = "STSM.16.MT88" if config.swapped else "STSM.16.M88"  # T: every 8 x 8 block transposed
    assert stored and all(op.startswith(form) for op in stored)
    assert not [op for op in found if op.split(".")[0] in ("STG", "ST", "RED", "ATOM", "ATOMG")]


@pytest.mark.parametrize("config", LISTED, ids=lambda c: c.name)
def test_sums_are_exchanged_by_stores_that_count_on_a_barrier(config):
    found = opcodes(config)
    sent = {op: count for op, count in found.items() if op.startswith("STAS")}
    # One of 16 bytes for each group of 8 columns; a CTA's own ones are skipped at run time.
    assert sent == ({"STAS.128": config.tile.block_n // 8} if config.split_k > 1 else {})
    # No fence beyond the CTA, which would wait for all of its memory traffic.
    assert {op for op in found if op.startswith("MEMBAR")} == {"MEMBAR.ALL.CTA"}
    # Nor is a cache emptied between MMAs, as by an acquire from the cluster.
    for gap in sass.between(listing(config), "QGMMA"):
        assert not [op for op in gap if op.startswith("CCTL")]


def test_the_kernel_checks_the_shared_memory_plan():
    unit = translation_unit(CANDIDATES[0])
    total = plan(CANDIDATES[0]).total
    wrong = replace(unit, source=unit.source.replace(f"= {total};", f"= {total + 16};"))
    assert wrong.source != unit.source
    with pytest.raises(CompileError, match="plans shared memory by another table"):
        build(wrong)
