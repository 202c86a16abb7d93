"""HTML: the text that a reader sees, in sections under headings."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sidr_rag.errors import FileReadError
from sidr_rag.files.document import Fault, Section
from sidr_rag.files.encoding import read_text
from sidr_rag.files.extras import require
from sidr_rag.files.limits import Limits
from sidr_rag.files.outline import Outline

# Small enough that the time limit is looked at often even where the parser is slow.
_CHUNK = 8_192
_CHARSET = re.compile(rb"""(?:charset|encoding)\s{0,9}=\s{0,9}["']?([A-Za-z0-9_:.-]{1,40})""")
# Python has codecs of other purposes under such names, so only families of web encodings are believed.
_KNOWN = re.compile(r"(windows-125\d|iso-8859-\d{1,2}|koi8-[ru]|shift[_-]jis|euc-(jp|kr)|gb(k|2312|18030)|big5)")

_DROPPED = frozenset(("script", "style", "nav", "template", "noscript", "svg", "iframe", "select"))
_LINES = frozenset(("li", "tr", "dt", "dd", "caption", "figcaption", "summary"))
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "aside", "ul", "ol", "dl", "table", "pre"),
        *("blockquote", "figure", "form", "fieldset", "hr", "address", "details", "body"),
    )
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACES = dict.fromkeys(map(ord, "\t\n\r\f"), " ")


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per heading; scripts, styles and navigation are dropped. Nothing is fetched.

    Raises:
        FileReadError: the file is not text, is too large, or takes longer than `limits.html_timeout_s` to parse.
        MissingExtraError: lxml is not installed.
        OSError: the file cannot be opened.
    """
    etree = require("lxml.etree", "lxml", "reading HTML files")
    text = read_text(path, limits, fault, _declared).replace("\0", "").replace("\r\n", "\n")
    if not text.strip():
        return
    target = _Reader()
    # The parser reports events and builds no tree, so neither depth nor size of the document costs memory.
    parser = etree.HTMLParser(target=target, encoding="utf-8", huge_tree=True, no_network=True)
    spent = 0.0
    for start in range(0, len(text), _CHUNK):
        begun = time.monotonic()
        parser.feed(text[start : start + _CHUNK].encode("utf-8", "replace"))
        spent += time.monotonic() - begun
        if spent > limits.html_timeout_s:
            raise FileReadError(f"took longer than html_timeout_s={limits.html_timeout_s:g} to parse")
        yield from target.outline.take()
    parser.close()
    yield from target.finish()


def _declared(head: bytes) -> str | None:
    """The encoding that a page names for itself, if it is one that can be believed."""
    match = _CHARSET.search(head)
    name = match[1].decode().lower() if match else ""
    # On the web iso-8859-1 means cp1252, which is the fallback anyway.
    return name if _KNOWN.fullmatch(name) and name != "iso-8859-1" else None


class _Reader:
    """Receives the parser's events."""

    def __init__(self) -> None:
        self.outline = Outline()
        self._depth = 0
        self._dropped_at = 0
        self._pre_at = 0
        self._heading = ""
        self._in_title = False
        self._has_title = False
        self._line_open = False
        self._buffer: list[str] = []

    def start(self, tag: str, attributes: Any) -> None:
        self._depth += 1
        if self._dropped_at:
            return
        if tag in _DROPPED:
            self._dropped_at = self._depth
        elif tag == "title" and not self._has_title:
            self._break(paragraph=True)
            self._in_title = self._has_title = True
        elif tag in _HEADINGS:
            self._end_heading()
            self._break(paragraph=True)
            self._heading = tag
        elif tag == "br":
            self._buffer.append("\n")
        elif tag in _LINES or tag in _BLOCKS:
            self._boundary(tag)
            if tag == "pre" and not self._pre_at:
                self._pre_at = self._depth

    def end(self, tag: str) -> None:
        depth, self._depth = self._depth, self._depth - 1
        if self._dropped_at:
            if depth == self._dropped_at:
                self._dropped_at = 0
        elif tag == "title" and self._in_title:
            self._in_title = False
            self.outline.name("".join(self._buffer))
            self._buffer = []
        elif tag == self._heading:
            self._end_heading()
        elif tag in ("td", "th"):
            self._buffer.append("\t")
        elif tag in _LINES or tag in _BLOCKS:
            self._boundary(tag)
            if depth == self._pre_at:
                self._pre_at = 0

    def data(self, text: str) -> None:
        if not self._dropped_at:
            self._buffer.append(text if self._pre_at else text.translate(_SPACES))

    def close(self) -> None:
        """The parser asks for a result here; `finish` gives it."""

    def finish(self) -> list[Section]:
        self._end_heading()
        self._break(paragraph=True)
        return self.outline.finish()

    def _boundary(self, tag: str) -> None:
        if self._heading or self._in_title:
            self._buffer.append(" ")
        else:
            self._break(paragraph=tag in _BLOCKS)

    def _end_heading(self) -> None:
        if self._heading:
            level, self._heading = _HEADINGS[self._heading], ""
            # Documentation tools hang a paragraph sign on headings as a link to them.
            self.outline.heading(level, "".join(self._buffer).strip().rstrip("¶"))
            self._buffer = []

    def _break(self, *, paragraph: bool) -> None:
        block = "".join(self._buffer)
        self._buffer = []
        block = block.strip("\n") if self._pre_at else _tidy(block)
        if block.strip():
            self.outline.write(block + "\n")
            self._line_open = True
        if paragraph and self._line_open:
            self.outline.write("\n")
            self._line_open = False


def _tidy(block: str) -> str:
    """Collapse runs of spaces within the cells of each line."""
    lines = ("\t".join(" ".join(cell.split()) for cell in line.split("\t")).strip() for line in block.split("\n"))
    return "\n".join(lines).strip()
