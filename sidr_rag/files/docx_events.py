"""What to make of the XML events of a Word document's parts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sidr_rag.errors import FileReadError
from sidr_rag.files.outline import Outline

_HEADING = re.compile(r"heading\s?([1-9])", re.IGNORECASE)
_MAX_STYLE_CHAIN = 20
# Old or deleted content, and the copy of a shape's text for programs that cannot show the shape.
_DROPPED = frozenset(("del", "moveFrom", "pPrChange", "rPrChange", "Fallback"))
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_PLAIN_LEVEL = 9
# What text costs grows with the tables around it; real documents stay far below.
_MAX_DEPTH = 256


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _value(attributes: Mapping[str, str], name: str = "val") -> str:
    return next((value for key, value in attributes.items() if _local(key) == name), "")


class Events:
    """What the XML parser calls; a part overrides what it needs."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins; `tag` has its namespace in braces."""

    def end(self, tag: str) -> None:
        """An element ends."""

    def data(self, text: str) -> None:
        """Text, perhaps only a part of what the element holds."""

    def close(self) -> None:
        """The document ends."""


class MainPart(Events):
    """Finds the document's main part in the package's relationships."""

    def __init__(self) -> None:
        self.target = "word/document.xml"

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Note where the main part is."""
        if _local(tag) == "Relationship" and _value(attributes, "Type").endswith("/officeDocument"):
            self.target = _value(attributes, "Target")


class Title(Events):
    """Reads the title from the document's properties."""

    def __init__(self) -> None:
        self.text = ""
        self._inside = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Watch for the title."""
        self._inside = _local(tag) == "title"

    def end(self, tag: str) -> None:
        """Stop taking text."""
        self._inside = False

    def data(self, text: str) -> None:
        """Take the title's text."""
        if self._inside:
            self.text += text


class Styles(Events):
    """Reads which paragraph styles are headings."""

    def __init__(self) -> None:
        self._id = ""
        self._own: dict[str, int] = {}
        self._base: dict[str, str] = {}

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Note a style's name, base or outline level."""
        name = _local(tag)
        if name == "style":
            self._id = _value(attributes, "styleId") if _value(attributes, "type") == "paragraph" else ""
        elif not self._id:
            return
        elif name == "name":
            value = _value(attributes).strip()
            if match := _HEADING.fullmatch(value):
                self._own[self._id] = int(match[1])
            elif value.lower() == "title":
                self._own[self._id] = 0
        elif name == "basedOn":
            self._base[self._id] = _value(attributes)
        elif name == "outlineLvl" and self._id not in self._own:
            self._own[self._id] = _outline_level(_value(attributes))

    def end(self, tag: str) -> None:
        """Leave the style."""
        if _local(tag) == "style":
            self._id = ""

    def levels(self) -> dict[str, int]:
        """Heading level (0 for a title, 1 topmost) by style id; styles that are no headings are absent."""
        levels: dict[str, int] = {}
        for style in {*self._own, *self._base}:
            at = style
            for _ in range(_MAX_STYLE_CHAIN):
                if at in self._own or at not in self._base:
                    break
                at = self._base[at]
            level = self._own.get(at, _PLAIN_LEVEL + 1)
            if level <= _PLAIN_LEVEL:
                levels[style] = level
        return levels


def _outline_level(value: str) -> int:
    """The heading level of an outline level (0 to 8; 9 is body text)."""
    return int(value) + 1 if value in tuple("012345678") else _PLAIN_LEVEL + 1


class _Paragraph:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.level: int | None = None


class Body(Events):
    """Reads the main part.

    Args:
        levels: heading level by style id.
        title: the document's title from its properties; may be empty.
    """

    def __init__(self, levels: Mapping[str, int], title: str) -> None:
        self.outline = Outline(title)
        self._levels = levels
        self._path: list[str] = []
        self._dropped_at = 0
        # Text boxes put paragraphs inside paragraphs, and cells hold tables: both are stacks.
        self._paragraphs: list[_Paragraph] = []
        self._cells: list[list[str]] = []
        self._rows: list[list[str]] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Enter an element; breaks and formatting are taken at once.

        Raises:
            FileReadError: elements are nested too deeply.
        """
        name = _local(tag)
        parent = self._path[-1] if self._path else ""
        self._path.append(name)
        if len(self._path) > _MAX_DEPTH:
            raise FileReadError(f"elements nested more than {_MAX_DEPTH} deep")
        if self._dropped_at:
            return
        if name in _DROPPED:
            self._dropped_at = len(self._path)
        elif name == "p":
            self._paragraphs.append(_Paragraph())
        elif name == "tr":
            self._rows.append([])
        elif name == "tc":
            self._cells.append([])
        elif self._paragraphs:
            if parent == "r" and name in _BREAKS:
                self._paragraphs[-1].parts.append(_BREAKS[name])
            elif parent == "pPr":
                self._format(name, _value(attributes))

    def end(self, tag: str) -> None:
        """Leave an element; paragraphs, cells and rows are complete."""
        depth = len(self._path)
        name = self._path.pop()
        if self._dropped_at:
            if depth == self._dropped_at:
                self._dropped_at = 0
        elif name == "p" and self._paragraphs:
            self._end_paragraph(self._paragraphs.pop())
        elif name == "tc" and self._cells:
            cell = " ".join(self._cells.pop())
            if self._rows:
                self._rows[-1].append(cell)
        elif name == "tr" and self._rows:
            self._emit("\t".join(self._rows.pop()).strip(), "\n")
        elif name == "tbl" and not self._cells:
            self.outline.write("\n")

    def data(self, text: str) -> None:
        """Take text of a run."""
        if self._paragraphs and not self._dropped_at and self._path[-1] == "t":
            self._paragraphs[-1].parts.append(text)

    def _format(self, name: str, value: str) -> None:
        if name == "pStyle":
            self._paragraphs[-1].level = self._levels.get(value)
        elif name == "outlineLvl":
            level = _outline_level(value)
            self._paragraphs[-1].level = level if level <= _PLAIN_LEVEL else None

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.parts)
        if paragraph.level is not None and not self._cells and not self._paragraphs:
            self.outline.heading(paragraph.level, text)
        else:
            self._emit(text, "\n\n")

    def _emit(self, text: str, end: str) -> None:
        if not text.strip():
            return
        if self._cells:
            self._cells[-1].append(" ".join(text.split()))
        else:
            self.outline.write(text + end)
