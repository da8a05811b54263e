"""Integer helpers, and layouts of matrices and scales that TMA can load."""

from __future__ import annotations

import pytest
import torch

from deep_gemm import quant
from deep_gemm.errors import ArgumentError
from deep_gemm.layouts import line_aligned_size, rows_of_whole_lines
from deep_gemm.testing.problems import SFA_LAYOUTS, lay_out_sfa


def test_integer_helpers():
    assert [quant.ceil_div(x, 128) for x in (0, 1, 128, 129)] == [0, 1, 1, 2]
    assert [quant.align(x, 4) for x in (0, 1, 4, 5)] == [0, 4, 4, 8]
    assert [quant.get_tma_aligned_size(9, size) for size in (1, 2, 4, 8, 16)] == [16, 16, 12, 10, 9]
    with pytest.raises(ArgumentError, match="element_size"):
        quant.get_tma_aligned_size(9, 3)


@pytest.mark.parametrize("layout", SFA_LAYOUTS)
@pytest.mark.parametrize("mn, kb", [(1, 1), (4, 1), (5, 3), (64, 56), (127, 9)])
def test_2d_strides_and_values_from_every_layout(layout, mn, kb, rng):
    sf = lay_out_sfa(torch.rand(mn, kb, generator=rng), layout)
    aligned = quant.get_mn_major_tma_aligned_tensor(sf)
    assert aligned.shape == sf.shape and aligned.stride() == (1, quant.align(mn, 4))
    assert aligned.data_ptr() % 16 == 0
    assert torch.equal(aligned, sf)
    assert quant.get_mn_major_tma_aligned_tensor(aligned) is aligned


@pytest.mark.parametrize("groups, mn, kb", [(1, 1, 1), (3, 5, 2), (4, 64, 7)])
def test_3d_strides_and_values(groups, mn, kb, rng):
    sf = torch.rand(groups, mn, kb, generator=rng)
    aligned = quant.get_col_major_tma_aligned_tensor(sf)
    pitch = quant.align(mn, 4)
    assert aligned.stride() == (pitch * kb, 1, pitch) and torch.equal(aligned, sf)
    assert quant.get_col_major_tma_aligned_tensor(aligned) is aligned
    permuted = sf.permute(1, 0, 2).contiguous().permute(1, 0, 2)
    assert torch.equal(quant.get_mn_major_tma_aligned_tensor(permuted), sf)


def test_the_last_column_has_its_whole_pitch_in_memory():
    aligned = quant.get_mn_major_tma_aligned_tensor(torch.ones(5, 3))
    assert aligned.untyped_storage().nbytes() >= 3 * 8 * 4


def test_a_misaligned_address_is_copied():
    storage = torch.rand(8 * 3 + 1)
    sf = torch.as_strided(storage, (8, 3), (1, 8), 1)
    aligned = quant.get_mn_major_tma_aligned_tensor(sf)
    assert aligned is not sf and aligned.data_ptr() % 16 == 0 and torch.equal(aligned, sf)


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (2, 0, 3)])
def test_empty_scales(shape):
    aligned = quant.get_mn_major_tma_aligned_tensor(torch.empty(shape))
    assert aligned.shape == shape


def test_wrong_dtype_and_rank_are_refused():
    with pytest.raises(ArgumentError, match="sf: dtype must be torch.float32, got torch.int32"):
        quant.get_mn_major_tma_aligned_tensor(torch.zeros(4, 4, dtype=torch.int32))
    with pytest.raises(ArgumentError, match="sf: shape"):
        quant.get_mn_major_tma_aligned_tensor(torch.zeros(4))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_rows_are_aligned_only_where_they_are_not(dtype: torch.dtype) -> None:
    ragged = torch.randn(5, 1000 + 4).to(dtype)[:, :1001]
    found = quant.align_rows(ragged)
    assert found.stride(0) * found.element_size() % 128 == 0 and found.data_ptr() % 16 == 0
    assert found.stride(0) < 1001 + 128 // found.element_size()
    assert found.shape == ragged.shape and found.stride(1) == 1
    assert torch.equal(found.float(), ragged.float())
    assert quant.align_rows(found) is found
    assert quant.align_rows(found[1:]).data_ptr() == found[1:].data_ptr()
    assert quant.align_rows(ragged.t()).stride(1) == 1


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(5, 1001), (3, 4, 200), (2, 64), (4, 0)])
def test_copies_lie_in_rows_of_whole_lines(shape, dtype, rng):
    x = torch.randn(shape, generator=rng).to(dtype)
    found = rows_of_whole_lines(x)
    pitch = line_aligned_size(shape[-1], x.element_size())
    assert pitch * x.element_size() % 128 == 0 and 0 <= pitch - shape[-1] < 128
    assert found.shape == x.shape and found.stride()[-2:] == (pitch or 1, 1)
    assert torch.equal(found.float(), x.float()) and found.data_ptr() != x.data_ptr() or not pitch
    mn_major = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert rows_of_whole_lines(mn_major).stride() == found.stride()
