"""From a problem to a configuration: the cheapest legal candidate, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from .. import settings
from ..errors import UnsupportedError
from ..layouts import align
from ..problem import GemmProblem
from .candidates import candidates, finalize, is_applicable
from .cost_model import Estimate, estimate
from .device import DeviceSpec
from .gemm_config import GemmConfig
from .legality import problem_conflicts, violations

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

    Pure but for forced(). Without groups all M of an interval (interval_end()) have one answer,
    which is computed once: a known one costs a lookup, a new one about a millisecond.
    """
    if _forced is not None:
        return _fitted(replace(_forced, variant=problem.variant), problem, device)
    if problem.grouping is None and (end := interval_end(problem.m)) != problem.m:
        problem = replace(problem, m=end)
    return _select(problem, device, device.budget(num_sms))


def interval_end(m: int) -> int:
    """Return the end of the interval that M is chosen for.

    Single values up to 16, multiples of 8 up to 128, of 16 up to 512, then of 64. Inside an
    interval no candidate changes its number of tiles. The choice for the end is predicted to be
    within 1.5 % of the best at every M (tests/cpu/test_select.py).
    """
    if m <= 16:
        return m
    return align(m, 8 if m <= 128 else 16 if m <= 512 else 64)


def _fitted(config: GemmConfig, problem: GemmProblem, device: DeviceSpec) -> GemmConfig:
    """Return a forced configuration, with another store path and depth where the variant asks.

    Raises UnsupportedError where no kernel can be built so.
    """
    found = violations(config, device)
    fitted = finalize(config, device) if found else config
    if found := violations(fitted, device) + problem_conflicts(fitted, problem):
        raise UnsupportedError(f"forced configuration {fitted.name}", found)
    return fitted


@lru_cache(maxsize=65536)
def _select(problem: GemmProblem, device: DeviceSpec, num_sms: int) -> GemmConfig:
    usable = [c for c in candidates(device, problem.variant) if is_applicable(c, problem, num_sms)]
    return min(usable, key=lambda c: _rank(c, estimate(problem, c, device, num_sms)))


def choices(
    problem: GemmProblem, ms: Iterable[int], device: DeviceSpec, num_sms: int = 0
) -> dict[GemmConfig, list[int]]:
    """Return every configuration that `problem` with one of the M chooses, and for which of them.

    With static_b and without: an M that has another configuration with it stands under both. Costs
    two selections for each interval of M, or, with groups, for each M.
    """
    found: dict[GemmConfig, list[int]] = {}
    chosen: dict[int, list[GemmConfig]] = {}  # by the end of an interval
    for m in ms:
        if m <= 0:
            continue
        end = interval_end(m) if problem.grouping is None else m
        if end not in chosen:
            both = (replace(problem, m=end, static_b=static_b) for static_b in (False, True))
            chosen[end] = list(dict.fromkeys(select(one, device, num_sms) for one in both))
        for config in chosen[end]:
            found.setdefault(config, []).append(m)
    return found


def _rank(config: GemmConfig, cost: Estimate) -> tuple[float, int, int]:
    # Within a hundredth of a microsecond the smaller tile, then the smaller cluster.
    area = config.tile.block_m * config.tile.block_n
    return round(cost.us, 2), area, config.cluster_size


def explain(problem: GemmProblem, device: DeviceSpec, num_sms: int = 0) -> list[Candidate]:
    """Return every candidate, best first, with its prediction and the reason it was not chosen.

    Needs no GPU. Predictions are of the problem's own M; where those of two candidates are close,
    select(), which decides for an interval of M, may choose the second.
    """
    sms = device.budget(num_sms)
    chosen = select(problem, device, num_sms)
    usable = (c for c in candidates(device, problem.variant) if is_applicable(c, problem, sms))
    rows = [(c, estimate(problem, c, device, sms)) for c in usable]
    rows.sort(key=lambda row: (row[0] != chosen, _rank(*row)))
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
