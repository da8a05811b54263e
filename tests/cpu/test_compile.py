"""Every candidate compiles for sm_90a without a GPU; its machine code has the wanted form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import by_name, candidates
from deep_gemm.config.smem_plan import plan
from deep_gemm.errors import CompileError
from deep_gemm.jit import build, sass
from deep_gemm.kernels.gemm_sm90 import translation_unit

CANDIDATES = candidates(by_name("h200"))
# One of each way to accumulate: two partial sums, one, and one that two waves share.
TILES = ((64, 64), (128, 192), (256, 128))


@pytest.fixture(scope="module")
def kept_cache(tmp_path_factory):
    """One kernel cache for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.mark.parametrize("config", CANDIDATES, ids=lambda c: c.name)
def test_candidates_compile_without_spills(config, kept_cache):
    built = build(translation_unit(config))
    assert not built.resources.spills
    assert built.resources.stack_bytes == 0
    assert built.resources.registers <= 65536 // config.tile.threads
    assert "gemm_" in built.entry
    assert "C7508" not in (built.folder / "log.txt").read_text(), "setmaxnreg was ignored"


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t[0]}x{t[1]}")
def test_descriptors_stay_in_uniform_registers(tile, kept_cache):
    config = next(c for c in CANDIDATES if (c.tile.block_m, c.tile.block_n) == tile)
    instructions = sass.disassemble(build(translation_unit(config)).cubin)
    multiply = f"QGMMA.64x{tile[1]}x32.F32.E4M3.E4M3"
    assert any(i.text.startswith(multiply) for i in instructions)
    gaps = sass.between(instructions, "QGMMA")
    # Within a k-block nothing moves a descriptor out of a vector register. The gaps between
    # k-blocks, where barriers are waited for, are told apart by the barrier's instruction.
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    for gap in inside:
        assert not [op for op in gap if op.startswith("R2UR")]
    # Copies are issued from uniform registers too: no vote loop around them.
    texts = [i.text for i in instructions]
    assert any(text.startswith("UTMALDG") for text in texts)
    assert not [text for text in texts if "BRA.U.ANY" in text]


def test_the_kernel_checks_the_shared_memory_plan(kept_cache):
    unit = translation_unit(CANDIDATES[0])
    total = plan(CANDIDATES[0]).total
    wrong = replace(unit, source=unit.source.replace(f"= {total};", f"= {total + 16};"))
    assert wrong.source != unit.source
    with pytest.raises(CompileError, match="plans shared memory by another table"):
        build(wrong)
