"""The pass over finished cubins: which bits it clears, where, and what it leaves alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

from deep_gemm import settings
from deep_gemm.bench.dense_suite import Operands
from deep_gemm.config import by_name, candidates
from deep_gemm.errors import DeepGemmError
from deep_gemm.jit import TranslationUnit, build, builder, ffma_interleave, headers, nvrtc, sass
from deep_gemm.jit.ffma_interleave import Report, interleave, is_interleaved, report
from deep_gemm.kernels import gemm_sm90
from deep_gemm.testing.problems import make_block_scaled

from . import cache_kit
from .script_kit import load_script

STAY, REUSE = 1 << 45, 7 << 58
FLAG = "DG_FFMA_INTERLEAVE"
OPTIONS = ("--gpu-architecture=sm_90a",)
# BLOCK_M of one kernel each: one math warpgroup, two, and two with two slices each.
BLOCK_M = (64, 128, 256)


def chain(multiplier: str, addend: str) -> TranslationUnit:
    """A kernel whose loop is 48 FFMA, one after another, that compute with the same factor."""
    source = f"""
    extern "C" __global__ void __launch_bounds__(256) gemm_chain(float* p, const float* q) {{
        float total[48], factor = q[threadIdx.x];
        for (int i = 0; i < 48; ++i) total[i] = p[i * 256 + threadIdx.x];
        #pragma unroll 1
        for (int k = 0; k < 999; ++k) {{
            #pragma unroll
            for (int i = 0; i < 48; ++i) total[i] = total[i] * {multiplier} + {addend};
        }}
        for (int i = 0; i < 48; ++i) p[i * 256 + threadIdx.x] = total[i];
    }}"""
    return TranslationUnit("gemm_chain", "gemm_chain", source, OPTIONS)


CHAIN = chain("factor", "total[(i + 1) % 48]")

listing = cache(sass.disassemble)


@cache
def compiled(unit: TranslationUnit) -> bytes:
    texts = headers.headers_for(unit.source)
    made = nvrtc.compile_cubin(unit.source, headers=texts, options=unit.options, name=unit.name)
    return made.cubin


def kernel(block_m: int) -> bytes:
    """The kernel of the package with the largest BLOCK_N of this BLOCK_M."""
    found = [c for c in candidates(by_name("h200")) if c.tile.block_m == block_m]
    return compiled(gemm_sm90.spec(max(found, key=lambda c: c.tile.block_n)).unit)


@pytest.fixture(params=["chain", *BLOCK_M])
def cubin(request: pytest.FixtureRequest) -> bytes:
    return compiled(CHAIN) if request.param == "chain" else kernel(request.param)


def words(cubin: bytes) -> list[tuple[int, int]]:
    """Lower and upper words of the instructions of a cubin with one function."""
    ((start, size),) = ffma_interleave._code_sections(cubin)
    return list(struct.iter_unpack("<QQ", cubin[start : start + size]))


def with_words(cubin: bytes, changed: Iterable[tuple[int, int]]) -> bytes:
    ((start, size),) = ffma_interleave._code_sections(cubin)
    code = b"".join(struct.pack("<QQ", *pair) for pair in changed)
    return cubin[:start] + code + cubin[start + size :]


def first_run(cubin: bytes) -> tuple[int, int]:
    """Index of the first instruction of the first run of FFMA, and the run's length."""
    start, controls = next(ffma_interleave._runs(cubin))
    ((code, _),) = ffma_interleave._code_sections(cubin)
    return (start - code) // 16, len(controls)


def letters(controls: Iterable[int]) -> str:
    """One letter an instruction: y yields, r reuses, . does neither, Y does both."""
    return "".join(".ryY"[(not c & STAY) * 2 + bool(c & REUSE)] for c in controls)


def controls(letters: str) -> list[int]:
    return [{".": STAY, "r": STAY | 2 << 58, "y": 0}[letter] | 1 << 41 for letter in letters]


# --- what is found --------------------------------------------------------------------------------


def test_the_opcode_is_that_of_ffma_on_three_registers(cubin: bytes) -> None:
    decoded = words(cubin)
    listed = listing(cubin)
    assert len(decoded) == len(listed)
    found = {i for i, (low, _) in enumerate(decoded) if low & 0xFFF == 0x223}
    named = {i for i, one in enumerate(listed) if one.opcode.split(".")[0] == "FFMA"}
    in_registers = {i for i in named if "UR" not in listed[i].text and "c[" not in listed[i].text}
    assert found == in_registers
    assert len(found) >= 48


def test_reuse_bits_are_those_the_disassembler_shows(cubin: bytes) -> None:
    for (_, high), one in zip(words(cubin), listing(cubin), strict=True):
        assert (high & REUSE).bit_count() == one.text.count(".reuse"), one.text


