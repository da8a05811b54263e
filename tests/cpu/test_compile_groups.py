"""Kernels of groups compile for sm_90a without spills; their loops are those of one product."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deep_gemm.kernels.group_maps import variant

from deep_gemm.config import candidates
from deep_gemm.jit import build, sass
from deep_gemm.problem import CMode, GroupKind, Mainloop

from .config_kit import FORMS, H200, config_of
from .test_compile import in_parallel, listing, multiplying, vote_loops

KINDS = ("labels", "offsets", "masked", "batched")
# Of block scales: tiles that need most registers, clusters both ways, K split, tokens as columns.
SHAPES = (
    (128, 136), (128, 144), (128, 192), (192, 96), (256, 136), (64, 144, 2), (128, 136, 2),
    (128, 128, 1, 2, 1), (192, 128, 1, 1, 2), (64, 96, 2, 2, 1),
)  # fmt: skip
SWAPPED = ((64, 32), (128, 32, 4))
OTHERS = ("rows", "unit_scaled_read", "fast_scaled", "int8_scaled_fp32", "bf16", "bf16_b_turned")
ALONG_K = ("rows_fp32_reduce", "bf16_turned_fp32_read")


def of_groups(form, kind):
    """A form without C as groups of a kind have it; along K it is D, or there is none."""
    addend = (
        FORMS[form].addend
        if kind is GroupKind.ALONG_K and FORMS[form].c_mode is CMode.REDUCE
        else "none"
    )
    return replace(FORMS[form], addend=addend, grouping=kind)


def configs():
    for kind in KINDS:
        form = of_groups("block", kind)
        yield from (config_of(*shape, form=form) for shape in SHAPES)
        yield from (config_of(*shape, swap_ab=True, form=form) for shape in SWAPPED)
    for turn, form in enumerate(OTHERS):
        kinds = KINDS[turn % 4], KINDS[(turn + 1) % 4]
        for kind in kinds:
            yield from most_demanding(of_groups(form, kind))
    for form in ALONG_K:
        yield from most_demanding(of_groups(form, "k"))


def most_demanding(form):
    """The candidates of two warpgroups, and of one, that need most registers."""
    for warpgroups in (1, 2):
        found = (c for c in candidates(H200, form) if c.tile.num_math_warpgroups == warpgroups)
        yield max(found, key=lambda c: (c.accumulators / c.max_accumulators, c.multicast))


EVERY = [config for config in dict.fromkeys(configs()) if not violations(config, H200)]
LOOKED_AT = EVERY[::4]
# NOTE: with scales of rows along K, tiles of one warpgroup have R2UR before each MMA (NVRTC 13.0).
UNIFORM = [
    c
    for c in LOOKED_AT
    if c.tile.num_math_warpgroups > 1 or c.variant.mainloop is not Mainloop.SCALED_1D1D
]


@pytest.fixture(scope="module", autouse=True)
def kernels(kept_kernels):
    """A kernel cache that lasts, filled by every core at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
        in_parallel(lambda config: build(unit_of(config)), EVERY)
        yield


def test_every_kind_and_promotion_is_there():
    assert {c.variant.grouping for c in EVERY} == {*KINDS, "k"}
    assert {(c.variant.promotion, c.variant.grouping == "k") for c in EVERY} == {
        ("block", False), ("rows", False), ("unit", False), ("none", False),
        ("rows", True), ("none", True),
    }  # fmt: skip
    assert {c.tile.swap_ab for c in LOOKED_AT} == {False, True}
    assert {(c.cluster_m, c.cluster_n) for c in LOOKED_AT} == {(1, 1), (2, 1), (1, 2)}


@pytest.mark.parametrize("config", EVERY, ids=lambda c: c.name)
def test_they_compile_without_spills(config):
    built = build(unit_of(config))
    assert not built.resources.spills and built.resources.stack_bytes == 0
    producer, math = config.registers
    warpgroups = config.tile.num_math_warpgroups
    assert producer + math * warpgroups <= built.resources.registers * (warpgroups + 1)
    log = (built.folder / "log.txt").read_text()
    assert "C7508" not in log and "serialized" not in log


@pytest.mark.parametrize("config", UNIFORM, ids=lambda c: c.name)
def test_tiles_that_memory_says_leave_descriptors_in_uniform_registers(config):
    instructions = listing(config)
    multiply, _ = multiplying(config)
    assert any(i.opcode == multiply for i in instructions)
    gaps = sass.between(instructions, multiply.split(".")[0])
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    assert not [op for gap in inside for op in gap if op.startswith("R2UR")]


@pytest.mark.parametrize("config", LOOKED_AT, ids=lambda c: c.name)
def test_stacks_are_copied_by_three_coordinates(config):
    instructions = listing(config)
    copies = ("UTMALDG", "UTMASTG", "UTMAREDG")
    names = {tuple(i.opcode.split(".")[:2]) for i in instructions}
    found = {".".join(name) for name in names if name[0] in copies}
    kind = config.variant.grouping
    wanted = {
        "labels": {"UTMALDG.2D", "UTMALDG.3D", "UTMASTG.2D"},
        "offsets": {"UTMALDG.2D", "UTMALDG.3D", "UTMASTG.2D"},
        "masked": {"UTMALDG.3D", "UTMASTG.3D"},
        "batched": {"UTMALDG.3D", "UTMASTG.3D"},
        "k": {
            "UTMALDG.2D",
            "UTMAREDG.3D" if config.variant.c_mode is CMode.REDUCE else "UTMASTG.3D",
        },
    }[kind]
    assert found == wanted
    # Rows of a ragged end leave one by one, of which no other kind has any.
    ragged = kind in ("labels", "offsets", "masked")
    assert any(i.opcode.startswith("STG") for i in instructions) == ragged
    loops = list(vote_loops(instructions))
    assert not [one for one in loops if not any(i.startswith(("UTMAST", "UTMARED")) for i in one)]


@pytest.mark.parametrize("k_major, element_bytes", [(True, 1), (False, 2)])
def test_maps_of_groups_along_k_are_made_by_replacing_fields(k_major, element_bytes):
    built = build(variant(k_major, element_bytes).unit())
    assert not built.resources.spills and built.resources.stack_bytes == 0
