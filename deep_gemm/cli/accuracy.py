"""deep-gemm accuracy: what FP8 costs on real weights, by granularity of the scales."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import console

if TYPE_CHECKING:
    import torch

    from ..bench.quant_error import LayerError
    from ..quant import Advice


@dataclass(frozen=True)
class Measured:
    """One weight: the errors of its products, and the scales that its tensors need."""

    layer: LayerError
    advice: Advice


def accuracy(
    file: Annotated[Path, typer.Argument(help="Weights, a .safetensors file.")],
    activations: Annotated[
        Path | None, typer.Option(help="Activations: a .safetensors file with [rows, k] tensors.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of activations per layer.")] = 256,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Seed of random activations.")
    ] = 0,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write every figure to this file.")
    ] = None,
) -> None:
    """Measure the FP8 error of every 2-D weight in a file, by granularity of the scales.

    Errors are relative Frobenius errors against the float64 product of the unquantised operands.
    Activations are normal random with a few outlier channels, or come from a second file: the
    tensor named like the weight, else the first one of the right width. Each weight is shown with
    the spread of its channels in orders of magnitude and the coarsest scales that will do.
    """
    for path in (file, activations):
        if path is not None and not path.is_file():
            console.fail(f"{path}: no such file")
    from safetensors import SafetensorError

    try:
        layers, skipped = measure_file(file, activations, rows, seed)
    except SafetensorError as error:
        console.fail(f"not a readable .safetensors file: {error}")
    if not layers:
        console.fail(f"{file}: no 2-D floating weight could be measured" + _reasons(skipped))
    show(layers, skipped)
    if json_path:
        source = str(activations) if activations else f"random, seed {seed}"
        report = as_json(layers, skipped, {"file": str(file), "activations": source})
        json_path.write_text(json.dumps(report, indent=1) + "\n")


def measure_file(
    file: Path, activations: Path | None, rows: int, seed: int
) -> tuple[list[Measured], dict[str, str]]:
    """Return the layers measured, and the 2-D weights left out with the reason for each."""
    from safetensors import safe_open

    from ..bench.quant_error import layer_error, random_activations
    from ..quant import advise

    device = console.device_type()
    inputs = _Activations(activations) if activations else None
    layers: list[Measured] = []
    skipped: dict[str, str] = {}
    with safe_open(file, "pt") as weights, _progress() as progress:
        names = [name for name in weights.keys() if len(weights.get_slice(name).get_shape()) == 2]
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            weight = weights.get_tensor(name)
            progress.advance(task)
            if not weight.is_floating_point():
                continue
            k = weight.shape[1]
            x = inputs.find(name, k, rows) if inputs else random_activations(name, rows, k, seed)
            if x is None:
                skipped[name] = f"no activations of width {k} in the second file"
            elif reason := _unusable(weight, x):
                skipped[name] = reason
            else:
                advice = advise(weight.to(device), x.to(device))
                layers.append(Measured(layer_error(name, x, weight, device), advice))
    return layers, skipped


class _Activations:
    """The 2-D floating tensors of a second file, found by a weight's name or its width."""

    def __init__(self, path: Path):
        from safetensors.torch import load_file

        tensors = load_file(path)
        self.tensors = {
            name: t for name, t in tensors.items() if t.ndim == 2 and t.is_floating_point()
        }

    def find(self, name: str, k: int, rows: int) -> torch.Tensor | None:
        """Return at most `rows` rows for the weight `name` of width `k`, or None."""
        named = self.tensors.get(name)
        candidates = [named] if named is not None else []
        for x in [*candidates, *self.tensors.values()]:
            if x.shape[1] == k and x.shape[0]:
                return x[:rows]
        return None


def _unusable(weight: torch.Tensor, x: torch.Tensor) -> str | None:
    if not weight.numel():
        return "empty"
    if not bool(weight.float().isfinite().all()):
        return "holds NaN or infinity"
    if not bool(x.float().isfinite().all()):
        return "its activations hold NaN or infinity"
    return None


def _progress() -> Progress:
    return Progress(
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console.out,
        transient=True,
    )


def _reasons(skipped: dict[str, str]) -> str:
    return "".join(f"\n  {name}: {reason}" for name, reason in skipped.items())


def show(layers: list[Measured], skipped: dict[str, str]) -> None:
    """Print a row per layer, the total, and what was left out."""
    from ..bench.quant_error import GRANULARITIES, total

    made = console.table(
        "relative error of the FP8 product by scales: one a tensor, one a channel (a row of A, "
        "a row of B), blocks (1x128 of A, 128x128 of B)",
        ("weight",),
        ("n x k", "tensor", "channel", "block", "spread", "advice"),
    )
    for found in layers:
        layer, advice = found.layer, found.advice
        made.add_row(
            layer.name,
            f"{layer.n} x {layer.k}",
            *(console.percent(layer.error(g)) for g in GRANULARITIES),
            f"{advice.spread:.2f}",
            advice.recommendation.removeprefix("per_"),
        )
    made.add_section()
    errors = [found.layer for found in layers]
    made.add_row("total", "", *(console.percent(total(errors, g)) for g in GRANULARITIES))
    console.out.print(made)
    where = "the GPU kernel" if console.device_type() == "cuda" else "the CPU backend"
    console.out.print(f"{errors[0].rows} rows of activations; block product by {where}.")
    console.out.print(
        "spread: log10 of the largest channel over the median one, rows of the weight or columns "
        "of the activations; advice: the coarsest scales that will do."
    )
    for name, reason in skipped.items():
        console.out.print(f"left out: {name}: {reason}", markup=False)


def as_json(
    layers: list[Measured], skipped: dict[str, str], source: dict[str, str]
) -> dict[str, Any]:
    """Return every figure as JSON values."""
    from ..bench.quant_error import GRANULARITIES, total

    errors = [found.layer for found in layers]
    return {
        **source,
        "device": console.device_type(),
        "metric": "relative Frobenius error against the float64 product of unquantised operands",
        "layers": [
            {"name": layer.name, "n": layer.n, "k": layer.k, "rows": layer.rows}
            | {g: layer.error(g) for g in GRANULARITIES}
            | {"advice": _advice(found.advice)}
            for found in layers
            for layer in (found.layer,)
        ],
        "total": {g: total(errors, g) for g in GRANULARITIES},
        "skipped": skipped,
    }


def _advice(advice: Advice) -> dict[str, Any]:
    """Return the advice as JSON values: spread, recommendation, reason, and both ranges."""
    ranges = {"weight": advice.weight, "activation": advice.activation}
    return {
        "spread": advice.spread,
        "recommendation": advice.recommendation,
        "reason": advice.reason,
        **{name: asdict(found) for name, found in ranges.items() if found},
    }
