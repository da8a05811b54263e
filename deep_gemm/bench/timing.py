"""Time GPU calls: graph replays over rotating inputs, host microseconds, and the SM clock.

One figure is the median over replays of a CUDA graph that holds many calls. The calls rotate over
input sets larger together than the L2 cache, so every call finds its operands in HBM, as it would
in a network. One replay goes before those timed, as with the recorded peers; more can be asked for
(`warm_ms`), since a card that has idled runs short kernels at a lower clock and long ones at a
higher. Python's launch cost is outside the figure; `host_time_us` measures that part.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from .nvml import NvmlDevice

L2_BYTES = 60 << 20
MIN_SETS, MAX_SETS = 2, 48
MAX_CALLS = 200
CLOCK_LOAD_MS = 30.0  # of load around a reading of the SM clock, which takes under a millisecond
WARM_MS = 60.0  # of load, after which the clock no longer depends on what went before

Call = Callable[[], object]


def set_count(set_bytes: int) -> int:
    """Return how many input sets of `set_bytes` bytes four L2 caches hold, from 2 to 48."""
    return max(MIN_SETS, min(MAX_SETS, math.ceil(4 * L2_BYTES / max(set_bytes, 1))))


def calls_per_replay(estimate_ms: float, sets: int, target_ms: float) -> int:
    """Return the calls one graph holds: `target_ms` of them, at most 200, but every set once."""
    return max(sets, min(MAX_CALLS, int(target_ms / estimate_ms)))


def time_calls(
    calls: Sequence[Call], *, target_ms: float = 8.0, replays: int = 5, warm_ms: float = 0.0
) -> float:
    """Return the median microseconds per call of the closures in `calls`, one per input set.

    calls: each launches the same work on its own inputs; all must be capturable in a CUDA graph
        after a first call.
    target_ms: length of one replay.
    warm_ms: how long the card is kept busy before the replays that count; one replay at least, and
        no more where figures are compared with recorded ones.
    Cost: about `warm_ms + (replays + 2) * target_ms`, and the capture.
    """
    return time_alone(capture(calls, target_ms), replays=replays, warm_ms=warm_ms)


@dataclass(frozen=True)
class Captured:
    """A CUDA graph of so many calls, with the calls themselves: their tensors must outlive it."""

    graph: torch.cuda.CUDAGraph
    count: int
    calls: tuple[Call, ...] = ()

    def replay(self) -> None:
        """Run all calls once."""
        self.graph.replay()

    def time_us(self) -> float:
        """Return the microseconds a call of one replay."""
        return _elapsed_ms(self.replay) / self.count * 1e3


def time_alone(captured: Captured, *, replays: int = 5, warm_ms: float = 0.0) -> float:
    """Return what time_calls() returns, for calls that are captured already."""
    keep_busy(captured.replay, warm_ms)
    return statistics.median(captured.time_us() for _ in range(replays))


def time_interleaved(captured: Mapping[str, Captured], rounds: int = 5) -> dict[str, float]:
    """Return the median microseconds per call of each graph, with the replays interleaved.

    A card's clock falls with what it has just done and its temperature, by up to 20 % for long
    kernels. Interleaved replays all see it fall, so figures can be compared. The first round is not
    counted.
    """
    times: dict[str, list[float]] = {name: [] for name in captured}
    for _ in range(rounds + 1):
        for name, one in captured.items():
            times[name].append(one.time_us())
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def clock_under(captured: Captured, device: NvmlDevice) -> int:
    """Return the SM clock in MHz, read while the calls run.

    It loads the card for longer than a figure of `time_calls` takes, so nothing should be timed
    right after it.
    """
    replay_ms = _elapsed_ms(captured.replay)
    for _ in range(max(2, math.ceil(CLOCK_LOAD_MS / max(replay_ms, 1e-3)))):
        captured.replay()
    time.sleep(CLOCK_LOAD_MS / 2e3)
    mhz = device.sm_clock_mhz()
    torch.cuda.synchronize()
    return mhz


def capture(calls: Sequence[Call], target_ms: float = 8.0) -> Captured:
    """Return a graph that repeats `calls`, in order, for about `target_ms`.

    calls: as time_calls() takes them.
    """
    torch.cuda.synchronize()  # inputs may still be written on another stream
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    sample = calls[:8]
    estimate_ms = max(_elapsed_ms(lambda: [call() for call in sample]) / len(sample), 2e-3)
    count = calls_per_replay(estimate_ms, len(calls), target_ms)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(count):
            calls[i % len(calls)]()
    return Captured(graph, count, tuple(calls))


def keep_busy(work: Call, least_ms: float) -> None:
    """Repeat `work` until it has kept the device busy for `least_ms`, and once at least.

    A card that idled while inputs were drawn runs short kernels at a clock up to 30 % lower, and
    long ones, until power limits it, at one 10 % higher.
    """
    busy_ms = _elapsed_ms(work)
    while busy_ms < least_ms:
        busy_ms += _elapsed_ms(work)


def host_time_us(call: Call, *, calls: int = 100, repeats: int = 5, warm: int = 50) -> float:
    """Return the host microseconds one warm `call` takes to return, the best of `repeats` runs.

    The device is idle before each run, and the launch queue is deep enough for `calls` launches,
    so the figure is Python, checks and the driver's launch alone.
    """
    for _ in range(warm):
        call()
    best = math.inf
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
    torch.cuda.synchronize()
    return best / calls * 1e6


def _elapsed_ms(work: Call) -> float:
    """Return the device milliseconds between two events around `work`."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)
