"""Plain text: one section, exactly as it stands in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sidr_rag.files.document import Fault, Section
from sidr_rag.files.encoding import read_text
from sidr_rag.files.limits import Limits


def load(path: Path, limits: Limits, fault: Fault) -> Iterator[Section]:
    """The whole text as one section; newlines are kept as they are.

    Raises:
        FileReadError: the file is not text, or is too large.
        OSError: the file cannot be opened.
    """
    yield Section(read_text(path, limits, fault))
