"""The shape of the source tree: who may import whom, how long things are, which words it uses."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
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
    "bench",
    "testing",
    "nn",
    "compat",
    "grouped",
    "dense",
    "runtime",
    "dispatch",
    "operands",
    "reference",
    "quant",
    "kernels",
    "config",
    "problem",
    "layouts",
    "jit",
    "jit.driver",
    "dtypes",
    "settings",
    "errors",
)
# From the top down: folders of cuda/, and headers in no folder. Those of one level stand side by
# side and include nothing of each other.
INCLUDE_LEVELS = (
    ("gemm_sm90.cuh", "transpose.cuh", "group_tensor_maps.cuh", "cast"),
    ("mainloop", "epilogue"),
    ("gemm",),
    ("scheduler",),
    ("pipeline",),
    ("mma",),
    ("ptx",),
    ("common",),
)
INLINE_ASSEMBLY = "jit/source.py"
REQUIRED = {"torch", "cuda"}
# Packages that the library does without, each with the one part that may import it.
OPTIONAL = {"typer": "cli", "rich": "cli", "safetensors": "cli", "pynvml": "bench"}

MAX_MODULE_LINES, MAX_HEADER_LINES = 400, 500
MAX_KERNEL_LINES = {"cuda/gemm_sm90.cuh": 300}
MAX_HEADER_COLUMNS = 140
MAX_FUNCTION_LINES, MAX_PARAMETERS = 60, 8


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(dotted: str) -> str:
    """The part of a module named relative to the package: "config.tile" is of "config"."""
    return dotted if dotted in PARTS else dotted.split(".")[0]


def dotted_name(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and package-relative name of everything of the package that a module imports.

    Imports inside functions count, and those that only a type checker sees. The package itself,
    whose names are bound when they are used, is "".
    """
    package = list(path.relative_to(PACKAGE).parent.parts)
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "deep_gemm":
                    yield node.lineno, alias.name.removeprefix("deep_gemm").lstrip(".")
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


def _existing(parts: list[str]) -> str:
    """The longest leading part of a name that is a module; names bound lazily belong to no part."""
    parts = [p for p in parts if p]
    while parts:
        path = PACKAGE.joinpath(*parts)
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            return ".".join(parts)
        parts.pop()
    return ""


def packages_of(path: Path) -> Iterator[str]:
    """Every package that a module imports absolutely, but for the standard library and its own."""
    for node in nodes_of(path):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        packages = {name.split(".")[0] for name in names}
        yield from packages - {"deep_gemm"} - sys.stdlib_module_names


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes_of(path):
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


def test_every_folder_of_modules_is_a_package() -> None:
    """A wheel leaves out a folder without __init__.py."""
    assert not [relative(p) for p in MODULES if not p.with_name("__init__.py").exists()]


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


def test_no_import_circle() -> None:
    graph = {
        dotted_name(path): {name for _, name in imports_of(path)} - {dotted_name(path)}
        for path in MODULES
    }
    graph[""] = set()  # binds names when they are used
    list(graphlib.TopologicalSorter(graph).static_order())


def test_only_upper_parts_import_the_api() -> None:
    """Names of the package itself are the API: lower parts must not reach for them."""
    upper = ("cli", "bench")
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
    if path.parent.name == "compat" or function == "grouped_matmul":
        return 14
    return 10 if path.parent.name == "cli" or function == "matmul" else MAX_PARAMETERS


@pytest.mark.parametrize("path", HEADERS, ids=relative)
def test_headers_stay_short_and_include_downwards(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= MAX_KERNEL_LINES.get(relative(path), MAX_HEADER_LINES)
    assert not [f"line {i}" for i, line in enumerate(lines, 1) if len(line) > MAX_HEADER_COLUMNS]
    for name in included_by(path):
        assert name.startswith("deep_gemm/"), f"{name}: only our own headers are there at run time"
        target = name.removeprefix("deep_gemm/")
        mine = path.relative_to(KERNELS).as_posix()
        assert (KERNELS / target).is_file(), name
        assert level(target) > level(mine) or (target.split("/")[0] == mine.split("/")[0]), (
            f"{relative(path)} includes {name}"
        )


def included_by(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def level(header: str) -> int:
    folder = header.split("/")[0]
    return next(i for i, folders in enumerate(INCLUDE_LEVELS) if folder in folders)


def test_no_include_circle() -> None:
    graph = {
        f"deep_gemm/{path.relative_to(KERNELS).as_posix()}": set(included_by(path))
        for path in HEADERS
    }
    list(graphlib.TopologicalSorter(graph).static_order())


def test_no_two_folders_have_one_name() -> None:
    folders = [path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert not [name for name, count in Counter(f.name for f in folders).items() if count > 1]


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("part", [part.replace(".", "/") for part in PARTS]),
        ("folder", [folder for folders in INCLUDE_LEVELS for folder in folders]),
    ],
)
def test_the_architecture_lists_parts_in_this_order(head: str, names: list[str]) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split(f"\n| {head} | what it holds |\n|---|---|\n")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()]
    listed = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert [name.removesuffix("/").removesuffix(".py") for name in listed] == names


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


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_optional_packages_are_imported_where_they_are_needed(path: Path) -> None:
    part = part_of(dotted_name(path))
    allowed = REQUIRED | {package for package, user in OPTIONAL.items() if user == part}
    assert set(packages_of(path)) <= allowed


