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
    """

    num_sms: int = 0
    pdl: bool = True


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
