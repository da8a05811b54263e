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
    """Return the widest candidate of every tile height, cluster and way to lay out the product."""
    device = config.from_index(torch.cuda.current_device())
    chosen = {
        (c.tile.block_m, c.cluster_m, c.cluster_n, c.split_k > 1, c.swapped): c
        for c in sorted(config.candidates(device), key=lambda c: c.tile.block_n)
    }
    return list(chosen.values())


def call(m: int, n: int, k: int, layout: str = "row_major", static_b: bool = False) -> int:
    """Make one call whose tensors end where their allocations end; return how many were made."""
    a, sfa, b, sfb = problems.make_block_scaled(m, n, k, "cuda", sfa_layout=layout)
    out = poison.nan_fill_(torch.empty(m, n, dtype=torch.bfloat16, device="cuda"))
    torch.cuda.synchronize()
    deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), out, static_b=static_b)
    if not torch.isfinite(out).all():
        raise SystemExit(f"{(m, n, k, layout)}: an output element is missing or not finite")
    return 1


def main() -> None:
    """Call the chosen configuration, then every family, on every shape."""
    calls = sum(call(*shape, layout) for shape in SHAPES for layout in LAYOUTS)
    for one in families():
        with config.forced(one):
            calls += sum(call(*shape) for shape in SHAPES)
            # One cluster walks all tiles, and reads of B what it may before it waits.
            with deep_gemm.override(num_sms=one.cluster):
                calls += call(*SHAPES[-1], static_b=True)
    torch.cuda.synchronize()
    print(f"calls: {calls}")


if __name__ == "__main__":
    main()
