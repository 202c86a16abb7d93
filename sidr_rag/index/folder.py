"""A store's folder: what lies in it, its making, and its opening with distrust."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sidr_rag.errors import IndexFormatError, StorageError
from sidr_rag.index.arrays import sync_folder
from sidr_rag.index.bot_index import SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.database import Database
from sidr_rag.index.filesystem import network_type
from sidr_rag.index.passages import Row, SegmentEntry, metadata_of
from sidr_rag.index.segment import Segment
from sidr_rag.protocols import Tokenizer

FORMAT = 1
_JOURNALS = ("-wal", "-shm", "-journal")
_BLOCK = 20_000


@dataclass(frozen=True)
class StoreSettings:
    """What is fixed when a store is made.

    Attributes:
        dim: dimensions of the vocabulary space.
        thresholds: the levels' n_l.
        fingerprint: of tokenizer, normalizer and Unicode data; another one is refused.
        normalization: "nfkc" or "none".
        options: the engine's own settings, as JSON values; unknown ones are kept and ignored.
    """

    dim: int
    thresholds: tuple[int, ...]
    fingerprint: str
    normalization: str
    options: dict[str, Any]

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({**self.__dict__, "thresholds": list(self.thresholds)})

    @classmethod
    def from_json(cls, text: str, path: Path) -> StoreSettings:
        """Read what `to_json` wrote.

        Raises:
            IndexFormatError: naming the file, if a setting is missing or of another type.
        """
        try:
            values = json.loads(text)
            options = values.get("options", {})
            thresholds = tuple(int(t) for t in values["thresholds"])
            if not isinstance(options, dict) or thresholds[:1] != (1,) or list(thresholds) != sorted(set(thresholds)):
                raise TypeError
            return cls(
                int(values["dim"]), thresholds, str(values["fingerprint"]), str(values["normalization"]), options
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise IndexFormatError(f"{path}: the store's settings are unreadable") from e


class Folder:
    """Names of a store's files, and the checks on its format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.marker = path / "sidr.json"
        self.database = path / "passages.db"
        self.embeddings = path / "embeddings.db"
        self.segments = path / "segments"
        self.lock = path / "lock"

    def is_store(self) -> bool:
        """Whether a store was made here."""
        return self.marker.is_file()

    def segment_file(self, name: str) -> Path:
        """The file of a segment; names are hexadecimal, so none leads out of the folder."""
        if not (len(name) == 32 and all(c in "0123456789abcdef" for c in name)):
            raise IndexFormatError(f"{self.database}: segment name of {len(name)} characters is not one of ours")
        return self.segments / f"{name}.seg"

    def create(self, settings: StoreSettings) -> None:
        """Make the parts of an empty store; the folder is no store before `finish`.

        Raises:
            IndexFormatError: if the folder holds other files.
            StorageError: if the disk refuses.
        """
        self.check_local()
        new = f"{self.database.name}.new"
        ours = {self.database.name, new, f"{new}-journal", f"{new}-wal", f"{new}-shm"}
        ours |= {self.segments.name, self.lock.name, "sidr.json.tmp"}  # what an interrupted attempt may have left
        ours |= {path.name for path in self._journals()}
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if any(p.name not in ours for p in self.path.iterdir()):
                raise IndexFormatError(f"{self.path}: not empty and not a store; choose an empty or a new folder")
            self.segments.mkdir(exist_ok=True, mode=0o700)
            for path in (self.database, *self._journals()):  # an old journal would be played into the new file
                path.unlink(missing_ok=True)
            Database.create(self.database, {"settings": settings.to_json()})
        except StorageError:
            raise
        except OSError as e:
            raise StorageError(e.errno, f"cannot create a store: {e.strerror}", str(self.path)) from e

    def finish(self, store_id: str | None = None) -> None:
        """Make the folder a store: write the marker that says so.

        Raises:
            StorageError: if the disk refuses.
        """
        marker = {"format": FORMAT, "uuid": store_id or uuid.uuid4().hex, "library": "sidr-rag"}
        partial = self.path / "sidr.json.tmp"
        try:
            partial.unlink(missing_ok=True)
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(json.dumps(marker).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.marker)
            sync_folder(self.path)
        except OSError as e:
            raise StorageError(e.errno, f"cannot create a store: {e.strerror}", str(self.path)) from e

    def store_id(self) -> str:
        """The store's own identity, after checking that this version can read it.

        Raises:
            IndexFormatError: naming the folder or file, and the formats found and supported.
            StorageError: if the folder is on a network file system.
        """
        if not self.path.is_dir():
            raise IndexFormatError(
                f"{self.path}: no such folder; make a store with create=True or from_texts(path=...)"
            )
        self.check_local()
        journals = [f"{file.name}{end}" for file in (self.database, self.embeddings) for end in _JOURNALS]
        names = [self.marker.name, self.database.name, self.embeddings.name, self.segments.name, self.lock.name]
        for part in (self.path / name for name in (*names, *journals)):
            if part.is_symlink():
                raise IndexFormatError(f"{part}: is a symbolic link; a store follows none")
            if part.name in journals and part.exists() and not part.is_file():
                raise IndexFormatError(f"{part}: is no file")  # SQLite would wait at a pipe for ever
        if not self.is_store():
            raise IndexFormatError(f"{self.path}: not a sidr-rag store (it has no sidr.json)")
        try:
            marker = json.loads(self.marker.read_bytes()[:65_536])
            version, store_id = marker["format"], str(marker["uuid"])
        except OSError as e:
            raise StorageError(e.errno, f"cannot read: {e.strerror}", str(self.marker)) from e
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise IndexFormatError(f"{self.marker}: unreadable") from e
        if version is True or version != FORMAT:
            raise IndexFormatError(
                f"{self.marker}: format {str(version)[:20]} was found, and this version supports {FORMAT}; "
                "upgrade sidr-rag"
            )
        if not self.database.is_file():
            raise IndexFormatError(f"{self.database}: missing; the store's passages are lost")
        return store_id

    def check_local(self) -> None:
        """See that the folder is on a disk of this machine.

        Raises:
            StorageError: if it is on a network file system; it names the kind.
        """
        kind = network_type(self.path)
        if kind is not None:
            # Neither the journal's shared memory nor the lock holds between machines: two writers could meet.
            reason = f"is on a network file system ({kind}), where commits are not safe; copy the store to a local disk"
            raise StorageError(errno.ENOTSUP, reason, str(self.path))

    def remove(self) -> None:
        """Take back what `create` made, as far as it can be."""
        self.marker.unlink(missing_ok=True)  # first: without it the rest is no store
        for path in (*self.segments.glob("*.seg"), self.database, *self._journals(), self.lock):
            remove_quietly(path)

    def _journals(self) -> list[Path]:
        return [self.database.with_name(f"{self.database.name}{end}") for end in _JOURNALS]

    def drop_unlisted(self, listed: set[str]) -> None:
        """Remove files that no commit names; only the writer may call this."""
        try:
            found = list(self.segments.iterdir())
        except OSError as e:
            raise StorageError(e.errno, f"cannot be listed: {e.strerror}", str(self.segments)) from e
        for path in found:
            if ".seg" in path.name and path.name.removesuffix(".seg") not in listed:
                remove_quietly(path)


