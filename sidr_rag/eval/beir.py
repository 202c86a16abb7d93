"""BEIR folders: passages and queries as JSON lines, judgements as tab-separated files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from sidr_rag.errors import FileReadError
from sidr_rag.eval.lines import existing, json_objects, malformed
from sidr_rag.types import Passage


def beir_passages(path: Path) -> Iterator[Passage]:
    """The passages of `corpus.jsonl`: `_id`, `text`, and `title` where it is not empty.

    Raises:
        FileReadError: for the first malformed line; names file and line.
    """
    for line, record in json_objects(path):
        title = _string(record, "title", path, line, required=False)
        yield Passage(_id(record, path, line), _string(record, "text", path, line) or "", title or None)


def beir_queries(path: Path, wanted: Collection[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Texts and answer strings of the wanted queries of `queries.jsonl`, by id, in file order.

    Raises:
        FileReadError: for a malformed line or a wanted id that comes twice; names file and line.
    """
    texts: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    for line, record in json_objects(path):
        query_id = _id(record, path, line)
        if query_id not in wanted:
            continue
        if query_id in texts:
            raise malformed(path, line, f"repeats query id {query_id!r}")
        texts[query_id] = _string(record, "text", path, line) or ""
        given = record.get("answers")
        if given is None:
            continue
        if not isinstance(given, list) or not all(isinstance(a, str) for a in given):
            raise malformed(path, line, "has answers that are no list of strings")
        if given:
            answers[query_id] = given
    return texts, answers


def beir_splits(folder: Path) -> list[str]:
    """Names of the judged splits of a folder, sorted."""
    return sorted(p.name.removesuffix(".gz").removesuffix(".tsv") for p in (folder / "qrels").glob("*.tsv*"))


def split_file(folder: Path, split: str) -> Path | None:
    """The file of a split's judgements, or None if there is none of that name."""
    return existing(folder / "qrels", f"{split}.tsv") if split in beir_splits(folder) else None


def _id(record: dict[str, Any], path: Path, line: int) -> str:
    value = record.get("_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise _lacking(record, "_id", path, line)
    return value


def _string(record: dict[str, Any], name: str, path: Path, line: int, *, required: bool = True) -> str | None:
    value = record.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise _lacking(record, name, path, line)
    return value


def _lacking(record: dict[str, Any], name: str, path: Path, line: int) -> FileReadError:
    found = f"a {type(record[name]).__name__}" if record.get(name) is not None else "missing"
    if found == "a str":
        found = "empty"
    return malformed(path, line, f"field {name!r} is {found}; it must be a string")
