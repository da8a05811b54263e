"""The shape of the source tree: who may import whom, how long things are, what docs may name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "deep_gemm"
KERNELS = PACKAGE / "cuda"
MODULES = sorted(PACKAGE.rglob("*.py"))
HEADERS = sorted(KERNELS.rglob("*.cuh"))

# From the top down. A module may import from its own part and from parts further down.
PARTS = (
    "cli",
    "testing",
    "named",
    "nn",
    "grouped",
    "gemm",
    "runtime",
    "reference",
    "quant",
    "kernels",
    "config",
    "request",
    "request_groups",
    "request_scales",
    "checks",
    "problem",
    "quant.recipe",
    "quant.layout",
    "jit",
    "jit.driver",
    "dtypes",
    "settings",
    "errors",
)
# From the top down, folders of one level side by side.
INCLUDE_LEVELS = (("kernels",), ("epilogue", "scheduler"), ("pipeline",), ("mma",), ("ptx",))
INLINE_ASSEMBLY = "jit/source.py"

MAX_MODULE_LINES, MAX_HEADER_LINES = 400, 500
MAX_FUNCTION_LINES, MAX_PARAMETERS = 60, 8


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(dotted: str) -> str:
    """The part of a module named relative to the package: "config.tile" is of "config"."""
    return dotted if dotted in PARTS else dotted.split(".")[0]


def dotted_name(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and package-relative name of everything of the package that a module imports.

    Imports only a type checker sees are left out; those inside functions count.
    """
    tree = ast.parse(path.read_text())
    package = list(path.relative_to(PACKAGE).parent.parts)
    for node in (n for child in tree.body if not _is_type_checking(child) for n in ast.walk(child)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("deep_gemm."):
                    yield node.lineno, alias.name.removeprefix("deep_gemm.")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = package[: len(package) - node.level + 1]
            elif module.split(".")[0] == "deep_gemm":
                base, module = [], module.removeprefix("deep_gemm").lstrip(".")
            else:
                continue
            for alias in node.names:
                yield node.lineno, _existing([*base, *module.split("."), alias.name])


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _existing(parts: list[str]) -> str:
    """The longest leading part of a name that is a module; names bound lazily belong to no part."""
    parts = [p for p in parts if p]
    while parts:
        path = PACKAGE.joinpath(*parts)
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            return ".".join(parts)
        parts.pop()
    return ""


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or first.lineno) - first.lineno + 1 if text else 0


def test_every_module_belongs_to_a_part() -> None:
    assert {part_of(dotted_name(p)) for p in MODULES if dotted_name(p)} <= set(PARTS)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_point_downwards(path: Path) -> None:
    mine = dotted_name(path)
    if not mine:  # the package itself binds names from everywhere
        return
    rank = PARTS.index(part_of(mine))
    upwards = [
        f"line {line}: {mine} imports {name}"
        for line, name in imports_of(path)
        if name
        and PARTS.index(part_of(name)) < rank
        and part_of(name) != part_of(mine)
        # The package `jit` re-exports from its modules; `jit.driver` is one of them.
        and not (mine.startswith("jit") and name.startswith("jit"))
    ]
    assert not upwards


def test_only_upper_parts_import_the_api() -> None:
    """Names of the package itself are the API: lower parts must not reach for them."""
    upper = ("cli", "testing", "named")
    found = [
        f"{relative(path)}:{line}"
        for path in MODULES
        if dotted_name(path) and part_of(dotted_name(path)) not in upper
        for line, name in imports_of(path)
        if not name
    ]
    assert not found


def test_the_driver_is_called_in_one_place() -> None:
    users = [
        relative(path)
        for path in MODULES
        if re.search(r"cuda\.bindings(\.| import )driver", path.read_text())
    ]
    assert users == ["jit/driver.py"]


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_modules_and_functions_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES
    for node in functions_of(path):
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1 - docstring_lines(node)
        assert lines <= MAX_FUNCTION_LINES, f"{node.name}: {lines} lines"
        assert parameters(node) <= allowed_parameters(path, node.name), node.name


def allowed_parameters(path: Path, function: str) -> int:
    """Eight, but for what clients and people call, with all options: up to ten, or fourteen."""
    if path.parent.name == "named" or function == "grouped_matmul":
        return 14
    return 10 if path.parent.name == "cli" or function == "matmul" else MAX_PARAMETERS


@pytest.mark.parametrize("path", HEADERS, ids=relative)
def test_headers_stay_short_and_include_downwards(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_HEADER_LINES
    included = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.MULTILINE)
    for name in included:
        assert name.startswith("deep_gemm/"), f"{name}: only our own headers are there at run time"
        target = name.removeprefix("deep_gemm/")
        assert (KERNELS / target).is_file(), name
        assert level(target) > level(relative(path).removeprefix("cuda/")) or (
            target.split("/")[0] == path.parent.name
        ), f"{relative(path)} includes {name}"


def level(header: str) -> int:
    folder = header.split("/")[0]
    return next(i for i, folders in enumerate(INCLUDE_LEVELS) if folder in folders)


def test_inline_assembly_stays_in_its_places() -> None:
    found = {
        relative(path)
        for path in (*MODULES, *HEADERS)
        if re.search(r"\basm\s*(volatile|\()", path.read_text())
    }
    outside = {name for name in found if not name.startswith("cuda/ptx/")} - {INLINE_ASSEMBLY}
    assert found and not outside


def test_import_loads_neither_cuda_nor_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import deep_gemm"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    names = [line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line]
    assert "deep_gemm" in names
    heavy = ("cuda", "nvidia", "torch", "numpy")
    assert not [name for name in names if name.split(".")[0] in heavy]


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


# A word in backquotes that ends like a file or names a folder of the tree.
PATH_LIKE = re.compile(r"`([A-Za-z0-9_.][A-Za-z0-9_./-]*(?:\.(?:py|cuh|md|json|toml|txt)|/))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# Files that a cache entry or a user's command has, not the tree.
NOT_OURS = {"manifest.json", "log.txt"}


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.name)
def test_documents_name_existing_paths(document: Path) -> None:
    text = document.read_text()
    named = {*PATH_LIKE.findall(text), *LINK.findall(text)} - NOT_OURS
    assert not [name for name in sorted(named) if not exists(name, document)]


def exists(name: str, document: Path) -> bool:
    """A path from the root, the package, its kernels or the document; or a bare file's name."""
    if "/" not in name:
        folders = (PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "docs")
        return (ROOT / name).exists() or any(any(f.rglob(name)) for f in folders)
    bases = (ROOT, PACKAGE, KERNELS, document.parent)
    included = KERNELS / name.removeprefix("deep_gemm/")
    return included.exists() or any((base / name).exists() for base in bases)


def test_the_tree_speaks_of_itself_alone() -> None:
    """No path of a machine it was written on, no package index: it installs from anywhere."""
    # Spelt in pieces, so that this file does not hold them.
    words = ["/".join(("", "work", "")), "/".join(("..", "shared")), "--index" + "-url"]
    words += ["--find" + "-links", "/".join(("", "opt", ""))]
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository: nothing says which files belong to the tree")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    ).stdout.split("\n")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        for word in words
        if word.encode() in path.read_bytes()
    ]
    assert not found
