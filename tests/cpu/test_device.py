"""Devices by name: their shared memory for each of several CTAs, and their SM budget."""

from __future__ import annotations

import pytest

from deep_gemm.config import by_name
from deep_gemm.config.device import RESERVED_SMEM
from deep_gemm.errors import ArgumentError

from .config_kit import H200


@pytest.mark.parametrize("name", ["h100", "h800", "h200", "h20"])
def test_shared_memory_of_each_of_several_ctas(name):
    device = by_name(name)
    assert device.smem_per_cta(1) == device.smem_bytes
    for ctas in (2, 3, 4):
        each = device.smem_per_cta(ctas)
        assert each % 1024 == 0
        taken = ctas * (each + RESERVED_SMEM)
        assert taken <= device.smem_bytes + RESERVED_SMEM < taken + ctas * 1024


def test_a_budget_is_capped_by_the_device():
    assert [H200.budget(cap) for cap in (0, 1, 131, 132, 500)] == [132, 1, 131, 132, 132]


def test_unknown_device_names_the_known():
    with pytest.raises(ArgumentError, match="h100.*h200"):
        by_name("b200")
