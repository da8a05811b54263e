"""Shared memory of candidates: it fits a CTA, its parts are aligned and have room."""

from __future__ import annotations

from dataclasses import replace

from deep_gemm.config import violations
from deep_gemm.config.device import RESERVED_SMEM
from deep_gemm.config.legality import MAX_STAGES
from deep_gemm.config.shared_storage import shared_storage
from deep_gemm.problem import Mainloop, Major

from .config_cases import each_variant
from .config_kit import BY_VARIANT, H200, VARIANTS


@each_variant
def test_shared_memory_fits_a_cta_and_has_no_room_for_another_stage(variant):
    for config in BY_VARIANT[variant]:
        total = shared_storage(config).total
        assert total <= H200.smem_per_cta(config.ctas_per_sm), config.name
        assert config.ctas_per_sm * (total + RESERVED_SMEM) <= H200.smem_bytes + RESERVED_SMEM
        one_more = replace(config, num_stages=config.num_stages + 1)
        if config.num_stages < MAX_STAGES:
            found = violations(one_more, H200)
            assert len(found) == 1 and "shared memory" in found[0], "another stage would have fit"


@each_variant
def test_parts_of_shared_memory_lie_where_they_may(variant):
    # Swizzled operands and store stages repeat every 1024 bytes, scales that are operands of an MMA
    # every 256; partial sums are sent by 16 bytes, epilogue scales read by 8, work tiles by 16;
    # barriers have 8.
    steps = {"operands": 1024, "store": 1024, "reduce": 16, "scales": 16}
    steps |= {"epilogue_scales": 8, "work_tiles": 16, "barriers": 8}
    if VARIANTS[variant].mainloop is Mainloop.SCALED_1D1D:
        steps["scales"] = 256
    for config in BY_VARIANT[variant]:
        parts, offset = shared_storage(config)._asdict(), 0
        assert list(parts) == list(steps)
        for name, size in parts.items():
            assert size == 0 or offset % steps[name] == 0, (config.name, name)
            offset += size
        check_sizes(config)


def check_sizes(config):
    """Fail unless every part has room for its content."""
    parts, stages, tile = shared_storage(config), config.num_stages, config.tile
    variant, extents = config.variant, (tile.block_m, tile.block_n)
    # An MN-major operand comes in boxes of 64.
    rows = [
        -(-extent // 64) * 64 if major is Major.MN else extent
        for extent, major in zip(extents, (variant.a_major, variant.b_major), strict=True)
    ]
    assert parts.operands == stages * sum(rows) * 128
    assert (parts.reduce > 0) == (config.split_k > 1)
    along_k = {
        Mainloop.SCALED_1D2D: tile.block_m + 4,
        Mainloop.SCALED_1D1D: tile.block_m + tile.block_n,
    }.get(variant.mainloop, 0)
    assert parts.scales // stages >= 4 * along_k
    assert (parts.scales > 0) == (along_k > 0)
    scaled = variant.has_epilogue_scales
    assert parts.epilogue_scales >= (4 * tile.tiles_in_flight * sum(extents) if scaled else 0)
    assert (parts.epilogue_scales > 0) == scaled
    assert parts.work_tiles == 0  # without groups
    assert parts.barriers == 8 * 2 * (stages + 1 + tile.tiles_in_flight)
