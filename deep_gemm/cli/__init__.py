"""The `deep-gemm` command: one module a command, torch imported only by those that need it."""

from __future__ import annotations

import sys

from .app import app


def main() -> None:
    """Run the command line; errors of the package end in one message and exit status 1."""
    from ..errors import DeepGemmError

    try:
        app()
    except DeepGemmError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
