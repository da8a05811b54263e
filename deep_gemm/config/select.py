"""From a problem to a configuration: the cheapest legal candidate, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from .. import settings
from ..errors import UnsupportedError
from ..problem import GemmProblem
from .candidates import candidates, complete, suits
from .cost_model import Estimate, estimate
from .device import DeviceSpec
from .legality import misfits, reasons
from .tile import GemmConfig

_forced: GemmConfig | None = None


@dataclass(frozen=True)
class Candidate:
    """One row of explain(): a configuration, its prediction, and what was made of it."""

    config: GemmConfig
    estimate: Estimate
    chosen: bool
    reason: str

    @property
    def estimate_us(self) -> float:
        """Predicted microseconds."""
        return self.estimate.us


def select(problem: GemmProblem, device: DeviceSpec, num_sms: int = 0) -> GemmConfig:
    """Return the configuration for a problem; num_sms = 0 means every SM of the device.

    Pure but for forced(); known problems cost a lookup, new ones about a millisecond.
    """
    if _forced is not None:
        return _fitted(replace(_forced, form=problem.form), problem, device)
    return _select(problem, device, device.budget(num_sms))


def _fitted(config: GemmConfig, problem: GemmProblem, device: DeviceSpec) -> GemmConfig:
    """Return a forced configuration, with another store path and depth where the form asks for it.

    Raises UnsupportedError where no kernel can be built so.
    """
    found = reasons(config, device)
    fitted = complete(config, device) if found else config
    if found := reasons(fitted, device) + misfits(fitted, problem):
        raise UnsupportedError(f"forced configuration {fitted.name}", found)
    return fitted


@lru_cache(maxsize=65536)
def _select(problem: GemmProblem, device: DeviceSpec, num_sms: int) -> GemmConfig:
    usable = [c for c in candidates(device, problem.form) if suits(c, problem, num_sms)]
    return min(usable, key=lambda c: _rank(c, estimate(problem, c, device, num_sms)))


def choices(
    problem: GemmProblem, ms: Iterable[int], device: DeviceSpec, num_sms: int = 0
) -> dict[GemmConfig, list[int]]:
    """Return every configuration that `problem` with one of the M chooses, and for which of them.

    With static_b and without: an M that has another configuration with it stands under both. Costs
    about two milliseconds for each M.
    """
    found: dict[GemmConfig, list[int]] = {}
    for m in ms:
        forms = (replace(problem, m=m, static_b=static_b) for static_b in (False, True))
        for config in dict.fromkeys(select(form, device, num_sms) for form in forms if m > 0):
            found.setdefault(config, []).append(m)
    return found


def _rank(config: GemmConfig, cost: Estimate) -> tuple[float, int, int]:
    # Within a hundredth of a microsecond the smaller tile, then the smaller cluster.
    return round(cost.us, 2), config.tile.block_m * config.tile.block_n, config.cluster


def explain(problem: GemmProblem, device: DeviceSpec, num_sms: int = 0) -> list[Candidate]:
    """Return every candidate, best first, with its prediction and the reason it was not chosen.

    Needs no GPU.
    """
    sms = device.budget(num_sms)
    chosen = select(problem, device, num_sms)
    usable = (c for c in candidates(device, problem.form) if suits(c, problem, sms))
    rows = [(c, estimate(problem, c, device, sms)) for c in usable]
    rows.sort(key=lambda row: _rank(*row))
    best = next(cost for config, cost in rows if config == chosen)
    return [_candidate(config, cost, chosen, best) for config, cost in rows]


def _candidate(config: GemmConfig, cost: Estimate, chosen: GemmConfig, best: Estimate) -> Candidate:
    what = f"{cost.waves} waves, {cost.k_block_cycles:.0f} cycles a k-block, limit {cost.limit}"
    if config == chosen:
        return Candidate(config, cost, True, f"chosen: {what}")
    return Candidate(config, cost, False, f"{cost.us / best.us:.2f}x the chosen: {what}")


@contextmanager
def forced(config: GemmConfig) -> Iterator[None]:
    """Make select() answer `config` inside a `with` block; for tests, sweeps and tuning."""
    global _forced
    before, _forced = _forced, config
    settings.outdate_plans()
    try:
        yield
    finally:
        _forced = before
        settings.outdate_plans()
