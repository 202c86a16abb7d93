"""Files and folders to passages, one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sidr_rag.errors import FileReadError, InvalidTypeError, MissingExtraError
from sidr_rag.files.document import Section, fit_metadata, rename_reserved
from sidr_rag.files.kinds import Kind, kind_of
from sidr_rag.files.limits import Limits
from sidr_rag.files.report import FaultList, FileReport
from sidr_rag.files.spans import Split, spans
from sidr_rag.files.walk import PathLike, walk
from sidr_rag.text.splitter import split_spans
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.types import Passage

RESERVED = ("source", "kind", "start", "record_id")
"""Metadata that the reader sets; a file's own field of such a name gets `field_` before it."""


def read_passages(
    paths: PathLike | Iterable[PathLike],
    *,
    tokenizer: BagTokenizer,
    max_tokens: int = 160,
    overlap: int = 0,
    limits: Limits | None = None,
    report: FileReport | None = None,
    on_file: Callable[[str, int], None] | None = None,
) -> Iterator[Passage]:
    """Read files and folders, and split their sections into passages.

    Passages come file by file, so memory is bounded by the largest file. A file that cannot be read is reported and
    the rest is read. An id is `"{source}#{n}"`, n from 0 within the file, where source is the absolute path; a record
    that brings its own id keeps it, and if it is split its further passages are `"{id}#1"`, `"{id}#2"` and so on.

    Metadata: `source`, `kind`, `start` (characters from the start of the section's text to that of the passage), then
    `page` (PDF), `section` (the heading path), `title` (the document's), `record_id`, and a record's other fields.
    Titles are the heading path, the document's or record's title, or the file's name without its ending (except for
    records).

    Args:
        paths: one or more files and folders.
        tokenizer: counts tokens for the splitter.
        max_tokens: the most tokens in a passage.
        overlap: tokens that neighbouring passages share.
        limits: bounds on size, pages, time; the defaults of `Limits` if None.
        report: filled in while reading.
        on_file: called with the path and its number of passages after each file that was tried.

    Raises:
        InvalidTypeError: a path, the limits or the report is of a wrong type.
        InvalidInputError: `max_tokens` or `overlap` cannot be used.
        FileReadError: a path does not exist; raised at the call, before anything is read.
    """
    limits = Limits() if limits is None else limits
    report = FileReport() if report is None else report
    if not isinstance(limits, Limits):
        raise InvalidTypeError(f"limits must be a Limits, got {type(limits).__name__}")
    if not isinstance(report, FileReport):
        raise InvalidTypeError(f"report must be a FileReport, got {type(report).__name__}")
    split = partial(split_spans, tokenizer=tokenizer, max_tokens=max_tokens, overlap=overlap)
    split("")
    return _read(walk(paths, limits), split, limits, report, on_file)


def _read(
    found: Iterable[tuple[Path, str | None]],
    split: Split,
    limits: Limits,
    report: FileReport,
    on_file: Callable[[str, int], None] | None,
) -> Iterator[Passage]:
    for path, reason in found:
        source = os.fsencode(path).decode("utf-8", "replace")
        kind = kind_of(path)
        if reason is not None or kind is None:
            report.skipped.append((source, reason or "unsupported kind"))
            continue
        faults = FaultList()
        n = 0
        for passage in _file_passages(path, kind, split, limits, faults):
            n += 1
            yield passage
        report.failed.extend((source, fault) for fault in faults.reasons())
        if n:
            report.loaded.append((source, n))
        elif not faults.reasons():
            report.skipped.append((source, "no text (a scan?)" if kind.name == "pdf" else "no text"))
        if on_file is not None:
            on_file(source, n)


def _file_passages(path: Path, kind: Kind, split: Split, limits: Limits, faults: FaultList) -> Iterator[Passage]:
    source = path.as_posix()
    default_title = None if kind.records else path.stem
    dropped = 0
    n = 0
    for section in _sections(path, kind, limits, faults):
        fields, n_dropped = fit_metadata(rename_reserved(section.metadata, RESERVED), limits.max_metadata_chars)
        dropped += n_dropped
        metadata: dict[str, Any] = {"source": source, "kind": kind.name, **fields}
        if section.id is not None:
            metadata["record_id"] = section.id
        n_own = 0
        for start, end in spans(section.text, split):
            text = section.text[start:end]
            if not text.strip():
                continue
            passage_id = f"{source}#{n}" if section.id is None else _record_passage_id(section.id, n_own)
            yield Passage(passage_id, text, section.title or default_title, {**metadata, "start": start})
            n += 1
            n_own += 1
    if dropped:
        faults(f"{dropped:,} metadata fields left out, over max_metadata_chars={limits.max_metadata_chars:,}")


def _record_passage_id(record_id: str, n: int) -> str:
    return f"{record_id}#{n}" if n else record_id


def _sections(path: Path, kind: Kind, limits: Limits, faults: FaultList) -> Iterator[Section]:
    """A file's sections; whatever goes wrong in its loader ends the file, not the reading."""
    try:
        sections = kind.loader()(path, limits, faults)
    except Exception as error:
        faults(_reason(error))
        return
    while True:
        try:
            section = next(sections)
        except StopIteration:
            return
        except Exception as error:
            faults(_reason(error))
            return
        yield section


def _reason(error: Exception) -> str:
    if isinstance(error, (FileReadError, MissingExtraError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Messages of parsers may quote the file, so only their type is told.
    return f"cannot be read ({type(error).__name__})"
