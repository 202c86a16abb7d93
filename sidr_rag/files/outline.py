"""Text under headings to sections: shared by the kinds that have headings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidr_rag.files.document import MAX_TITLE_CHARS, Section

SEPARATOR = " > "


class Outline:
    """Collects a document's headings and text, and cuts a section wherever a heading begins.

    A section's title is its path of headings; the document's title stands in for a missing level-1 heading. A heading
    with nothing below it becomes a section of its own, so that no word of a document is lost.

    Args:
        title: the document's title; may be given later by `name`.
        metadata: what every section carries.
    """

    def __init__(self, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        self._title: str | None = None
        self._metadata = dict(metadata or {})
        self._stack: list[tuple[int, str]] = []
        self._parts: list[str] = []
        self._done: list[Section] = []
        if title is not None:
            self.name(title)

    def name(self, title: str) -> None:
        """Set the document's title; one that is too long to repeat is taken as text."""
        title = " ".join(title.split())
        if len(title) > MAX_TITLE_CHARS:
            self.write(title + "\n\n")
        elif title:
            self._title = title
            self._metadata["title"] = title

    def heading(self, level: int, text: str) -> None:
        """Begin a section; `level` is 1 for the topmost kind of heading, 0 for a title above those."""
        text = " ".join(text.split())
        if not text:
            return
        if len(text) > MAX_TITLE_CHARS:
            self.write("\n" + text + "\n")
            return
        self._cut(level)
        while self._stack and self._stack[-1][0] >= level:
            self._stack.pop()
        self._stack.append((level, text))

    def write(self, text: str) -> None:
        """Add text to the current section, as it is."""
        self._parts.append(text)

    def take(self) -> list[Section]:
        """The sections completed since the last call."""
        done, self._done = self._done, []
        return done

    def finish(self) -> list[Section]:
        """End the document: all sections not yet taken."""
        self._cut(0)
        return self.take()

    def _cut(self, next_level: int) -> None:
        text = "".join(self._parts).strip()
        self._parts = []
        if text:
            self._done.append(self._section(text, self._stack))
        elif self._stack and next_level <= self._stack[-1][0]:
            self._done.append(self._section(self._stack[-1][1], self._stack[:-1]))

    def _section(self, text: str, stack: list[tuple[int, str]]) -> Section:
        names = [name for _, name in stack]
        metadata = {**self._metadata, "section": SEPARATOR.join(names)} if names else self._metadata
        if self._title and (not stack or stack[0][0] > 1) and self._title not in names[:1]:
            names.insert(0, self._title)
        return Section(text, SEPARATOR.join(names) or None, metadata)
