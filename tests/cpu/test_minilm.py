"""The example on real weights: what each recipe keeps of a sentence-embedding model."""

from __future__ import annotations

import importlib.util
import os
import re

import pytest

from deep_gemm.cli import demo
from deep_gemm.nn import RECIPES

from .script_kit import load_script

# Cosine similarity to FP32, the least of 8 sentences.
LEAST_COSINE = {
    "bf16": 0.9999, "fp8_tensor": 0.995, "fp8_row": 0.995, "fp8_block": 0.995, "int8_row": 0.99,
}  # fmt: skip


@pytest.fixture(scope="module")
def minilm():
    present = importlib.util.find_spec("transformers") and demo.find_weights()
    if not present and not os.environ.get("CI"):
        pytest.skip(f"needs transformers and {demo.PACKAGE}: make test installs them")
    return load_script("minilm", "examples")


@pytest.fixture(scope="module")
def rows(minilm):
    return {row.recipe: row for row in minilm.measure()}


@pytest.mark.parametrize("recipe", RECIPES)
def test_embeddings_survive(rows, recipe):
    row = rows[recipe]
    assert LEAST_COSINE[recipe] < row.cosine_min <= row.cosine_mean <= 1
    assert row.agreement > 0.9 and row.difference < 0.05


def test_weights_shrink_by_the_element_size(rows):
    whole = rows["fp32"].weight_bytes
    assert rows["bf16"].weight_bytes / whole == pytest.approx(1 / 2, rel=0.01)
    for recipe in ("fp8_tensor", "fp8_row", "fp8_block", "int8_row"):
        assert rows[recipe].weight_bytes / whole == pytest.approx(1 / 4, rel=0.02)


def test_readme_shows_these_figures(minilm, rows):
    """To what processors differ by in the order of their sums, and roundings that this flips."""
    shown = minilm.SECTION.read().splitlines()
    fresh = minilm.render(list(rows.values())).splitlines()
    assert len(shown) == len(fresh)
    for old, new in zip(shown, fresh, strict=True):
        numbers = [[float(x) for x in re.findall(r"\d+\.\d+", line)] for line in (old, new)]
        assert numbers[0][:2] == pytest.approx(numbers[1][:2], abs=1e-3), (old, new)
        assert re.sub(r"\d+\.\d+", "", old) == re.sub(r"\d+\.\d+", "", new)


def test_layers_with_outlier_columns_are_told_apart(minilm):
    """GELU's outputs and the inputs of the layer before have outliers; attention's have none."""
    found = minilm.advice()
    assert len(found) == 36
    assert found["encoder.layer.2.output.dense"].recommendation == "block"
    for layer in range(5):
        query = found[f"encoder.layer.{layer}.attention.self.query"]
        wide = found[f"encoder.layer.{layer}.intermediate.dense"]
        assert query.recommendation == "per_tensor" and wide.recommendation == "per_channel"
        assert query.spread < 1 < wide.spread


def test_agreement_counts_pairs_in_the_same_order(minilm):
    import torch

    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]).double())
    assert minilm.agreement(x, x) == 1.0
    # Similarities of the pairs (0, 1), (0, 2), (1, 2): exchanging 0 and 1 swaps the last two.
    assert minilm.agreement(x[[1, 0, 2]], x) == pytest.approx(2 / 3)
