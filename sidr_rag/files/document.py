"""What a loader yields: sections of a file, before they are split into passages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sidr_rag.files.limits import Limits

MAX_TITLE_CHARS = 300
"""Longer titles are read as body text: a title is indexed again with every passage of its section."""


@dataclass(frozen=True)
class Section:
    """A PDF page, the text under one heading, or one record of a jsonl or csv file.

    Attributes:
        text: what is split into passages.
        title: the heading path, the record's title or the document's title; None if there is none.
        metadata: JSON values that every passage of the section carries.
        id: the record's own id; None where the file gives none.
    """

    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


Fault = Callable[[str], None]
"""Told the reason when a part of a file is left out while the rest is kept."""


class Loader(Protocol):
    """Reads one kind of file."""

    def __call__(self, path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
        """Yield the file's sections in order.

        Raises:
            FileReadError: the file cannot be read as this kind; its message is the reason alone.
            MissingExtraError: a package that this kind needs is not installed.
            OSError: the system refused to open or read the file.
        """
        ...


def rename_reserved(fields: Mapping[str, Any], reserved: Iterable[str]) -> dict[str, Any]:
    """A file's own fields, with `field_` put before the names that the reader sets itself."""
    taken = frozenset(reserved)
    return {f"field_{name}" if name in taken else name: value for name, value in fields.items()}


def fit_metadata(metadata: Mapping[str, Any], max_chars: int) -> tuple[dict[str, Any], int]:
    """Keep fields, in order, while names and values (as JSON) stay within `max_chars` together.

    Returns:
        The fields kept, and how many were left out.
    """
    kept: dict[str, Any] = {}
    room = max_chars
    for name, value in metadata.items():
        size = len(name) + (len(value) if isinstance(value, str) else len(json.dumps(value)))
        if size <= room:
            kept[name] = value
            room -= size
    return kept, len(metadata) - len(kept)
