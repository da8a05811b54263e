"""Checks that only GPU calls reach, on CPU tensors."""

from __future__ import annotations

import pytest
import torch

from deep_gemm import ArgumentError
from deep_gemm.problem import Major, checks

FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    "dtype, columns, pitch, padded",
    [(torch.float8_e4m3fn, 100, 100, 112), (torch.bfloat16, 12, 12, 16), (torch.bfloat16, 8, 9, 8)],
)
def test_a_row_pitch_that_tma_cannot_address_says_what_to_allocate(dtype, columns, pitch, padded):
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
        ((4, 16), (16, 1), torch.int8, Major.K),
        ((4, 16), (1, 16), torch.int8, Major.MN),
        ((1, 16), (3, 1), torch.int8, Major.K),
        ((1, 16), (1, 16), torch.int8, Major.MN),
        ((16, 1), (1, 3), torch.int8, Major.MN),
        # Lines of one element along K: only lines along the rows have a pitch that TMA can address.
        ((16, 1), (1, 1), torch.int8, Major.MN),
        ((16, 1), (16, 1), torch.int8, Major.K),
        ((1, 1), (7, 7), torch.bfloat16, Major.K),
        ((0, 16), (16, 1), torch.bfloat16, Major.K),
    ],
)
def test_which_dimension_is_contiguous(shape, strides, dtype, major):
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True) if n)
    x = torch.zeros(max(size, 1), dtype=dtype).as_strided(shape, strides)
    assert checks.major("a", x) is major


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


def stack(groups, rows, columns, strides, offset=0, dtype=torch.float32):
    """Return a view of a stack of matrices into memory of its own."""
    memory = torch.zeros(4 * groups * rows * columns + offset).to(dtype)
    return memory.as_strided((groups, rows, columns), strides, offset)


def test_a_stack_is_d_or_apart_from_it():
    memory = torch.zeros(8, 4, 16)
    d = memory[:3]
    for apart in (memory[3:], memory[3:6], torch.zeros(3, 4, 16), d, d.view(3, 4, 16), memory[:0]):
        checks.same_or_apart("c", apart, d)
    overlapping = (
        memory[1:4],  # other groups
        memory[:2],  # fewer groups
        memory[:3, :2],  # fewer rows
        memory[:3, :, :8],  # fewer columns
        memory[:3].transpose(1, 2),
        memory.flatten()[16:208].view(3, 4, 16),  # a row further
    )
    for c in overlapping:
        with pytest.raises(ArgumentError, match=r"c: memory must be D itself.*pass c.clone\(\)"):
            checks.same_or_apart("c", c, d)
    # Columns beside D's are apart in a matrix; those of a stack are not told apart.
    beside = torch.zeros(3, 4, 32)
    checks.same_or_apart("c", beside[0, :, 16:], beside[0, :, :16])
    with pytest.raises(ArgumentError, match="c: memory must be D itself"):
        checks.same_or_apart("c", beside[:, :, 16:], beside[:, :, :16])


def test_strides_of_single_groups_and_rows_do_not_count():
    memory = torch.zeros(64)
    d = memory.as_strided((1, 4, 16), (64, 16, 1))
    checks.same_or_apart("c", memory.as_strided((1, 4, 16), (7, 16, 1)), d)
    row = memory.as_strided((1, 1, 16), (64, 16, 1))
    checks.same_or_apart("c", memory.as_strided((1, 1, 16), (3, 5, 1)), row)


def test_pitches_of_rows_and_groups_that_tma_cannot_address():
    good = torch.zeros(3, 128, 256).to(FP8)[:, :, :208]
    checks.tma_stack("a", good, Major.K)
    checks.tma_stack("b", good.transpose(1, 2), Major.MN)
    with pytest.raises(ArgumentError, match="a: row stride must be a multiple of 16 elements"):
        checks.tma_stack("a", torch.zeros(3, 128, 209).to(FP8), Major.K)
    odd = stack(3, 8, 128, (1025, 128, 1), dtype=FP8)
    with pytest.raises(ArgumentError, match="a: group stride must be a multiple of 16 elements"):
        checks.tma_stack("a", odd, Major.K)
    checks.tma_stack("a", odd[:1], Major.K)


def test_a_matrix_is_a_stack_of_one_for_tma():
    rows = torch.zeros(4, 12).bfloat16()
    with pytest.raises(ArgumentError, match=r"d: row stride must be a multiple of 8 elements \(16"):
        checks.tma_stack("d", rows, Major.K)
    checks.tma_stack("d", rows[:1], Major.K)
    checks.tma_stack("d", rows[:, :8].contiguous(), Major.K)
    # MN-major: the pitch is from one k to the next.
    checks.tma_stack("b", torch.zeros(5, 16).bfloat16().t(), Major.MN)
    with pytest.raises(ArgumentError, match="b: row stride must be a multiple of 8 elements"):
        checks.tma_stack("b", torch.zeros(5, 17).bfloat16().t(), Major.MN)


def test_group_strides_count_in_bytes():
    for dtype, step in ((torch.float32, 4), (torch.bfloat16, 8), (torch.int8, 16)):
        odd = stack(2, 4, 16, (64 + step // 2, 16, 1), dtype=dtype)
        wanted = rf"group stride must be a multiple of {step} elements \(16 bytes\), got"
        with pytest.raises(ArgumentError, match=wanted):
            checks.tma_stack("d", odd, Major.K)
        checks.tma_stack("d", stack(2, 4, 16, (64 + step, 16, 1), dtype=dtype), Major.K)
