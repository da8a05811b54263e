"""Every candidate, and legal configurations beyond them, on shapes that fit none of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

import deep_gemm
from deep_gemm import config
from deep_gemm.config import StoreConfig
from deep_gemm.testing.numerics import assert_bitwise_equal

from .gpu_kit import (
    FORCED,
    H200,
    PLAIN,
    SPLIT,
    SWAPPED,
    configuration,
    integers,
    judge,
    label,
    load_all,
    normal,
    run,
)

# Beyond the candidates, by warpgroups and CTAs an SM. Tiles of one part, and with 8 to 64 extra
# columns; one and two partial sums; output boxes of 8, 16, 32 and 64 columns.
UNUSUAL = {
    (1, 1): [(64, 8), (64, 24), (64, 40), (64, 72), (64, 80), (64, 160), (64, 192), (128, 96)],
    (2, 1): [(128, 8), (128, 24), (128, 48), (128, 72), (256, 16), (256, 72), (256, 80)],
    (3, 1): [(192, 8), (192, 40), (192, 80), (192, 144)],
    (1, 2): [(64, 72)],
}
# BLOCK_M, BLOCK_N and parts of K: one to four column groups a part, odd numbers of CTAs, parts that
# overlap, more CTAs than parts.
UNUSUAL_SPLIT = {
    (1, 1): [
        (64, 16, 2), (64, 24, 3), (64, 40, 5), (64, 64, 8), (64, 64, 3), (64, 72, 2), (64, 72, 5),
        (64, 80, 4), (64, 96, 3), (64, 136, 3), (64, 136, 8), (64, 144, 4), (64, 192, 4),
    ],
    (2, 1): [(128, 16, 2), (128, 64, 4), (128, 96, 3), (128, 128, 8), (128, 72, 2), (128, 160, 2)],
    (3, 1): [(192, 16, 2), (192, 48, 3)],
    (1, 2): [(64, 16, 2), (64, 48, 3), (64, 64, 2)],
    (2, 2): [(128, 16, 2), (128, 32, 4)],
}  # fmt: skip
# Tokens as columns: fewer than a warp has lanes and more, one wave and two, rows that start in the
# middle of a block of B's scales. K whole and in parts, more of them than column groups too.
UNUSUAL_SWAPPED = {
    (1, 1): [(64, 8), (64, 16), (64, 24), (64, 40), (64, 64), (64, 128), (128, 16)],
    (2, 1): [(128, 8), (128, 64), (128, 128), (256, 32)],
    (3, 1): [(192, 32)],
    (1, 2): [(64, 8), (64, 48)],
    (2, 2): [(128, 24)],
}
CLUSTERS = ((1, 1), (2, 1), (1, 2))
# Clusters beside parts of K for swapped tiles.
SHARING = [((1, 1), parts) for parts in (1, 2, 3, 4, 5, 8)] + [
    ((2, 1), 2),
    ((1, 2), 1),
    ((1, 2), 4),
]
# Output in several slabs, of one, two and three buffers.
SLABS = (
    replace(PLAIN, store=StoreConfig(32, 32, 2)),
    replace(SPLIT, store=StoreConfig(16, 16, 2)),
    replace(SWAPPED, store=StoreConfig(64, 32, 2)),
    replace(configuration(192, 64, 3), store=StoreConfig(16, 16, 3)),
    replace(configuration(256, 128, 2), store=StoreConfig(64, 64, 1)),
    replace(configuration(256, 32, 2, swapped=True), store=StoreConfig(64, 32, 1)),
)


def unusual():
    """Yield configurations nobody would choose, shallow and deep; not all of them are legal."""
    for (warpgroups, ctas), tiles in UNUSUAL.items():
        for tile, cluster, stages in product(tiles, CLUSTERS, (2, 3)):
            yield configuration(*tile, warpgroups, cluster, stages, ctas_per_sm=ctas)
    for (warpgroups, ctas), tiles in UNUSUAL_SPLIT.items():
        for (*tile, parts), cluster, deep in product(tiles, CLUSTERS, (False, True)):
            stages = 0 if deep else 2 + parts % 2
            rest = {"split_k": parts, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **rest)
    for (warpgroups, ctas), tiles in UNUSUAL_SWAPPED.items():
        for tile, (cluster, parts), deep in product(tiles, SHARING, (False, True)):
            stages = 0 if deep else 2 + parts % 2
            rest = {"split_k": parts, "swapped": True, "ctas_per_sm": ctas}
            yield configuration(*tile, warpgroups, cluster, stages, **rest)
    yield from SLABS


LEGAL = (c for c in (*config.candidates(H200), *FORCED, *unusual()) if not config.reasons(c, H200))
CONFIGS = tuple(dict.fromkeys(LEGAL))


@pytest.fixture(scope="module")
def every_kernel():
    load_all(CONFIGS)


@pytest.mark.parametrize("forced", CONFIGS, ids=label)
def test_every_configuration(forced, seed, every_kernel):
    with config.forced(forced):
        for m, n, k in ((1, 8, 16), (333, 408, 336), (65, 136, 1296)):
            for problem in (normal(m, n, k, seed, row_pad=16), integers(m, n, k, seed)):
                out = run(problem)
                judge(problem, out)
                # One cluster walks all tiles; B, where static, is read early.
                with deep_gemm.override(num_sms=forced.cluster):
                    assert_bitwise_equal(run(problem), out, "one cluster")
                    assert_bitwise_equal(run(problem, static_b=True), out, "static B")
