"""What README and the pages of docs/ promise and a test can run: examples, tables, names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import deep_gemm
from deep_gemm import settings

from .script_kit import load_script

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WITH_EXAMPLES = ("README.md", "docs/usage.md", "docs/grouped.md", "docs/names.md", "docs/models.md")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_a_page_run_in_order_on_the_cpu(name: str) -> None:
    names: dict[str, object] = {}
    text = (ROOT / name).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    assert blocks and "deep_gemm" in names


def test_the_first_example_gives_what_it_says() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["y"].shape == (64, 384)  # type: ignore[attr-defined]
    assert len(block.strip().splitlines()) <= 10


def test_every_public_name_is_mentioned() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    missing = {name for name in deep_gemm.__all__ if not re.search(rf"\b{name}\b", text)}
    assert missing <= {"__version__", "ScaleRecipe"}


def test_environment_variables_are_those_of_settings() -> None:
    table = [line for line in (settings.__doc__ or "").splitlines() if line.startswith("| DG_")]
    assert table
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| DG_")] == table


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


def test_links_lead_to_files_and_headings() -> None:
    for page in (*PAGES, ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", page.read_text()):
            assert not target or (page.parent / target).exists(), f"{page.name}: {target}"
        for file, heading in re.findall(r"\]\(([^)#]*)#([^)]*)\)", page.read_text()):
            text = (page.parent / file).read_text() if file else page.read_text()
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert heading in {h.lower().replace(" ", "-") for h in headings}, f"{page}: {heading}"


# --- README.zh-CN.md ------------------------------------------------------------------------------


def structure(text: str) -> list[tuple[str, ...]]:
    """Levels of headings, code, code and links in table rows, and list items of a page."""
    skeleton: list[tuple[str, ...]] = []
    parts = re.split(r"^(```\w*\n.*?^```)$", text, flags=re.MULTILINE | re.DOTALL)
    for i, part in enumerate(parts):
        if i % 2:
            skeleton.append(("code", part))
            continue
        for line in part.splitlines():
            marks = re.findall(r"`[^`]+`|\]\([^)]+\)", line)
            if level := re.match(r"#+ ", line):
                skeleton.append((level[0],))
            elif line.startswith("|"):
                skeleton.append(("row", str(line.count("|")), *marks))
            elif line.startswith("- **"):
                skeleton.append(("item",))
    return skeleton


def test_readmes_have_one_structure() -> None:
    english, chinese = (
        structure((ROOT / name).read_text()) for name in ("README.md", "README.zh-CN.md")
    )
    assert english == chinese


# --- figures from the record ----------------------------------------------------------------------


def test_the_chart_is_that_of_the_record() -> None:
    chart = load_script("chart")
    assert chart.CHART.read_text() == chart.current()


def test_a_point_of_the_chart_is_a_geometric_mean() -> None:
    chart = load_script("chart")
    rows = [
        {"kind": "dense_bf16", "m": m, "n": n, "k": 64, "ours": 1.0, "cublas": us}
        for m, n, us in ((1, 64, 2.0), (1, 128, 8.0), (16, 64, 3.0))
    ]
    bf16 = chart.series([])[-1]
    assert bf16.points(rows) == pytest.approx({1: 4.0, 16: 3.0})
    found = json.loads(chart.RECORD.read_text())
    assert "<svg" in chart.render({**found, "rows": rows}, {"rows": []})