def test_the_compiler_never_reuses_where_it_yields(cubin: bytes) -> None:
    """The polarity of the stay bit: an operand kept for the next instruction needs the warp."""
    marks = letters(high for _, high in words(cubin))
    assert "Y" not in marks
    assert {"y", "r"} <= set(marks)


def test_a_factor_in_the_instruction_is_another_form() -> None:
    made = compiled(chain("1.25f", "total[(i + 1) % 48]"))
    assert sum(one.opcode == "FFMA" for one in listing(made)) >= 48
    assert report(made) == Report(0, 0, 0, 0, 0)
    assert interleave(made) == made


def test_the_report_counts() -> None:
    marks = [letters(controls) for _, controls in ffma_interleave._runs(compiled(CHAIN))]
    found = report(compiled(CHAIN))
    assert found.runs == len(marks) > 0
    assert found.ffmas == sum(map(len, marks)) >= 40
    assert found.reusing == sum(mark.count("r") for mark in marks)
    assert found.yielding == sum(mark.count("y") for mark in marks)
    changed = zip(words(compiled(CHAIN)), words(interleave(compiled(CHAIN))), strict=True)
    assert found.missing == sum(old != new for old, new in changed) > found.ffmas // 3


# --- what is changed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rrrrrrrr", "yryryryr"),
        ("rrrr.rrr.", "yryryryry"),
        ("rrr.rrr.r", "yry.yry.y"),
        ("........", "y.y.y.y."),
        ("yryryryr", "yryryryr"),
        ("ryryryry", "ryryryry"),
        ("rrryrrrry", "yrryryrry"),
        ("yyrrrryy", "yyryrryy"),
    ],
)
def test_every_other_ffma_yields(before: str, after: str) -> None:
    result = ffma_interleave._interleaved(controls(before))
    assert letters(result) == after
    assert ffma_interleave._interleaved(result) == result


def test_bits_are_cleared_and_none_is_set(cubin: bytes) -> None:
    result = interleave(cubin)
    assert len(result) == len(cubin)
    assert with_words(result, words(cubin)) == cubin, "something outside the code differs"
    for (low, old), (new_low, new) in zip(words(cubin), words(result), strict=True):
        assert new_low == low
        assert new & ~old == 0
        if new != old:
            assert low & 0xFFF == 0x223
            assert old & ~new & ~(STAY | REUSE) == 0
            assert new & (STAY | REUSE) == 0


def test_the_instructions_are_the_same_but_for_reuse(cubin: bytes) -> None:
    before, after = listing(cubin), listing(interleave(cubin))
    stream = [replace(one, text=one.text.replace(".reuse", "")) for one in before]
    assert [replace(one, text=one.text.replace(".reuse", "")) for one in after] == stream


def test_the_loop_alternates_afterwards() -> None:
    result = interleave(compiled(CHAIN))
    assert result != compiled(CHAIN)
    start, length = first_run(result)
    marks = letters(high for _, high in words(result)[start : start + length])
    assert length >= 8
    assert all(mark == "y" for mark in marks[::2])
    assert "y" not in marks[1::2]


def test_twice_is_once(cubin: bytes) -> None:
    once = interleave(cubin)
    assert interleave(once) == once
    assert is_interleaved(once)
    assert report(once).missing == 0
    assert report(once).ffmas == report(cubin).ffmas > 0


def test_a_pattern_of_the_other_phase_stays() -> None:
    """Where the compiler interleaves by itself, its first FFMA need not be the one that yields."""
    original = compiled(CHAIN)
    start, length = first_run(original)
    changed = words(original)
    for i in range(start + 1, start + length, 2):
        changed[i] = (changed[i][0], changed[i][1] & ~(STAY | REUSE))
    other = with_words(original, changed)
    assert not is_interleaved(original)
    assert words(interleave(other))[start : start + length] == changed[start : start + length]
    assert words(interleave(original))[start : start + length] != changed[start : start + length]


@pytest.mark.parametrize(("length", "stays"), [(7, True), (8, False)])
def test_runs_shorter_than_eight_stay(length: int, stays: bool) -> None:
    original = compiled(CHAIN)
    start, whole = first_run(original)
    assert whole >= 17
    split = words(original)
    end = start + length
    split[end] = (split[end][0] ^ 0x2, split[end][1])
    result = words(interleave(with_words(original, split)))
    assert (result[start:end] == split[start:end]) == stays
    assert result[end] == split[end]
    assert result[end + 1] != split[end + 1]


