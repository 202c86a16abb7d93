"""The block of settings between two lines of `---` at the top of a Markdown file."""

from __future__ import annotations

import re
from typing import Any

# A block that does not close within this is no front matter.
_MAX_LINES = 1_000
_KEY = re.compile(r"([A-Za-z_][\w .-]{0,99}):(?:\s|$)")
_INT = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"-?\d{1,17}\.\d{1,17}")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}


def parse(lines: list[str]) -> tuple[dict[str, Any], int]:
    """Read flat keys with plain values and lists; nested mappings and multi-line values are passed over.

    Args:
        lines: the file's lines without their newlines.

    Returns:
        The settings, and the number of lines that the block takes (0 if there is none).
    """
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    ends = (i for i, line in enumerate(lines[1 : _MAX_LINES + 1], start=1) if line.rstrip() in ("---", "..."))
    end = next(ends, 0)
    settings: dict[str, Any] = {}
    key = ""
    for line in lines[1:end]:
        if match := _KEY.match(line):
            key = match[1].strip()
            settings[key] = _value(line[match.end() :].strip())
        elif line.lstrip().startswith("- ") and isinstance(items := settings.get(key), list):
            items.append(_scalar(line.lstrip()[2:].strip()))
        elif line.lstrip().startswith("- ") and key and settings[key] is None:
            settings[key] = [_scalar(line.lstrip()[2:].strip())]
    return {name: value for name, value in settings.items() if value is not None}, end + 1 if end else 0


def _value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_scalar(item.strip()) for item in inner.split(",")] if inner else []
    return _scalar(text)


def _scalar(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    text = text.partition(" #")[0].rstrip() if not text.startswith("#") else ""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
