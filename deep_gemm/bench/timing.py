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
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

L2_BYTES = 60 << 20
MIN_SETS, MAX_SETS = 2, 48
MAX_CALLS = 200
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


def clock_under(captured: Captured, clock: SmClock) -> int | None:
    """Return the SM clock in MHz while calls run, or None where it cannot be read.

    It loads the card for longer than a figure of `time_calls` takes, so nothing should be timed
    right after it.
    """
    return clock.under_load(captured.replay, _elapsed_ms(captured.replay))


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


class SmClock:
    """Reads the SM clock of a device: through nvidia-ml-py where installed, else nvidia-smi."""

    def __init__(self, device_index: int | None = None):
        index = torch.cuda.current_device() if device_index is None else device_index
        # CUDA_VISIBLE_DEVICES renumbers devices for CUDA but not for NVML: the uuid is common.
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        self.uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        self._nvml = _nvml_handle(self.uuid)
        # The load must outlast the reading: NVML answers in well under a millisecond,
        # starting nvidia-smi takes about a hundred.
        self._load_ms = 30.0 if self._nvml else 300.0

    def read(self) -> int | None:
        """Return the SM clock now in MHz, or None where neither source answers."""
        if self._nvml:
            nvml, handle = self._nvml
            return int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        return query_smi("clocks.sm", self.uuid)

    def maximum(self) -> int | None:
        """Return the highest SM clock of the device in MHz, or None where nobody says."""
        if self._nvml:
            nvml, handle = self._nvml
            return int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        return query_smi("clocks.max.sm", self.uuid)

    def under_load(self, work: Call, work_ms: float) -> int | None:
        """Return the SM clock read while repeats of `work`, `work_ms` long each, are running."""
        for _ in range(max(2, math.ceil(self._load_ms / max(work_ms, 1e-3)))):
            work()
        if self._nvml:
            time.sleep(self._load_ms / 2e3)
        mhz = self.read()
        torch.cuda.synchronize()
        return mhz


def query_smi_text(field: str, uuid: str) -> str | None:
    """Return one field of nvidia-smi for one device, or None where it cannot be read."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", uuid]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return out.strip() or None


def query_smi(field: str, uuid: str) -> int | None:
    """Return one integer field of nvidia-smi, or None where it cannot be read as one."""
    text = query_smi_text(field, uuid)
    return int(text) if text and text.isdigit() else None


def _nvml_handle(uuid: str):
    """Return (pynvml, device handle), or None where nvidia-ml-py or its driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None
