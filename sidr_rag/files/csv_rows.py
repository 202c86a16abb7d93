"""Rows of delimited text.

The standard library's reader has one limit on the length of a field for the whole process, and changing it would
change it for everyone; this one has a limit per file, goes on after a row that is too long, and takes NUL bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO


def rows(file: TextIO, delimiter: str, max_chars: int) -> Iterator[tuple[int, list[str] | str]]:
    """Parse a text stream opened with `newline=""`; quoting as in RFC 4180, stray quotes taken literally.

    Args:
        file: the text.
        delimiter: one character.
        max_chars: the longest row, newlines within quotes included.

    Yields:
        The number of the row's first line, and its fields, or the reason why it is left out. Empty lines are passed
        over.
    """
    parser = _Row(delimiter, max_chars)
    number = first = 0
    while line := file.readline(max_chars + 1):
        if len(line) > max_chars and not line.endswith(("\n", "\r")):
            # Quotes are not followed through such a line: the next one begins afresh.
            while line and not line.endswith(("\n", "\r")):
                line = file.readline(max_chars + 1)
            parser.reset()
            number += 1
            yield first or number, f"longer than max_record_chars={max_chars:,}"
            first = 0
            continue
        number += 1
        first = first or number
        fields = parser.feed(line)
        if fields is not None:
            if parser.too_long:
                yield first, f"longer than max_record_chars={max_chars:,}"
            elif fields != [""]:
                yield first, fields
            parser.reset()
            first = 0
    if first:
        yield first, "a quoted field is never closed"


class _Row:
    """One row in the making, fed line by line."""

    def __init__(self, delimiter: str, max_chars: int) -> None:
        self._delimiter = delimiter
        self._max_chars = max_chars
        self.reset()

    def reset(self) -> None:
        """Begin another row."""
        self.too_long = False
        self._size = 0
        self._quoted = False
        self._fields: list[str] = []
        self._parts: list[str] = []

    def feed(self, line: str) -> list[str] | None:
        """Take one line with its newline; returns the fields if the row ends with it."""
        body = line.rstrip("\r\n")
        if '"' not in line and not self._quoted:
            return body.split(self._delimiter)
        self._size += len(line)
        if self._size > self._max_chars:
            self.too_long = True
            self._fields = []
            self._parts = []
        position = 0
        if not self._quoted and not self._fields and body.startswith('"'):
            self._quoted = True
            position = 1
        while True:
            if self._quoted:
                quote = line.find('"', position)
                if quote < 0:
                    self._parts.append(line[position:])
                    return None
                self._parts.append(line[position:quote])
                position = quote + 1
                if line.startswith('"', position):
                    self._parts.append('"')
                    position += 1
                    continue
                self._quoted = False
            comma = body.find(self._delimiter, position)
            self._parts.append(body[position : comma if comma >= 0 else len(body)])
            self._fields.append("".join(self._parts))
            self._parts = []
            if comma < 0:
                return self._fields
            position = comma + 1
            if body.startswith('"', position):
                self._quoted = True
                position += 1
