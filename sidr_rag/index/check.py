"""Reading a whole store to see that every passage and every derived file is as it was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError, SidrError
from sidr_rag.index.database import Database, State, read_only_uri
from sidr_rag.index.folder import Folder, StoreSettings, load_segment
from sidr_rag.index.passages import metadata_of
from sidr_rag.index.transaction import row_of

_TRIES = 5
_SHOWN = 20


@dataclass(frozen=True)
class CheckReport:
    """What a check has found.

    Attributes:
        passages: passages that are whole.
        segments: segments listed.
        damaged: faults of what cannot be made anew: passages, settings, the list of segments.
        derived: faults of files that the next opening rebuilds from the passages.
    """

    passages: int
    segments: int
    damaged: tuple[str, ...]
    derived: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged and not self.derived


def check_store(path: str | Path) -> CheckReport:
    """Read every byte of the store in a folder; nothing is written, and no model is needed.

    Raises:
        IndexFormatError: if the folder is no store, or its settings cannot be read at all; it names the file.
        SidrError: if a writer kept changing the store meanwhile.
    """
    folder = Folder(Path(path))
    folder.store_id()
    database = Database(folder.database, read_only=True)
    try:
        for _ in range(_TRIES):
            state = database.state()
            report = _checked(folder, database, state)
            if database.generation() == state.generation:
                return report
    finally:
        database.close()
    raise SidrError(f"{path}: was changed while it was checked, {_TRIES} times; check it when its writer rests")


def _checked(folder: Folder, database: Database, state: State) -> CheckReport:
    settings = StoreSettings.from_json(state.settings.get("settings", ""), folder.database)
    damaged = [f"{folder.database}: {fault}" for fault in _integrity(folder.database)]
    seqs, faults = _passages(database)
    damaged += [f"{folder.database}: {fault}" for fault in faults]
    derived: list[str] = []
    tombstones = np.array(state.tombstones, dtype=np.uint64)
    indexed = [np.zeros(0, dtype=np.uint64)]
    for entry in state.segments:
        view, fault = load_segment(folder, entry, settings)
        if view is None:
            derived.append(fault)
            inside = (seqs >= entry.first_seq) & (seqs <= entry.last_seq)
            indexed.append(seqs[inside])  # what a rebuilt segment will hold
        else:
            indexed.append(np.setdiff1d(view.segment.seqs, tombstones, assume_unique=True))
    listed = np.concatenate(indexed)
    if not faults and (lost := len(np.setdiff1d(listed, seqs))):
        damaged.append(f"{folder.database}: {lost} passages of the index are missing")
    if unlisted := len(np.setdiff1d(seqs, listed)):
        damaged.append(f"{folder.database}: {unlisted} passages are in no segment")
    if folder.embeddings.exists():
        derived += [f"{folder.embeddings}: {fault}" for fault in _integrity(folder.embeddings)]
    return CheckReport(len(seqs), len(state.segments), tuple(damaged), tuple(derived))


def _passages(database: Database) -> tuple[NDArray[np.uint64], list[str]]:
    """The seqs of the whole passages, and what is wrong with others."""
    seqs: list[int] = []
    faults: list[str] = []
    n_faults = 0
    try:
        for values in _rows(database):
            try:
                metadata_of(row_of(values).metadata)
                seqs.append(int(values[0]))
            except (sqlite3.DatabaseError, IndexFormatError, TypeError, ValueError) as e:
                n_faults += 1
                if n_faults <= _SHOWN:
                    faults.append(f"passage of seq {values[0]!r:.20}: {e}")
    except (sqlite3.Error, UnicodeDecodeError) as e:
        faults.append(f"passages after the first {len(seqs)} cannot be read ({type(e).__name__})")
    if n_faults > _SHOWN:
        faults.append(f"and {n_faults - _SHOWN} more such passages")
    return np.array(seqs, dtype=np.uint64), faults


def _rows(database: Database) -> Iterator[tuple[Any, ...]]:
    yield from database.reader().execute("SELECT seq, id, title, text, metadata, crc FROM passages ORDER BY seq")


def _integrity(path: Path) -> list[str]:
    """What SQLite itself finds wrong with a file's structure."""
    try:
        connection = sqlite3.connect(read_only_uri(path), uri=True)
        try:
            found = [str(line) for (line,) in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as e:
        return [f"its structure cannot be read ({type(e).__name__})"]
    return [] if found == ["ok"] else [line.replace("\n", "; ") for line in found]
