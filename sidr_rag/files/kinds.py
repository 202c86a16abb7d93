"""Which loader reads which file, told by the ending of its name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from sidr_rag.files.document import Loader


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: what passages carry as `kind`.
        module: the loader's module in `sidr_rag.files`.
        records: whether each section is a document of its own, so that the file's name says nothing about it.
    """

    name: str
    module: str
    records: bool = False

    def loader(self) -> Loader:
        """The function that reads this kind, imported on first use."""
        return cast("Loader", import_module(f"sidr_rag.files.{self.module}").load)


_TEXT = Kind("txt", "text")
_MARKDOWN = Kind("md", "markdown")
_HTML = Kind("html", "html")
_JSONL = Kind("jsonl", "jsonl", records=True)

KINDS = {
    ".txt": _TEXT,
    ".text": _TEXT,
    ".md": _MARKDOWN,
    ".markdown": _MARKDOWN,
    ".html": _HTML,
    ".htm": _HTML,
    ".xhtml": _HTML,
    ".pdf": Kind("pdf", "pdf"),
    ".docx": Kind("docx", "docx"),
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".csv": Kind("csv", "csv", records=True),
    ".tsv": Kind("tsv", "csv", records=True),
}


def kind_of(path: Path) -> Kind | None:
    """The kind of a file, from its name alone; None if it is not supported."""
    return KINDS.get(path.suffix.lower())
