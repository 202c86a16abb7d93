from __future__ import annotations

from sidr_rag.files.document import MAX_TITLE_CHARS
from sidr_rag.files.outline import Outline


def summary(outline: Outline):
    return [(section.title, section.text) for section in outline.finish()]


def test_titles_are_heading_paths():
    outline = Outline()
    outline.write("before\n")
    outline.heading(1, "A")
    outline.write("a\n")
    outline.heading(3, "B")
    outline.write("b\n")
    outline.heading(2, "C")
    outline.write("c\n")
    assert summary(outline) == [(None, "before"), ("A", "a"), ("A > B", "b"), ("A > C", "c")]


def test_document_title_stands_in_for_a_missing_first_level():
    outline = Outline("Doc", {"year": 3})
    outline.write("before")
    outline.heading(2, "B")
    outline.write("b")
    outline.heading(1, "A")
    outline.write("a")
    sections = outline.finish()
    assert [(section.title, section.text) for section in sections] == [("Doc", "before"), ("Doc > B", "b"), ("A", "a")]
    assert sections[1].metadata == {"title": "Doc", "year": 3, "section": "B"}


def test_heading_with_nothing_below_it_is_kept_as_text():
    outline = Outline()
    outline.heading(1, "A")
    outline.heading(2, "B")
    outline.heading(2, "C")
    outline.write("c")
    outline.heading(1, "Z")
    assert summary(outline) == [("A", "B"), ("A > C", "c"), (None, "Z")]


def test_overlong_heading_is_text():
    outline = Outline()
    outline.heading(1, "x" * (MAX_TITLE_CHARS + 1))
    outline.write("rest")
    [(title, text)] = summary(outline)
    assert title is None
    assert text.split("\n") == ["x" * (MAX_TITLE_CHARS + 1), "rest"]


def test_overlong_document_title_is_text():
    outline = Outline("y" * (MAX_TITLE_CHARS + 1))
    assert summary(outline) == [(None, "y" * (MAX_TITLE_CHARS + 1))]


def test_blank_document_has_no_sections():
    outline = Outline()
    outline.heading(1, "  ")
    outline.write(" \n\t")
    assert outline.finish() == []
