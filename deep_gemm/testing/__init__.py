"""Tools for tests: random problems, poisoned memory, and judgement of results."""

from .numerics import (
    Report,
    assert_bitwise_equal,
    block_scaled_bound,
    calc_diff,
    compare,
    reference_and_bound,
    reference_and_bound_of,
)
from .poison import canary
from .problems import SFA_LAYOUTS, SFB_LAYOUTS, make, make_block_scaled

__all__ = [
    "SFA_LAYOUTS",
    "SFB_LAYOUTS",
    "Report",
    "assert_bitwise_equal",
    "block_scaled_bound",
    "calc_diff",
    "canary",
    "compare",
    "make",
    "make_block_scaled",
    "reference_and_bound",
    "reference_and_bound_of",
]
