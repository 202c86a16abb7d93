"""Files into a store and out of it again: a changed file replaces its passages, a vanished one takes them with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidr_rag.files.read import read_passages
from sidr_rag.files.report import FileReport
from sidr_rag.index.replace import replace_sources
from sidr_rag.inputs import rows_of_passages
from sidr_rag.listing import matching_seqs, text_values
from sidr_rag.search.filters import Filter, parse_filter

if TYPE_CHECKING:
    from sidr_rag.engine import SiDR
    from sidr_rag.files.limits import Limits
    from sidr_rag.files.walk import PathLike
    from sidr_rag.index.bot_index import BotIndex
    from sidr_rag.types import Passage

    Watch = Callable[[Iterator[Passage]], Iterator[Passage]]


@dataclass
class UploadReport(FileReport):
    """What became of each file, and what that did to the store.

    Attributes:
        written: ids of passages that are new or have another text, title or metadata than before.
        unchanged: passages that were stored already; they keep their place.
        removed: ids of passages that their file no longer has, or whose file is gone.
    """

    written: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: list[str] = field(default_factory=list)


def add_files(
    sidr: SiDR,
    paths: PathLike | Iterable[PathLike],
    *,
    max_tokens: int = 160,
    overlap: int = 0,
    limits: Limits | None = None,
    on_file: Callable[[str, int], None] | None = None,
    watch: Watch | None = None,
) -> UploadReport:
    """Add files and folders; what a file gave before and does not give now is removed in the same commit.

    A file that cannot be read keeps its older passages. Ids and metadata are those of `files.read_passages`: `source`
    is the absolute path, so files of equal names in different folders stay apart.

    Args:
        sidr: the store.
        paths: one or more files and folders.
        max_tokens: the most tokens in a passage.
        overlap: tokens that neighbouring passages of a file share.
        limits: bounds on size, pages and time.
        on_file: called with the path and its number of passages after each file that was tried.
        watch: handed the passages as they are read, and hands them on; for a progress bar.

    Raises:
        FileReadError: if a path does not exist; nothing is then changed.
        InvalidInputError, InvalidTypeError: for bad arguments; nothing is then changed.
        ReadOnlyError, StoreLockedError: if the store cannot be written to.
    """
    arguments = {"max_tokens": max_tokens, "overlap": overlap, "limits": limits}
    return _upload(sidr, paths, arguments, on_file, watch)


def sync_folder(
    sidr: SiDR,
    folder: PathLike | Iterable[PathLike],
    *,
    max_tokens: int = 160,
    overlap: int = 0,
    limits: Limits | None = None,
    on_file: Callable[[str, int], None] | None = None,
    watch: Watch | None = None,
) -> UploadReport:
    """Make a store agree with one or more folders: `add_files`, and what came from files that are gone is removed.

    All of it is one commit. Gone is what is no regular file any more. A file that exists and was not read (too large
    now, refused) keeps its passages, and so does whatever lies outside the folders given. Arguments and errors are
    those of `add_files`.
    """
    given = [folder] if isinstance(folder, (str, bytes, os.PathLike)) else list(folder)
    arguments = {"max_tokens": max_tokens, "overlap": overlap, "limits": limits}
    return _upload(sidr, given, arguments, on_file, watch, synced=given)


def from_folder(
    folder: PathLike | Iterable[PathLike],
    *,
    max_tokens: int = 160,
    overlap: int = 0,
    limits: Limits | None = None,
    on_file: Callable[[str, int], None] | None = None,
    **options: Any,
) -> tuple[SiDR, FileReport]:
    """A new store of files and folders, and what became of each file.

    Args:
        folder: one or more folders, or single files.
        max_tokens: the most tokens in a passage.
        overlap: tokens that neighbouring passages of a file share.
        limits: bounds on size, pages and time.
        on_file: called with the path and its number of passages after each file that was tried.
        options: of `SiDR.from_passages`, such as `path` and `model`.

    Raises:
        FileReadError: if a path does not exist; nothing is then made.
        IndexFormatError: if `path` holds a store and `overwrite` is False.
    """
    from sidr_rag.engine import SiDR

    report = FileReport()
    sidr = SiDR.from_passages(
        lambda tokenizer: read_passages(
            folder,
            tokenizer=tokenizer,
            max_tokens=max_tokens,
            overlap=overlap,
            limits=limits,
            report=report,
            on_file=on_file,
        ),
        **options,
    )
    return sidr, report


def _upload(
    sidr: SiDR,
    paths: PathLike | Iterable[PathLike],
    arguments: dict[str, Any],
    on_file: Callable[[str, int], None] | None,
    watch: Watch | None,
    synced: Sequence[PathLike] = (),
) -> UploadReport:
    report = UploadReport()
    tried: set[str] = set()

    def note(source: str, n: int) -> None:
        tried.add(source)
        if on_file is not None:
            on_file(source, n)

    read = read_passages(paths, tokenizer=sidr.encoder.tokenizer, report=report, on_file=note, **arguments)
    # Of checked paths, and before anything is read: a relative one must not mean another folder later.
    roots = [f"{Path(p).resolve().as_posix().rstrip('/')}/" for p in synced]

    def stale(before: BotIndex) -> list[int]:
        # What failed and gave nothing keeps its older passages; what gave something, or holds no text, does not.
        failed = {source for source, _ in report.failed} - {source for source, _ in report.loaded}
        sources = tried - failed
        sources.update(s for s in text_values(before, "source") if _is_gone(s, roots))
        return [int(seq) for seq in matching_seqs(before, _of_sources(sources))] if sources else []

    rows = rows_of_passages(read if watch is None else watch(read), [])
    done = replace_sources(sidr._store, rows, stale)
    report.written, report.unchanged, report.removed = done.written, done.unchanged, done.removed
    return report


def _of_sources(sources: Collection[str]) -> Filter:
    # Only what the reader made: a passage added by hand may name a file as its source, too.
    condition = parse_filter({"source": {"in": sorted(sources)}, "kind": {"exists": True}, "start": {"exists": True}})
    assert condition is not None
    return condition


def _is_gone(source: str, roots: Collection[str]) -> bool:
    if not any(source.startswith(root) for root in roots):
        return False
    try:
        return not stat.S_ISREG(Path(source).lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False  # a folder that may not be searched now, a disk that is away: no proof that the file is gone
