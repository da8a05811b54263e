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
    with pytest.raises(ArgumentError, match="pad B.*N = 64"):
        checks.tma_extents(61)
    checks.tma_extents(64)
