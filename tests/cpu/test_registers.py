"""Registers of a math thread: budgets that fit a CTA, and what accumulators take of them."""

from __future__ import annotations

from dataclasses import replace

from deep_gemm.config import TileConfig
from deep_gemm.config.registers import accumulators, budgets, num_partials

from .config_cases import GOOD, SCALED_1D1D, SWAP_AB, TWO_CTAS, each_variant
from .config_kit import BY_VARIANT, VARIANTS

SM_REGISTERS = 65536


def launch_registers(config):
    """Registers that each thread of a kernel can be launched with."""
    threads = config.tile.threads * config.ctas_per_sm
    return min(255, SM_REGISTERS // threads // 8 * 8)


@each_variant
def test_registers_fit_a_cta(variant):
    for config in BY_VARIANT[variant]:
        producer, math = budgets(config)
        entry, warpgroups = launch_registers(config), config.tile.num_math_warpgroups
        assert producer + math * warpgroups <= entry * (warpgroups + 1), config.name
        # setmaxnreg takes multiples of 8, and the roles start from what the CTA is launched with.
        assert producer % 8 == math % 8 == 0
        assert (producer, math) == (0, 0) or producer < entry < math
        assert accumulators(config) < (math or entry)


def test_a_direct_main_loop_has_no_partial_sums():
    direct = replace(GOOD, variant=VARIANTS["fast_scaled"])
    assert (num_partials(direct), accumulators(direct)) == (0, 64)
    promoted = replace(GOOD, variant=VARIANTS["promoted_scaled_read"])
    assert (num_partials(promoted), accumulators(promoted)) == (2, 3 * 64)
    # With 1D1D every element has a scale, which takes registers as well.
    partials = num_partials(SCALED_1D1D)
    assert partials > 0 and accumulators(SCALED_1D1D) > (1 + partials) * 32


def test_registers_hold_slices_partial_sums_and_scales():
    assert (num_partials(GOOD), accumulators(GOOD)) == (2, 3 * 64)
    two_slices = replace(GOOD, tile=TileConfig(256, 128, 2))
    assert (num_partials(two_slices), accumulators(two_slices)) == (1, 3 * 64)
    large = replace(GOOD, tile=TileConfig(128, 192, 2))
    assert (num_partials(large), accumulators(large)) == (1, 2 * 96)
    # A sum of 64 x 32 is 16 registers of a thread; with swap-AB scales of its columns are 8.
    assert (num_partials(SWAP_AB), accumulators(SWAP_AB)) == (2, 3 * 16 + 2 * 8)
    # Two CTAs to an SM have half the registers.
    two_ctas = replace(TWO_CTAS, tile=TileConfig(64, 96, 1))
    assert (num_partials(two_ctas), num_partials(replace(two_ctas, ctas_per_sm=1))) == (1, 2)
