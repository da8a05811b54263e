"""Floating-point rounding in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction


def rounded(x: Fraction, mantissa_bits: int) -> Fraction:
    """Round to nearest even with this many significant bits; no exponent limits."""
    if x == 0:
        return x
    exponent = 0
    magnitude = abs(x)
    while magnitude >= 2**mantissa_bits:
        magnitude, exponent = magnitude / 2, exponent + 1
    while magnitude < 2 ** (mantissa_bits - 1):
        magnitude, exponent = magnitude * 2, exponent - 1
    return Fraction(round(magnitude)) * Fraction(2) ** exponent * (1 if x > 0 else -1)
