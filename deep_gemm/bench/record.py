"""The committed record of a GPU run: which code it measured, its test counts, and its timings.

A record is one JSON file per GPU, `benchmarks/results/<gpu>.json`:

| key | content |
|---|---|
| meta | gpu, driver, cuda, torch, date, clock, command, and `digest` of the code measured |
| tests | passed, failed, skipped, and the command |
| rows | one per problem: kind, m, n, k, microseconds under each name, mhz, config |
| host_us | microseconds one warm call keeps the host busy: ours, torch_mm, torch_scaled_mm |
| first_call_s | seconds of the first call of a new shape in a fresh process, empty kernel cache |

Where `ours` was called with static_b=True, `ours_plain` is the time without; where it leaves FP8
sums in the tensor core, `ours_promoted` is the time with promotion. Names with `_first` are times
taken before all others, one after the other, as recorded peers' were; the others were taken
interleaved. Kinds are those of `suites`, and of `grouped_suite`, which says what else rows hold.

Test and benchmark runs write their own parts in either order. A part joins what is on disk only
where the digest agrees, so that one file never mixes figures of two versions of the code.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]

PACKAGE = Path(__file__).resolve().parent.parent
# What no measured kernel depends on.
OUTSIDE = ("bench", "cli", "testing")
SUFFIXES = (".py", ".cuh")
AND = " && "  # between the commands whose figures a record holds
ROW_KEY = ("kind", "m", "n", "k")
GROUPED_ROW_KEY = ("kind", "groups", "m_per_group", "n", "k")


def measured_files(package: Path = PACKAGE) -> list[Path]:
    """Return the files the digest covers, sorted by their path inside the package."""
    files = (f for f in package.rglob("*") if f.suffix in SUFFIXES and f.is_file())
    inside = (f for f in files if f.relative_to(package).parts[0] not in OUTSIDE)
    return sorted(inside, key=lambda f: f.relative_to(package).as_posix())


def digest(package: Path = PACKAGE) -> str:
    """Return the sha256 over path and content of every kernel source and host module.

    The command line, `deep_gemm.bench` and `deep_gemm.testing` are left out: no measured code
    depends on them.
    """
    total = hashlib.sha256()
    for file in measured_files(package):
        content = file.read_bytes()
        total.update(f"{file.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def gpu_slug(gpu: str) -> str:
    """Return the file name stem of a GPU: "NVIDIA H200" is "h200"."""
    words = gpu.lower().replace("nvidia", "").split()
    return "-".join(words).replace("/", "-") or "gpu"


def result_path(target: Path, gpu: str) -> Path:
    """Return `target` itself where it names a JSON file, else the GPU's file in that folder."""
    return target if target.suffix == ".json" else target / f"{gpu_slug(gpu)}.json"


def environment() -> Record:
    """Return the `meta` of a run on the current CUDA device: hardware, versions, date, digest."""
    import torch

    from .nvml import NvmlDevice

    device = NvmlDevice()
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": device.driver_version(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "clock": {"sm_max_mhz": device.max_sm_clock_mhz()},
        "digest": digest(),
    }


def read(path: Path) -> Record | None:
    """Return the record at `path`, or None where there is none."""
    return json.loads(path.read_text()) if path.is_file() else None


def merge(old: Record | None, new: Mapping[str, Any]) -> Record:
    """Return `new` joined with `old` where both measured the same code, else `new` alone.

    Rows of the same problem are replaced, other rows kept, those of other kinds among them; every
    other part is replaced whole.
    """
    if not old or old.get("meta", {}).get("digest") != new["meta"]["digest"]:
        return dict(new)
    merged = {**old, **new, "meta": _merge_meta(old["meta"], new["meta"])}
    if "rows" in old or "rows" in new:
        merged["rows"] = _merge_rows(old.get("rows", ()), new.get("rows", ()))
    return merged


def _merge_meta(old: Record, new: Record) -> Record:
    """Return `new` over `old`, with what `new` did not read of the clock, and both commands."""
    merged = {**old, **new}
    if "clock" in old or "clock" in new:
        merged["clock"] = {**old.get("clock", {}), **new.get("clock", {})}
    commands = [c for meta in (old, new) if "command" in meta for c in meta["command"].split(AND)]
    if commands:
        merged["command"] = AND.join(dict.fromkeys(commands))
    return merged


def _merge_rows(old: Iterable[Record], new: Iterable[Record]) -> list[Record]:
    rows = {row_key(row): row for row in old}
    rows.update({row_key(row): row for row in new})
    return list(rows.values())


def row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a row: its kind and its problem."""
    return tuple(row[key] for key in (GROUPED_ROW_KEY if "groups" in row else ROW_KEY))


def update(path: Path, part: Mapping[str, Any]) -> Record:
    """Merge `part` into the record at `path`, replace the file in one step, return the whole."""
    whole = merge(read(path), part)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(dumps(whole))
    temporary.replace(path)
    return whole


def dumps(record: Mapping[str, Any]) -> str:
    """Return a record as JSON with one row a line, so that a change of it reads as a diff."""
    rows = [json.dumps(row) for row in record.get("rows", ())]
    rest = json.dumps({k: v for k, v in record.items() if k != "rows"}, indent=1)
    if not rows:
        return rest + "\n"
    joined = ",\n".join(f"  {row}" for row in rows)
    return f'{rest[:-2]},\n "rows": [\n{joined}\n ]\n}}\n'


def junit_counts(path: Path) -> dict[str, int]:
    """Return passed, failed (errors included) and skipped tests of a JUnit XML report."""
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}
