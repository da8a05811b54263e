"""Casts, layouts and the reference give the same bits on the GPU as on the CPU."""

from __future__ import annotations

import pytest
import torch

from deep_gemm import quant, reference
from deep_gemm.errors import ArgumentError
from deep_gemm.testing import problems
from deep_gemm.testing.numerics import assert_bitwise_equal, block_scaled_request

CASTS = (
    quant.per_token_cast_to_fp8,
    quant.per_block_cast_to_fp8,
    quant.per_channel_cast_to_fp8,
    quant.per_row_cast_to_fp8,
    quant.per_tensor_cast_to_fp8,
)
every_cast = pytest.mark.parametrize("cast", CASTS, ids=lambda f: f.__name__)


@every_cast
@pytest.mark.parametrize("ue8m0", [False, True])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_casts(cast, ue8m0, dtype, rng):
    x = torch.randn(333, 1000, generator=rng)
    x[3], x[5], x[200, 7] = 0, 1e-40, torch.nan
    wanted, got = cast(x, ue8m0, dtype=dtype), cast(x.cuda(), ue8m0, dtype=dtype)
    for one, other in zip(got, wanted, strict=True):
        one, other = one.cpu().float(), other.float()
        assert torch.equal(one.isnan(), other.isnan())
        assert_bitwise_equal(one.nan_to_num(0.0), other.nan_to_num(0.0), cast.__name__)


@every_cast
def test_overflow_is_refused(cast, rng):
    x = torch.randn(33, 200, generator=rng).cuda()
    x[2, 3] = torch.inf
    with pytest.raises(ArgumentError, match="1 of 6600 elements"):
        cast(x)


@every_cast
def test_saturating_casts_can_be_captured(cast, rng):
    x = torch.randn(64, 256, generator=rng).cuda()
    cast(x, overflow="saturate")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # any synchronization would be an error here
        q, sf = cast(x, overflow="saturate")
    fresh = torch.randn(64, 256, generator=rng)
    fresh[0, 0] = torch.inf
    x.copy_(fresh)
    graph.replay()
    wanted = cast(fresh, overflow="saturate")
    assert_bitwise_equal(q.cpu(), wanted[0])
    assert_bitwise_equal(sf.cpu(), wanted[1])


def test_reference_and_layouts(rng):
    problem = problems.make_block_scaled(65, 300, 600, generator=rng)
    a, sfa, b, sfb = (x.cuda() for x in problem)
    wanted = torch.empty(65, 300, dtype=torch.bfloat16)
    reference.gemm(*block_scaled_request(*problem, wanted))
    aligned = quant.get_mn_major_tma_aligned_tensor(sfa)
    assert aligned.stride() == (1, 68) and torch.equal(aligned, sfa)
    got = torch.empty(65, 300, dtype=torch.bfloat16, device="cuda")
    reference.gemm(*block_scaled_request(a, aligned, b, sfb, got))
    assert_bitwise_equal(got.cpu(), wanted, "reference on GPU and CPU")
