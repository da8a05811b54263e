"""A generated section of a document."""

from __future__ import annotations

import pytest

from deep_gemm.bench.section import Section

TEXT = "Before.\n<!-- a: begin -->\nold\n<!-- a: end -->\nAfter.\n"


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    return path


def test_only_the_section_is_replaced(document):
    section = Section(document, "a")
    assert section.read() == "old"
    section.write("new\nlines")
    assert section.read() == "new\nlines"
    assert document.read_text() == TEXT.replace("old", "new\nlines")


@pytest.mark.parametrize("text", ("", TEXT + TEXT, TEXT.replace("<!-- a: end -->", "")))
def test_markers_that_are_not_there_once_are_an_error(document, text):
    document.write_text(text)
    section = Section(document, "a")
    with pytest.raises(ValueError, match="unpack"):
        section.read()
    with pytest.raises(ValueError, match="unpack"):
        section.write("new")
    assert document.read_text() == text
