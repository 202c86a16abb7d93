"""JSON lines: one record per line; a bad line is reported and the rest is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from sidr_rag.files.document import Fault, Section
from sidr_rag.files.encoding import open_text
from sidr_rag.files.limits import Limits
from sidr_rag.files.records import TEXT_FIELDS, find_field, record_section

# Deeper values would exhaust the stack of whoever writes them back as JSON.
_MAX_DEPTH = 100


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """One section per line that holds an object with a text or a title; NaN and infinities become null.

    Raises:
        FileReadError: the file is not text, or is too large.
        OSError: the file cannot be opened.
    """
    with open_text(path, limits, fault) as file:
        for number, line in _lines(file, limits.max_record_chars):
            if line is None:
                fault(f"line {number}: longer than max_record_chars={limits.max_record_chars:,}")
            elif line.strip():
                try:
                    yield _section(line)
                except _BadLineError as error:
                    fault(f"line {number}: {error}")


class _BadLineError(Exception):
    """Why a line is no record."""


def _lines(file: TextIO, max_chars: int) -> Iterator[tuple[int, str | None]]:
    """Numbered lines, None in place of one that is too long, which is never held in memory whole."""
    number = 0
    while line := file.readline(max_chars + 1):
        number += 1
        if len(line) <= max_chars or line.endswith(("\n", "\r")):
            yield number, line
            continue
        while line and not line.endswith(("\n", "\r")):
            line = file.readline(max_chars + 1)
        yield number, None


def _section(line: str) -> Section:
    try:
        record = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise _BadLineError(f"not valid JSON at character {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _BadLineError(f"not usable JSON ({type(error).__name__})") from None
    if not isinstance(record, dict):
        raise _BadLineError(f"a JSON {type(record).__name__} where an object is expected")
    if line.count("[") + line.count("{") > _MAX_DEPTH and _depth(record) > _MAX_DEPTH:
        raise _BadLineError(f"nested more than {_MAX_DEPTH} deep")
    names = [name for name, value in record.items() if value is None or isinstance(value, str)]
    text_field = find_field(names, TEXT_FIELDS)
    section = record_section(record, text_field or "")
    if text_field is None and not section.text:
        raise _BadLineError(f"no field with text; one of {', '.join(TEXT_FIELDS)} is expected")
    return section


def _no_number(_: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    depth = 0
    level = [value]
    while level:
        depth += 1
        children: list[Any] = []
        for item in level:
            children.extend(item.values() if isinstance(item, dict) else item)
        level = [child for child in children if isinstance(child, (dict, list))]
    return depth
