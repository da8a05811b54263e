"""Compile kernels just in time, keep them on disk, load and launch them.

Importing this package imports no CUDA module.
"""

from __future__ import annotations

from .builder import build, cache_key, key_of
from .unit import Built, Resources, TranslationUnit

__all__ = ["Built", "Resources", "TranslationUnit", "build", "cache_key", "key_of"]
