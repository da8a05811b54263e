"""A generated section of a document: what stands between two markers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """The text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a document.

    Both methods raise ValueError unless the document holds each marker once.
    """

    document: Path
    name: str

    def read(self) -> str:
        """Return the section, less the blank around it."""
        return self._split()[1].strip()

    def write(self, text: str) -> None:
        """Put text in the section's place; the rest of the document stays."""
        before, _, after = self._split()
        begin, end = self._markers()
        self.document.write_text(f"{before}{begin}\n{text}\n{end}{after}")

    def _markers(self) -> tuple[str, str]:
        return f"<!-- {self.name}: begin -->", f"<!-- {self.name}: end -->"

    def _split(self) -> tuple[str, str, str]:
        """Return what stands before, within and after."""
        begin, end = self._markers()
        before, rest = self.document.read_text().split(begin)
        within, after = rest.split(end)
        return before, within, after
