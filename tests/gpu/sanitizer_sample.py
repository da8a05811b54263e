"""A ragged sample of calls to run under compute-sanitizer; prints how many it made.

Poisoned paddings and canaries are checked here too: memcheck alone does not see an access that
stays inside an allocation.
"""

from __future__ import annotations

import torch

import deep_gemm
from deep_gemm import config
from deep_gemm.testing import poison, problems

SHAPES = ((1, 8, 16), (65, 72, 208), (133, 200, 336))
LAYOUTS = ("row_major", "mn_major_unaligned", "strided_view")


def families() -> list[config.GemmConfig]:
    """Return the widest candidate of every tile height, warpgroup count and cluster."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.block_m, c.tile.num_math_warpgroups, c.cluster_m, c.cluster_n): c
        for c in config.candidates(device)
    }
    return list(chosen.values())


def call(m: int, n: int, k: int, layout: str) -> None:
    """Make one call whose tensors end where their allocations end."""
    a, sfa, b, sfb = problems.make_block_scaled(m, n, k, "cuda", sfa_layout=layout)
    out = poison.nan_fill_(torch.empty(m, n, dtype=torch.bfloat16, device="cuda"))
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out)
    if not torch.isfinite(out).all():
        raise SystemExit(f"{(m, n, k, layout)}: an output element is missing or not finite")


def main() -> None:
    """Call the chosen configuration, then every family, on every shape."""
    calls = 0
    for shape in SHAPES:
        for layout in LAYOUTS:
            call(*shape, layout)
            calls += 1
    for one in families():
        with config.forced(one):
            for shape in SHAPES:
                call(*shape, "row_major")
                calls += 1
    torch.cuda.synchronize()
    print(f"calls: {calls}")


if __name__ == "__main__":
    main()
