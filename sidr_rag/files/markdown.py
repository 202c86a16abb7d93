"""Markdown: sections under headings, code fences kept, front matter as metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sidr_rag.files import front_matter
from sidr_rag.files.document import Fault, Section, rename_reserved
from sidr_rag.files.encoding import read_text
from sidr_rag.files.limits import Limits
from sidr_rag.files.outline import Outline

_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
# Lines that open a list, quote, table, heading or indented code are no paragraph, so no underline makes them headings.
_NO_PARAGRAPH = ("-", "*", "+", ">", "|", "#", "    ", "\t", "=", "`", "~", "<")


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per heading; a heading's line goes to the title, everything else stays as written.

    Raises:
        FileReadError: the file is not text, or is too large.
        OSError: the file cannot be opened.
    """
    lines = read_text(path, limits, fault).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    settings, i = front_matter.parse(lines)
    title = settings.get("title")
    outline = Outline(title if isinstance(title, str) else None, rename_reserved(settings, ["section"]))
    fence = ""
    while i < len(lines):
        line = lines[i]
        mark = _fence_mark(line)
        if fence:
            if mark[:1] == fence[:1] and len(mark) >= len(fence) and not line.strip().strip(mark[:1]):
                fence = ""
        elif mark:
            fence = mark
        elif heading := _hash_heading(line):
            outline.heading(*heading)
            yield from outline.take()
            i += 1
            continue
        elif level := _underline_level(lines, i):
            outline.heading(level, _plain(line))
            yield from outline.take()
            i += 2
            continue
        outline.write(line + "\n")
        i += 1
    yield from outline.finish()


def _fence_mark(line: str) -> str:
    """The run of backticks or tildes that opens or closes a code fence; empty if the line does neither."""
    body = line.lstrip()
    if not body.startswith(("```", "~~~")):
        return ""
    rest = body.lstrip(body[0])
    # Backticks later in the line make it inline code.
    return "" if body[0] == "`" and "`" in rest else body[: len(body) - len(rest)]


def _hash_heading(line: str) -> tuple[int, str] | None:
    body = line.lstrip(" ")
    text = body.lstrip("#")
    level = len(body) - len(text)
    if len(line) - len(body) > 3 or not 1 <= level <= 6 or (text and text[0] not in " \t"):
        return None
    text = text.strip()
    closed = text.rstrip("#")
    return level, _plain(closed if closed != text and (not closed or closed[-1] in " \t") else text)


def _underline_level(lines: list[str], i: int) -> int:
    """1 or 2 if line i is a one-line paragraph underlined by = or -, else 0."""
    line = lines[i]
    if i + 1 == len(lines) or not line.strip() or line.startswith(_NO_PARAGRAPH) or (i > 0 and lines[i - 1].strip()):
        return 0
    under = lines[i + 1].rstrip()
    if len(under) - len(under.lstrip(" ")) > 3:
        return 0
    under = under.lstrip(" ")
    return {"=": 1, "-": 2}.get(under[:1], 0) if under and not under.strip(under[0]) else 0


def _plain(heading: str) -> str:
    return _LINK.sub(r"\1", heading).replace("`", "").replace("**", "").strip()