def test_pyproject_requires_what_is_imported() -> None:
    tomllib = pytest.importorskip("tomllib", reason="in Python 3.11 and later")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", text)[0] for text in requirements}

    assert names(project["dependencies"]) == {"torch", "cuda-bindings", "nvidia-cuda-nvrtc"}
    assert names(extras["cli"]) == {"typer", "rich", "safetensors"}
    assert names(extras["bench"]) == {"deep-gemm", "nvidia-ml-py"}


WITHOUT_OPTIONAL = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "typer", "rich", "safetensors", "pynvml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import deep_gemm, torch
x, w = torch.randn(5, 256), torch.randn(24, 256)
d = deep_gemm.matmul(deep_gemm.per_token_cast_to_fp8(x), deep_gemm.per_block_cast_to_fp8(w))
recipe = deep_gemm.ScaleRecipe("per_channel", 1, 0)
e = deep_gemm.matmul(deep_gemm.per_tensor_cast_to_fp8(x), deep_gemm.quantize(w, recipe))
stack = torch.randn(2, 24, 256).bfloat16()
f = deep_gemm.grouped_matmul(x[:4].bfloat16(), stack, offsets=torch.tensor([1, 4]).int())
print(*d.shape, *e.shape, *f.shape)
"""


def test_the_library_needs_no_optional_package() -> None:
    """Casts and products on the CPU, in a process that has none of them, nor numpy."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_OPTIONAL],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5", "24", "5", "24", "4", "24"]


# --- documents ----------------------------------------------------------------------------------


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


