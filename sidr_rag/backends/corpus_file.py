"""Passages in BEIR's `corpus.jsonl`, without loss: ids, titles, texts and metadata, in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sidr_rag.backends.wire import from_wire, to_wire
from sidr_rag.errors import InvalidInputError, StorageError
from sidr_rag.eval.lines import existing, json_objects, malformed
from sidr_rag.index.passages import Row, metadata_json, metadata_of
from sidr_rag.types import Passage

FILE = "corpus.jsonl"


def write_corpus(rows: Iterable[Row], folder: Path, *, overwrite: bool = False) -> int:
    """Write `corpus.jsonl` into a folder, in one step at the end; returns how many passages it holds.

    A line has `_id`, `text`, `title` where there is one, and `metadata` where there are any. A text that is not UTF-8
    (halves of surrogate pairs) is marked and in base64; `read_corpus` gives it back.

    Args:
        rows: in the order to keep.
        folder: made if it is not there.
        overwrite: whether a file that is there may be replaced.

    Raises:
        InvalidInputError: if the file is there and `overwrite` is False.
        StorageError: if the disk refuses.
    """
    path = folder / FILE
    if path.exists() and not overwrite:
        raise InvalidInputError(f"{path}: is there already; choose another folder, or overwrite it")
    partial = path.with_name(f"{FILE}.{os.getpid()}.tmp")
    n = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for row in rows:
                file.write(json.dumps(_line(row), ensure_ascii=False) + "\n")
                n += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as e:
        raise StorageError(e.errno, f"the corpus cannot be written: {e.strerror}", str(path)) from e
    finally:
        partial.unlink(missing_ok=True)
    return n


def read_corpus(place: Path) -> Iterator[Passage]:
    """The passages of a BEIR folder's `corpus.jsonl` (or `.gz`), or of such a file.

    Raises:
        FileReadError: for a missing file or the first malformed line; names file and line.
    """
    path = place if place.is_file() else existing(place, FILE) or place / FILE
    for line, record in json_objects(path):
        given = record.get("_id")
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if not isinstance(given, str) or not given:
            raise malformed(path, line, "has no field '_id' that is a string")
        title = record.get("title")
        for name, value in (("text", record.get("text")), ("title", "" if title is None else title)):
            if not isinstance(value, str):
                raise malformed(path, line, f"field {name!r} is a {type(value).__name__}; it must be a string")
        metadata = record.get("metadata", {})
        if isinstance(metadata, str):
            metadata = metadata_of(from_wire(metadata))
        if not isinstance(metadata, dict):
            raise malformed(path, line, f"field 'metadata' is a {type(metadata).__name__}; it must be an object")
        metadata_json(metadata, given)
        kept_title = None if title is None else from_wire(title)
        yield Passage(from_wire(given), from_wire(record["text"]), kept_title, metadata)


def _line(row: Row) -> dict[str, Any]:
    line: dict[str, Any] = {"_id": to_wire(row.id)}
    if row.title is not None:
        line["title"] = to_wire(row.title)
    line["text"] = to_wire(row.text)
    if row.metadata != "{}":
        wired = to_wire(row.metadata)
        line["metadata"] = metadata_of(row.metadata) if wired == row.metadata else wired
    return line
