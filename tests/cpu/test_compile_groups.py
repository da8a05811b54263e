"""Kernels with groups compile for sm_90a without spills; their loops are those of dense kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep_gemm.config import candidates, registers, violations
from deep_gemm.jit import sass
from deep_gemm.kernels import group_tensor_maps
from deep_gemm.kernels.gemm_sm90 import spec
from deep_gemm.problem import GroupKind, Mainloop
from deep_gemm.problem.epilogue import ADD_C

from .config_kit import H200, VARIANTS, config_of
from .test_compile import (
    in_parallel,
    listing,
    mma_opcode,
    read_code,
    register_use,
    vote_loops,
)

KINDS = (GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED, GroupKind.BATCHED)
# 1D2D: tiles that need most registers, clusters along M and along N, split-K, swap-AB.
SHAPES = (
    (128, 136), (128, 144), (128, 192), (192, 96), (256, 136), (64, 144, 2), (128, 136, 2),
    (128, 128, 1, 2, 1), (192, 128, 1, 1, 2), (64, 96, 2, 2, 1),
)  # fmt: skip
SWAP_AB_SHAPES = ((32, 64), (32, 128, 4))
OTHERS = ("1d1d", "promoted_scaled_read", "fast_scaled", "int8_scaled_fp32", "bf16", "bf16_b_mn")
ALONG_K = ("1d1d_fp32_reduce", "bf16_mn_fp32_read")


def grouped_variant(name, kind):
    """A variant without C, with groups of a kind; along K the store may still add to D."""
    variant = VARIANTS[name]
    return replace(
        variant,
        epilogue=tuple(op for op in variant.epilogue if op != ADD_C),
        reduces_into_d=variant.reduces_into_d and kind is GroupKind.ALONG_K,
        group_kind=kind,
    )


def configs():
    for kind in KINDS:
        variant = grouped_variant("1d2d", kind)
        yield from (config_of(*shape, variant=variant) for shape in SHAPES)
        yield from (config_of(*shape, swap_ab=True, variant=variant) for shape in SWAP_AB_SHAPES)
    for i, name in enumerate(OTHERS):
        for kind in (KINDS[i % 4], KINDS[(i + 1) % 4]):
            yield from most_demanding(grouped_variant(name, kind))
    for name in ALONG_K:
        yield from most_demanding(grouped_variant(name, GroupKind.ALONG_K))


def most_demanding(variant):
    """The candidates of two warpgroups, and of one, that need most registers."""
    for warpgroups in (1, 2):
        found = (c for c in candidates(H200, variant) if c.tile.num_math_warpgroups == warpgroups)
        yield max(found, key=register_use)


ALL = [config for config in dict.fromkeys(configs()) if not violations(config, H200)]
DISASSEMBLED = ALL[::4]
# NOTE: with 1D1D scaling, tiles of one warpgroup have R2UR before each MMA (NVRTC 13.0).
UNIFORM = [
    c
    for c in DISASSEMBLED
    if c.tile.num_math_warpgroups > 1 or c.variant.mainloop is not Mainloop.SCALED_1D1D
]


@pytest.fixture(scope="module", autouse=True)
def kernels(kept_kernels, tmp_path_factory):
    """A kernel cache that lasts, filled by every core at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DG_JIT_CACHE_DIR", str(kept_kernels))
        in_parallel(lambda config: spec(config).build(), ALL)
        read_code(DISASSEMBLED, tmp_path_factory.mktemp("sass"))
        yield


def test_every_kind_and_mainloop_is_there():
    assert {c.variant.group_kind for c in ALL} == {*KINDS, GroupKind.ALONG_K}
    assert {(c.variant.mainloop, c.variant.group_kind is GroupKind.ALONG_K) for c in ALL} == {
        *((mainloop, False) for mainloop in Mainloop),
        (Mainloop.SCALED_1D1D, True),
        (Mainloop.DIRECT, True),
    }
    assert {c.tile.swap_ab for c in DISASSEMBLED} == {False, True}
    assert {(c.cluster_m, c.cluster_n) for c in DISASSEMBLED} == {(1, 1), (2, 1), (1, 2)}


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.name)
def test_they_compile_without_spills(config):
    built = spec(config).build()
    assert not built.resources.spills and built.resources.stack_bytes == 0
    producer, math = registers.budgets(config)
    warpgroups = config.tile.num_math_warpgroups
    assert producer + math * warpgroups <= built.resources.registers * (warpgroups + 1)
    log = (built.folder / "log.txt").read_text()
    assert "C7508" not in log and "serialized" not in log


@pytest.mark.parametrize("config", UNIFORM, ids=lambda c: c.name)
def test_tiles_found_in_memory_leave_descriptors_in_uniform_registers(config):
    instructions = listing(config)
    opcode, _ = mma_opcode(config)
    assert any(i.opcode == opcode for i in instructions)
    gaps = sass.between(instructions, opcode.split(".")[0])
    inside = [gap for gap in gaps if not any(op.startswith(("SYNCS", "WARPGROUP")) for op in gap)]
    assert len(inside) >= 3
    assert not [op for gap in inside for op in gap if op.startswith("R2UR")]


@pytest.mark.parametrize("config", DISASSEMBLED, ids=lambda c: c.name)
def test_stacks_are_copied_by_three_coordinates(config):
    instructions = listing(config)
    copies = ("UTMALDG", "UTMASTG", "UTMAREDG")
    names = {tuple(i.opcode.split(".")[:2]) for i in instructions}
    found = {".".join(name) for name in names if name[0] in copies}
    kind = config.variant.group_kind
    along_k = "UTMAREDG.3D" if config.variant.reduces_into_d else "UTMASTG.3D"
    wanted = {
        GroupKind.LABELS: {"UTMALDG.2D", "UTMALDG.3D", "UTMASTG.2D"},
        GroupKind.OFFSETS: {"UTMALDG.2D", "UTMALDG.3D", "UTMASTG.2D"},
        GroupKind.MASKED: {"UTMALDG.3D", "UTMASTG.3D"},
        GroupKind.BATCHED: {"UTMALDG.3D", "UTMASTG.3D"},
        GroupKind.ALONG_K: {"UTMALDG.2D", along_k},
    }[kind]
    assert found == wanted
    # Rows of a group that ends inside a tile are stored one by one; no other kind has any.
    ragged = kind in (GroupKind.LABELS, GroupKind.OFFSETS, GroupKind.MASKED)
    assert any(i.opcode.startswith("STG") for i in instructions) == ragged
    loops = list(vote_loops(instructions))
    assert not [one for one in loops if not any(i.startswith(("UTMAST", "UTMARED")) for i in one)]


@pytest.mark.parametrize("k_major, element_bytes", [(True, 1), (False, 2)])
def test_maps_of_groups_along_k_are_made_by_replacing_fields(k_major, element_bytes):
    built = group_tensor_maps.spec(k_major, element_bytes).build()
    assert not built.resources.spills and built.resources.stack_bytes == 0
