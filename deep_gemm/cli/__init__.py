"""The `deep-gemm` command: one module a command, torch imported only by those that need it."""

from __future__ import annotations

import sys

NEEDS_CLI = """\
error: the deep-gemm command needs typer and rich, which the library itself does not
  pip install 'deep-gemm[cli]'"""


def main() -> None:
    """Run the command line; errors of the package end in one message and exit status 1."""
    from ..errors import DeepGemmError

    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(NEEDS_CLI, file=sys.stderr)
        raise SystemExit(1) from None
    try:
        app()
    except DeepGemmError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
