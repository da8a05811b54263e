"""How many k-blocks of B are loaded before the kernel ahead is complete."""

from __future__ import annotations

from ..layouts import ceil_div
from .gemm_config import GemmConfig


def early_k_blocks(config: GemmConfig, k: int, ctas: int, sm_count: int) -> int:
    """Return the k-blocks of B to load before the dependency wait, where B is static.

    Half of what fills the stages, three quarters with swap-AB, and of a short K half of it: A
    queues behind B, and less of it for less long. A grid of at most half the SMs loads nothing
    early: its successor starts beside it, not after it, and would only compete with it for memory
    (docs/findings.md).
    """
    if 2 * ctas <= sm_count:
        return 0
    stages, k_blocks = config.num_stages, ceil_div(k, config.variant.block_k * config.split_k)
    share = stages * 3 // 4 if config.tile.swap_ab else stages // 2
    return min(share, k_blocks, max(8, k_blocks // 2))
