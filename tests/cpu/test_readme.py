"""README's promises that can be run: its examples, and its table of environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import deep_gemm
from deep_gemm import settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_examples_run_in_order_on_the_cpu() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) >= 5 and names["y"].shape == (64, 384)  # type: ignore[attr-defined]


def test_every_public_name_is_mentioned() -> None:
    missing = {name for name in deep_gemm.__all__ if not re.search(rf"\b{name}\b", README)}
    assert missing <= {"__version__", "DeepGemmError", "ScaleRecipe"}


def test_environment_variables_are_those_of_settings() -> None:
    table = [line for line in (settings.__doc__ or "").splitlines() if line.startswith("| DG_")]
    assert table
    assert [line for line in README.splitlines() if line.startswith("| DG_")] == table


def test_environment_variables_in_the_code_are_documented() -> None:
    documented = set(re.findall(r"\bDG_[A-Z_]+\b", settings.__doc__ or ""))
    package = Path(settings.__file__).parent
    used = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"\bDG_[A-Z_]+\b", path.read_text())
    }
    macros = {
        name
        for path in package.rglob("*.cuh")
        for name in re.findall(r"#\s*define\s+(DG_[A-Z_]+)\b", path.read_text())
    }
    assert used - macros == documented
