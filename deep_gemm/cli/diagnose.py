"""deep-gemm diagnose: what this machine has, and what would run for one product, and why."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from . import console
from .products import FastAccum, Layout, Operands, Output, Scales, product

if TYPE_CHECKING:
    from ..config import DeviceSpec
    from ..problem import GemmProblem

DISTRIBUTIONS = ("torch", "cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm")


def diagnose(
    m: Annotated[int, typer.Argument(min=1)],
    n: Annotated[int, typer.Argument(min=1)],
    k: Annotated[int, typer.Argument(min=1)],
    device: Annotated[
        str | None,
        typer.Option(help="Choose for this GPU, by name; else for the one here, else for h200."),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Configurations to show.")] = 8,
    operands: Operands = "e4m3",
    scales: Scales = None,
    output: Output = "bf16",
    layout: Layout = "nt",
    fast_accum: FastAccum = False,
) -> None:
    """Print device, versions, cache, and the configuration of a product with the runners-up.

    Also what padding would gain; where a GPU refuses the extents, the rest is about the least
    padding it takes. The chosen kernel is compiled where it is not in the cache yet; no GPU is
    needed.
    """
    from . import padding

    problem = product((m, n, k), operands, scales, output, layout, fast_accum)
    show_machine()
    show_cache()
    spec = _spec(device)
    console.out.print(problem.describe(), markup=False, soft_wrap=True)
    show_padding(problem, spec)
    problem = padding.served(problem)
    show_choice(problem, spec, candidates)
    show_kernel(problem, spec)


def show_machine() -> None:
    """Print the GPU, or why there is none, and the versions that matter."""
    import torch

    from .. import __version__, settings
    from ..jit import nvrtc

    made = console.table("machine", ("what", "found"))
    reason = console.no_gpu_reason()
    made.add_row("GPU", torch.cuda.get_device_name() if reason is None else f"none: {reason}")
    if reason is None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        made.add_row("SMs", str(properties.multi_processor_count))
    made.add_row("SM cap", str(settings.current().num_sms or "none"))
    made.add_row("deep_gemm", __version__)
    made.add_row("python", sys.version.split()[0])
    for name in DISTRIBUTIONS:
        made.add_row(name, _version(name))
    made.add_row("NVRTC in use", ".".join(map(str, nvrtc.version())))
    console.out.print(made)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"


def show_cache() -> None:
    """Print where compiled kernels are kept, and whether they can be trusted."""
    from ..jit import cache

    root, problems = cache.cache_root(), cache.verify()
    made = console.table("kernel cache", ("what", "found"))
    made.add_row("folder", str(root))
    made.add_row("DG_JIT_CACHE_DIR", os.environ.get("DG_JIT_CACHE_DIR") or "not set")
    made.add_row("kernels", str(len(cache.entries())))
    made.add_row("bad entries", str(len(problems)))
    console.out.print(made)


def _spec(name: str | None) -> DeviceSpec:
    from .. import config

    if name is None and console.no_gpu_reason() is None:
        import torch

        return config.from_index(torch.cuda.current_device())
    return config.by_name(name or "h200")


def show_padding(problem: GemmProblem, spec: DeviceSpec) -> None:
    """Print whether the extents are served on a GPU, and the predicted times of padded ones."""
    from .. import settings
    from . import padding

    refusals = padding.refusals(problem)
    for sentence in refusals:
        console.out.print(f"not served on a GPU: {sentence}", markup=False, soft_wrap=True)
    layout = padding.pitch(problem)
    if layout:
        console.out.print(layout, markup=False, soft_wrap=True)
    found = padding.choices(problem, spec, settings.current().num_sms)
    if len(found) > 1 or refusals:
        made = console.table("padding", ("extents", "M x N x K"), ("predicted us", "of the first"))
        made.add_column("configuration")
        for row in found:
            shape = f"{row.problem.m} x {row.problem.n} x {row.problem.k}"
            share = f"{row.us / found[0].us:.3f}"
            made.add_row(row.what, shape, f"{row.us:.2f}", share, row.config.name)
        console.out.print(made)
    console.out.print(padding.verdict(found), markup=False, soft_wrap=True)


def show_choice(problem: GemmProblem, spec: DeviceSpec, count: int) -> None:
    """Print the best candidates, the chosen one marked, each with the reason."""
    from .. import config, settings

    rows = config.explain(problem, spec, settings.current().num_sms)
    made = console.table(
        f"{problem.m} x {problem.n} x {problem.k} on {spec.name}: "
        f"{min(count, len(rows))} of {len(rows)} legal configurations",
        ("", "configuration"),
        ("predicted us",),
    )
    made.add_column("reason", overflow="fold")
    for row in rows[:count]:
        mark = "*" if row.chosen else ""
        made.add_row(mark, row.config.name, f"{row.estimate_us:.2f}", row.reason)
    console.out.print(made)


def show_kernel(problem: GemmProblem, spec: DeviceSpec) -> None:
    """Compile the chosen kernel, or find it, and print what ptxas made of it."""
    from .. import config, settings
    from . import kernels

    chosen = config.select(problem, spec, settings.current().num_sms)
    ahead = kernels.build_config(chosen)
    resources = ahead.built.resources
    made = console.table("chosen kernel", ("what", "found"))
    made.add_row("configuration", chosen.describe())
    made.add_row("entry", ahead.built.entry)
    made.add_row("folder", str(ahead.built.folder or "not kept on disk"))
    made.add_row("registers at launch", str(resources.registers))
    made.add_row("spill bytes", str(ahead.spill_bytes))
    made.add_row("stack bytes", str(resources.stack_bytes))
    made.add_row("shared bytes", f"{ahead.shared_bytes} of {spec.smem_bytes}")
    made.add_row("threads", str(chosen.tile.threads))
    made.add_row("ready after", f"{ahead.seconds:.2f} s")
    console.out.print(made)