def test_a_kernel_without_ffma_stays() -> None:
    cubin = compiled(cache_kit.UNIT)
    assert interleave(cubin) == cubin
    assert is_interleaved(cubin)
    assert report(cubin).runs == 0


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"", b"not a cubin", b"\x7fELF", b"\x7fELF\2\1" + bytes(99)])
def test_what_is_no_cubin_is_refused(garbage: bytes) -> None:
    for function in (interleave, report, is_interleaved):
        with pytest.raises(DeepGemmError, match="cubin"):
            function(garbage)


def test_code_for_another_machine_is_refused() -> None:
    foreign = bytearray(compiled(CHAIN))
    struct.pack_into("<H", foreign, 18, 62)  # x86-64
    with pytest.raises(DeepGemmError, match="machine 62"):
        interleave(bytes(foreign))


def test_every_cut_is_noticed() -> None:
    whole = compiled(CHAIN)
    for length in (*range(0, 80), *range(80, len(whole), 97), len(whole) - 1):
        with pytest.raises(DeepGemmError, match="cubin"):
            interleave(whole[:length])


def test_a_damaged_header_is_an_error_or_nothing() -> None:
    whole = compiled(CHAIN)
    (sections,) = struct.unpack_from("<Q", whole, 40)
    for at in (*range(64), *range(sections, sections + 64 * 8)):
        damaged = whole[:at] + b"\xff" + whole[at + 1 :]
        try:
            assert len(interleave(damaged)) == len(whole)
        except DeepGemmError as error:
            assert "cubin" in str(error)


# --- where it is hooked ---------------------------------------------------------------------------


@pytest.mark.usefixtures("cold_cache")
def test_the_flag_chooses_the_cubin_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAG, raising=False)
    off = build(CHAIN)
    monkeypatch.setenv(FLAG, "1")
    on = build(CHAIN)
    assert off.key != on.key
    assert not is_interleaved(off.cubin)
    assert on.cubin == interleave(off.cubin)
    assert manifest_passes(on.folder) == [["ffma_interleave", ffma_interleave.VERSION]]
    assert manifest_passes(off.folder) == []
    monkeypatch.setenv(FLAG, "0")
    assert build(CHAIN) == off
    cache_kit.forget()  # now from the disk cache
    assert build(CHAIN) == off
    monkeypatch.setenv(FLAG, "1")
    assert build(CHAIN) == on


def manifest_passes(folder: Path | None) -> object:
    assert folder is not None
    return json.loads((folder / "manifest.json").read_text())["passes"]


def test_the_key_covers_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAG, "1")
    keys = {builder.cache_key(CHAIN, {}, builder.cubin_passes())}
    name, version, function = builder._FFMA_INTERLEAVE
    monkeypatch.setattr(builder, "_FFMA_INTERLEAVE", (name, version + 1, function))
    keys.add(builder.cache_key(CHAIN, {}, builder.cubin_passes()))
    monkeypatch.delenv(FLAG)
    keys.add(builder.cache_key(CHAIN, {}, builder.cubin_passes()))
    assert len(keys) == 3
    assert builder.cubin_passes() == ()


# --- how it is measured ---------------------------------------------------------------------------


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, rng: torch.Generator) -> ModuleType:
    """The script, on one small input set of the CPU."""
    monkeypatch.setenv(FLAG, "0")  # the script sets it; restored after the test
    script = load_script("ffma_interleave")
    a, sfa, b, sfb = make_block_scaled(8, 24, 256, generator=rng)
    sets = [Operands(a, sfa, b, sfb, torch.empty(8, 24, dtype=torch.bfloat16))]
    monkeypatch.setattr(script, "rotating_sets", lambda *args: sets)
    monkeypatch.setattr(script, "from_index", lambda index: by_name("h200"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return script


def test_the_benchmark_interleaves_rounds_and_outdates_plans(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def time_calls(calls: list[Callable[[], object]]) -> float:
        calls[0]()
        seen.append((bool(builder.cubin_passes()), settings.version()))
        return 9.0 if builder.cubin_passes() else 10.0

    monkeypatch.setattr(benchmark, "time_calls", time_calls)
    found = benchmark.measure((8, 24, 256))
    assert [on for on, _ in seen] == [False, True, False, True]
    assert len({version for _, version in seen}) == 4
    assert (found.off_us, found.on_us) == ([10.0, 10.0], [9.0, 9.0])
    text = benchmark.line(found)
    assert len(text) == len(benchmark.header())
    assert text.startswith("8 x 24 x 256") and text.endswith("0.9000")


def test_the_benchmark_notices_another_result(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(sets: list[Operands]) -> list[Callable[[], object]]:
        return [lambda: sets[0].d.fill_(len(builder.cubin_passes()))]

    monkeypatch.setattr(benchmark, "ours", ours)
    with pytest.raises(ValueError, match="changed the result"):
        benchmark.measure((8, 24, 256))
