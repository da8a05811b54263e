"""Process settings and every environment variable the package reads, in one place.

Environment variables are read when they are needed, never at import.

| variable | default | meaning |
|---|---|---|
| DG_JIT_CACHE_DIR | $HOME/.deep_gemm | where compiled kernels are kept |
| DG_JIT_DEBUG | 0 | 1: log every compile and cache decision to stderr |
| DG_FFMA_INTERLEAVE | 0 | 1: interleave the FFMA of newly built kernels with yield hints |
| DG_PRINT_CONFIGS | 0 | 1: print the configuration chosen for every new problem |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from .errors import ArgumentError


@dataclass(frozen=True)
class Settings:
    """What a caller can set for the process.

    num_sms: cap on the SMs a persistent grid uses; 0 means all of the device. Any count is
        legal, odd ones too.
    pdl: launch kernels with the programmatic-dependent-launch attribute, so that the set-up of
        one overlaps the tail of the kernel before it. No operand is read before that kernel is
        complete, but for the B of a call with static_b=True.
    mk_alignment: rows of a block of labels, and the multiple that groups of offsets begin at, in
        the drop-in names for contiguous groups.
    """

    num_sms: int = 0
    pdl: bool = True
    mk_alignment: int = 128


_current = Settings()
_version = 0


def current() -> Settings:
    """Return the settings in force."""
    return _current


def version() -> int:
    """Return a number that grows with every change of what launch plans depend on."""
    return _version


def outdate_plans() -> None:
    """Make every call plan anew: settings, or the choice of configurations, have changed."""
    global _version
    _version += 1


def _install(settings: Settings) -> None:
    global _current
    _current = settings
    outdate_plans()


def set_num_sms(num_sms: int) -> None:
    """Cap the SMs used by kernels launched from now on; 0 lifts the cap.

    Raises ArgumentError for a negative count. A count above the device's is cut to the device's.
    """
    if not isinstance(num_sms, int) or num_sms < 0:
        raise ArgumentError("num_sms", "value", "an int >= 0 (0 means every SM)", num_sms)
    _install(replace(_current, num_sms=num_sms))


def set_pdl(enable: bool) -> None:
    """Turn programmatic dependent launch on or off (on by default)."""
    _install(replace(_current, pdl=bool(enable)))


def get_pdl() -> bool:
    """Return whether programmatic dependent launch is on."""
    return _current.pdl


def set_mk_alignment_for_contiguous_layout(alignment: int) -> None:
    """Set the rows that groups are aligned to in the drop-in names for contiguous groups.

    Labels take 64 or 128, which the call checks; offsets (use_psum_layout) take any. The setting is
    part of each call, so no launch plan is made anew.

    Raises ArgumentError for what is no int of at least 1.
    """
    global _current
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1:
        raise ArgumentError("alignment", "value", "an int >= 1", alignment)
    _current = replace(_current, mk_alignment=alignment)


def get_mk_alignment_for_contiguous_layout() -> int:
    """Return the rows that groups are aligned to in the drop-in names (128 by default)."""
    return _current.mk_alignment


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout


def get_theoretical_mk_alignment_for_contiguous_layout(
    expected_m: int | None = None, num_groups: int | None = None
) -> int:
    """Return the alignment to choose for groups of `expected_m` rows that have labels: 64 or 128.

    Groups end in half a block of padding on average, so blocks of 64 pad less; but a tile is then
    no larger than 64 rows and reads the group's B again for each of them. So 64 is the answer where
    the last block of 128 would be half empty and a group has at most three blocks of 64, else 128.
    Groups given by offsets need no alignment at all.

    Arguments:
        expected_m: rows of a group; None where they are not known, for 128.
        num_groups: no effect.
    """
    if expected_m is None:
        return 128
    return 64 if expected_m <= 192 and (expected_m % 128 or 128) <= 64 else 128


@contextmanager
def override(**changes: object) -> Iterator[Settings]:
    """Use other settings inside a `with` block, e.g. `with override(num_sms=64): ...`."""
    before = _current
    _install(replace(before, **changes))  # type: ignore[arg-type]
    try:
        yield _current
    finally:
        _install(before)


def flag(name: str) -> bool:
    """Return whether an environment variable is set to something other than "" and "0"."""
    return os.environ.get(name, "0") not in ("", "0")