# A word in backquotes that ends like a file or names a folder of the tree.
PATH_LIKE = re.compile(r"`([A-Za-z0-9_.][A-Za-z0-9_./-]*(?:\.(?:py|cuh|md|json|toml|txt)|/))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
FOLDERS = ("deep_gemm", "tests", "benchmarks", "docs", "examples", "tools")
# Files that a cache entry or a user's command has, not the tree.
NOT_OURS = {"manifest.json", "log.txt"}


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_documents_name_existing_paths(document: Path) -> None:
    text = document.read_text()
    named = {*PATH_LIKE.findall(text), *LINK.findall(text)} - NOT_OURS
    assert not [name for name in sorted(named) if not exists(name, document)]


def exists(name: str, document: Path) -> bool:
    """A path from the root, the package, its kernels or the document; or a bare file's name."""
    if "/" not in name:
        folders = [ROOT / name for name in FOLDERS]
        return (ROOT / name).exists() or any(any(f.rglob(name)) for f in folders)
    bases = (ROOT, PACKAGE, KERNELS, document.parent)
    included = KERNELS / name.removeprefix("deep_gemm/")
    return included.exists() or any((base / name).exists() for base in bases)


def test_the_tree_speaks_of_itself_alone() -> None:
    """No path of a machine it was written on, no package index: it installs from anywhere."""
    # Spelt in parts, so that this file does not hold them.
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


# --- words --------------------------------------------------------------------------------------


def word(text: str) -> str:
    """A pattern of a word, alone or in a name such as my_word, MyWord or kWord."""
    return rf"(?:(?<![A-Za-z]){text[0]}|{text[0].upper()}){text[1:]}(?![a-z])"


# Words of earlier versions, as patterns, each with the standard one that replaced it. What has an
# ordinary meaning too, a random walk or something turned into something, is left out.
REPLACED = {
    r"(?<!random )(?<!ast\.)(?<!os\.)" + word("walk(?:s|er|ers|ed|ing)?"): "tile scheduler, raster",
    word("rings?"): "pipeline",
    word("slabs?"): "store stage",
    word("pieces?"): "reduce_mma_n, part",
    word("band(?:s|_on_[mn])?"): "swizzle_width",
    word("edges?"): "residue tile",
    r"(?:kSwapped|SWAPPED|[._]swapped)\b|\bswapped(?:\b *[=,:]|_)": "swap_ab",
    r"\bturned\b(?! into)|_turned\b|\bturned_|[a-z]Turned": "MN-major, transposed",
    r"TURN_REGISTERS|\bwhose turn\b": "ping-pong, order",
    r"\b(?:main_n|extra_n|kMainN|kExtraN|map_extra|extra columns)\b": "n_head, n_tail, map_b_tail",
    r"\b(?:rest_n|kRestN|map_rest)\b": "store_tail_n, map_d_tail",
    r"\.at_once\b|kAtOnce": "tiles_in_flight",
    r"tile\.(?:waves|sharing)\b|kWaves|kSharing|\bWAVE_M\b": "m_slices, warpgroups_per_tile",
    r"\b(?:half_tile|kHalfRows|kHalfColumns)\b": "half_m, half_n",
    r"\b(?:some_boxes|kSomeRows|kSomeColumns|TOKEN_BOXES)\b": "load_box_m, load_box_n",
    r"\b(?:box_columns|slab_columns|num_buffers)\b": "box_n, stage_mma_n, num_stages",
    r"\.promotion\b|\bpromotion=|\bkPromotion\b|\b(?:enum|class) Promotion\b": "Mainloop",
    r"\.addend\b|\baddend=|kAddend|AddendMode|ADDENDS": "CMode, StoreMode",
    r"\bclass Form\b|\bFORMS\b|\.form\b|\bform=|\bBLOCK_SCALED\b|\bplain form\b": "GemmVariant",
    r"\bkGrouping\b|\bgroup_maps\.cuh|kernels[./]group_maps": "GroupKind, group_tensor_maps",
    r"\bExchange\b|exchange\.(?:cuh|cpp|h)\b|\bsplit_exchange": "ClusterReduce",
    r"kOfRows|kOfColumns|of_tile_end|\bof_rows\b": "1D1D, a noun",
    r"\bmisfits\b|\bsuits\(|\breasons\(": "problem_conflicts, is_applicable, violations",
    r"\.oriented\(|\.majors\b": "mma_m and mma_n",
    r"\b(?:most_clusters|edge_of)\b": "max_clusters, residue_tiles",
    r"\b(?:reads_ahead|early_blocks|kEarlyBlocks)\b": "prefetches_c, early_k_blocks",
    r"\bconfig\.tokens\b|\bgroups\.tokens\b|kTokens\b": "block_m, m",
    r"\b(?:rows_hint|smem_plan|SmemPlan)\b": "expected_m, shared_storage, SharedStorage",
    r"\b(?:Divider|given_geometry|translation_unit\()": "FastDivmod, precomputed, spec(...).unit",
    r"deep_gemm[./]named\b|`named/|\brequest_(?:groups|scales)\b": "compat, problem",
    r"\bkept_kit\b|\bSmClock\b": "artifacts, NvmlDevice",
    r'(?<!")\blikewise\b': "what it is like",
}
SUFFIXES = {".py", ".pyi", ".cuh", ".cpp", ".hpp", ".h", ".md", ".toml"}


@cache
def written_lines() -> list[tuple[str, str]]:
    """Place and text of every line that people read, and of the path of every file."""
    folders = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    found = []
    for path in sorted({*ROOT.glob("*"), *folders}):
        if path.suffix not in SUFFIXES or path == Path(__file__).resolve():
            continue
        place = path.relative_to(ROOT).as_posix()
        found.append((place, place))
        lines = enumerate(path.read_text().splitlines(), 1)
        found += [(f"{place}:{i}", line.strip()) for i, line in lines]
    return found


@cache
def all_text() -> str:
    return "\n".join(text for _, text in written_lines())


@pytest.mark.parametrize(("pattern", "standard"), REPLACED.items(), ids=REPLACED.values())
def test_replaced_words_do_not_return(pattern: str, standard: str) -> None:
    looked_for = re.compile(pattern)
    if not looked_for.search(all_text()):
        return
    found = [f"{place}: {text}" for place, text in written_lines() if looked_for.search(text)]
    assert not found, f"the standard term is {standard}"
