"""Write deep_gemm/__init__.pyi: where each public name comes from, for type checkers and editors.

python3 tools/stub.py           print the stub
python3 tools/stub.py --write   write it into the package

The package binds its names when they are first used, which no static tool can follow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deep_gemm

STUB = Path(deep_gemm.__file__).with_suffix(".pyi")
HEADER = "# Written by tools/stub.py (make stub) from the names in __init__.py."


def render() -> str:
    """Return the text of the stub: each name imported from its module, and `__all__`."""
    parts, names_of = vars(deep_gemm)["_PARTS"], vars(deep_gemm)["_NAMES"]
    lines = [HEADER, *(f"from . import {part} as {part}" for part in sorted(parts))]
    for module in sorted(names_of):
        names = sorted(names_of[module])
        lines += [f"from .{module} import {name} as {name}" for name in names]
    exported = "\n".join(f'    "{name}",' for name in deep_gemm.__all__)
    return "\n".join([*lines, "", "__version__: str", f"__all__ = [\n{exported}\n]"]) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        STUB.write_text(render())
    else:
        print(render(), end="")
