"""Checks that only GPU calls reach, on CPU tensors."""

from __future__ import annotations

import pytest
import torch

from deep_gemm import ArgumentError, checks


@pytest.mark.parametrize(
    "dtype, columns, pitch, padded",
    [(torch.float8_e4m3fn, 100, 100, 112), (torch.bfloat16, 12, 12, 16), (torch.bfloat16, 8, 9, 8)],
)
def test_a_row_pitch_that_tma_cannot_take_says_what_to_allocate(dtype, columns, pitch, padded):
    rows = torch.empty(4, pitch, dtype=torch.uint8 if dtype.itemsize == 1 else dtype)
    rows = rows.view(dtype)[:, :columns]
    with pytest.raises(
        ArgumentError, match=rf"rows of {padded} elements.*:{columns}\].*align_rows"
    ):
        checks.tma_rows("a", rows)
    whole = torch.empty(4, padded, dtype=torch.uint8 if dtype.itemsize == 1 else dtype)
    checks.tma_rows("a", whole.view(dtype)[:, :columns])
    checks.tma_rows("a", rows[:1])


def test_an_address_that_tma_cannot_take():
    checks.address("d", 4096)
    with pytest.raises(ArgumentError, match=r"d: address must be a multiple of 16, .*8 over"):
        checks.address("d", 4104)


def test_extents_that_tma_cannot_end_at():
    for n, element_bytes, padded in ((61, 2, 64), (62, 4, 64)):
        with pytest.raises(ArgumentError, match=f"pad B.*N = {padded}"):
            checks.tma_extents(n, element_bytes)
        checks.tma_extents(padded, element_bytes)
    checks.tma_extents(60, 4)


@pytest.mark.parametrize(
    "shape, strides, dtype, major",
    [
        ((4, 16), (16, 1), torch.int8, "k"),
        ((4, 16), (1, 16), torch.int8, "mn"),
        ((1, 16), (3, 1), torch.int8, "k"),
        ((1, 16), (1, 16), torch.int8, "mn"),
        ((16, 1), (1, 3), torch.int8, "mn"),
        # Lines of one element each along K: only lines along rows have a pitch TMA takes.
        ((16, 1), (1, 1), torch.int8, "mn"),
        ((16, 1), (16, 1), torch.int8, "k"),
        ((1, 1), (7, 7), torch.bfloat16, "k"),
        ((0, 16), (16, 1), torch.bfloat16, "k"),
    ],
)
def test_which_dimension_is_contiguous(shape, strides, dtype, major):
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True) if n)
    x = torch.zeros(max(size, 1), dtype=dtype).as_strided(shape, strides)
    assert checks.major("a", x) == major


def test_neither_dimension_is_contiguous():
    with pytest.raises(ArgumentError, match="a: stride of the last dimension must be 1, got 2"):
        checks.major("a", torch.zeros(4, 32, dtype=torch.int8)[:, ::2])
    with pytest.raises(ArgumentError, match="a: row stride must be at least 16, got 8"):
        checks.major("a", torch.zeros(64, dtype=torch.int8).as_strided((4, 16), (8, 1)))


def test_c_is_d_or_apart_from_it():
    memory = torch.zeros(8, 16)
    d = memory[:4]
    for apart in (memory[4:], torch.zeros(4, 16), d, d.view(4, 16), memory[:0]):
        checks.same_or_apart("c", apart, d)
    for overlapping in (memory[1:5], memory[:4].t(), memory[:3], memory[:4, :8]):
        with pytest.raises(ArgumentError, match=r"c: memory must be D itself.*pass c.clone\(\)"):
            checks.same_or_apart("c", overlapping, d)