def load_segment(folder: Folder, entry: SegmentEntry, settings: StoreSettings) -> tuple[SegmentView | None, str]:
    """Map a listed segment.

    Returns:
        The segment with nothing deleted; or None, and what is wrong with its file.
    """
    path = folder.segment_file(entry.name)
    try:
        segment = Segment.open(path)
        if (
            segment.n_rows != entry.n_rows
            or segment.dim != settings.dim
            or tuple(level.threshold for level in segment.levels) != settings.thresholds
            or int(segment.seqs[0]) != entry.first_seq
            or int(segment.seqs[-1]) != entry.last_seq
        ):
            raise IndexFormatError(f"{path}: is not the segment that the store lists under this name")
    except IndexFormatError as e:
        return None, str(e)
    return SegmentView(entry.name, segment), ""


def rebuild_segment(
    entry: SegmentEntry, settings: StoreSettings, database: Database, tokenizer: Tokenizer
) -> SegmentView:
    """Tokenize the live passages of a segment's range of seqs again; it is in memory only."""
    rows = list(database.scan_range(entry.first_seq, entry.last_seq))
    seqs = np.array([r.seq for r in rows], dtype=np.uint64)
    counts = tokenizer.counts(r.content for r in rows)
    segment = build_segment(counts, seqs, settings.thresholds, (metadata_of(r.metadata) for r in rows))
    return SegmentView(entry.name, segment)


def in_blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Lists of at most 20,000 rows, so that a stream of any length needs bounded memory."""
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


def remove_quietly(path: Path) -> None:
    """Unlink a derived file that nothing names any more; a failure costs only space."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
