"""The typed stub of the package: it is up to date, and type checkers see signatures through it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import deep_gemm

from .script_kit import ROOT, load_script


def test_the_stub_is_what_the_tool_writes() -> None:
    stub = load_script("stub", "tools")
    assert ROOT / "deep_gemm" / "__init__.pyi" == stub.STUB
    assert stub.STUB.read_text() == stub.render(), "run make stub"


def test_the_stub_names_what_the_package_exports() -> None:
    text = load_script("stub", "tools").render()
    imported = set(re.findall(r"^from \S+ import \w+ as (\w+)$", text, re.MULTILINE))
    assert imported | {"__version__"} == set(deep_gemm.__all__)
    assert all(hasattr(deep_gemm, name) for name in imported)


def test_mypy_sees_signatures(tmp_path: Path) -> None:
    names = [name for name in deep_gemm.__all__ if not name.startswith("_")]
    lines = [
        "import deep_gemm",
        "import torch",
        "a = torch.ones(1)",
        "deep_gemm.matmul(a, a, no_such_keyword=1)",
        "deep_gemm.no_such_name",
        *(f"reveal_type(deep_gemm.{name})" for name in names),
    ]
    path = tmp_path / "calls.py"
    path.write_text("\n".join(lines) + "\n")
    # It takes what it can of .mypy_cache, which `make test` fills: 0.3 s instead of 6 s.
    command = [sys.executable, "-m", "mypy", "--no-pretty", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    errors = re.findall(r"calls\.py:(\d+): error: (.*)", done.stdout)
    assert [line for line, _ in errors] == ["4", "5"], done.stdout
    assert 'Unexpected keyword argument "no_such_keyword" for "matmul"' in errors[0][1]
    assert 'has no attribute "no_such_name"' in errors[1][1]
    types = re.findall(r'note: Revealed type is "(.*)"', done.stdout)
    revealed = dict(zip(names, types, strict=True))
    assert not [name for name, found in revealed.items() if found == "Any"]
    matmul = revealed["matmul"]
    assert matmul.startswith("def (a: torch._tensor.Tensor | ") and "static_b: bool =" in matmul
    # Only what Hopper has no kernel for, and always refuses, takes arguments of any type.
    refusing = set(deep_gemm._NAMES["compat.blackwell"])
    assert {name for name, found in revealed.items() if re.search(r"\bAny\b", found)} <= refusing
