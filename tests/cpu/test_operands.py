"""What callers pass as A and B: pairs with scales, tensors alone, and every layout."""

from __future__ import annotations

import pytest
import torch

import deep_gemm
from deep_gemm import ArgumentError, ScaledTensor
from deep_gemm.operands import Operands, stack_to_nt, to_nt, unpack, unpack_pair
from deep_gemm.problem.scale_recipe import ROW_1X128

from .dense_kit import BF16, M, N, operands


@pytest.mark.parametrize("pair", [None, 3, (torch.zeros(1),)])
def test_what_is_no_pair(pair):
    _, _, b, sfb = operands()
    with pytest.raises(ArgumentError, match="a: form must be a pair"):
        deep_gemm.matmul(pair, (b, sfb))


def test_a_tensor_is_no_pair_for_a_drop_in_name_and_has_no_scales_for_matmul():
    a, _, b, sfb = operands()
    d = torch.empty(M, N, dtype=BF16)
    with pytest.raises(ArgumentError, match="a: form must be a pair"):
        deep_gemm.fp8_gemm_nt(a, (b, sfb), d)
    with pytest.raises(ArgumentError, match="b: form must be a pair"):
        deep_gemm.fp8_gemm_nt((a, sfb), b, d)
    assert deep_gemm.matmul(a, b).dtype == BF16


def test_pairs_are_tuples_lists_or_scaled_tensors():
    a, sfa, _, _ = operands()
    for pair in ((a, sfa), [a, sfa], ScaledTensor(a, sfa, ROW_1X128)):
        for found in (unpack("a", pair), unpack_pair("a", pair)):
            assert found[0] is a and found[1] is sfa
    assert unpack("a", a) == (a, None)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_layouts_become_nt_and_scales_follow(layout):
    nt = Operands(*operands())

    def laid_out(x, transposed):
        return x.t().contiguous() if transposed else x

    in_t, in_n = layout[0] == "t", layout[1] == "n"
    a, sfa = (laid_out(x, in_t) for x in (nt.a, nt.sfa))
    b, sfb = (laid_out(x, in_n) for x in (nt.b, nt.sfb))
    found = to_nt(layout, a, sfa, b, sfb)
    for name in Operands._fields:
        assert torch.equal(getattr(found, name).float(), getattr(nt, name).float()), name
    assert found.a.data_ptr() == a.data_ptr() and found.b.data_ptr() == b.data_ptr()
    vectors = torch.ones(M), torch.ones(N)
    found = to_nt(layout, a, vectors[0], b, vectors[1])
    assert found.sfa is vectors[0] and found.sfb is vectors[1]
    assert to_nt(layout, a, None, b, None)[1::2] == (None, None)


def test_stacks_become_nt_and_scales_follow():
    b, sfb = torch.randn(3, 72, 208), torch.rand(3, 1, 2)
    assert stack_to_nt("nt", b, sfb) == (b, sfb)
    found, scales = stack_to_nt("nn", b.transpose(1, 2), sfb.transpose(1, 2))
    assert torch.equal(found, b) and torch.equal(scales, sfb)
    assert stack_to_nt("nn", b, None)[1] is None
    for vector in (torch.rand(3), torch.rand(3, 72)):
        assert stack_to_nt("nn", b, vector)[1] is vector
    with pytest.raises(ArgumentError, match='layout: value must be "nt" or "nn", got \'tn\''):
        stack_to_nt("tn", b, sfb)
    with pytest.raises(ArgumentError, match=r"b: number of dimensions must be 3.*\[groups, K, N\]"):
        stack_to_nt("nn", b[0], sfb)
