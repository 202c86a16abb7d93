"""Passages, tombstones, settings and the list of segments in one SQLite file: the only commit point of a store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sidr_rag.errors import IndexFormatError, SidrError, StorageError
from sidr_rag.index.passages import Row, SegmentChange, SegmentEntry

APPLICATION_ID = 0x53694452  # "SiDR"
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE passages (
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, title BLOB, text BLOB NOT NULL, metadata BLOB NOT NULL
);
CREATE TABLE segments (
    position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, n_rows INTEGER NOT NULL,
    first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL
);
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY);
INSERT INTO meta VALUES ('generation', '0'), ('next_seq', '1');
"""
_CHUNK = 500


class _Connection(sqlite3.Connection):
    """A connection that can be referred to weakly, so that a thread's own ends with the thread."""


class State(NamedTuple):
    """What a reader needs to see the index of one commit."""

    generation: int
    next_seq: int
    segments: list[SegmentEntry]
    tombstones: list[int]
    settings: dict[str, str]


class Database:
    """A `PassageTable` on disk; each thread reads through its own connection, one connection writes.

    Args:
        path: the SQLite file.
        read_only: never write, not even a journal.

    Raises:
        IndexFormatError: if the file is no store of ours or is damaged; it names the file.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self._read_only = read_only
        self._local = threading.local()
        self._writer: sqlite3.Connection | None = None
        self._connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        self._guard = threading.Lock()
        self._closed = False
        if read_only and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
            # Without a writable folder SQLite cannot share a journal; without a journal the file is all there is.
            self._uri += "&immutable=1"
        with self.errors():
            (found,) = self.reader().execute("PRAGMA application_id").fetchone()
        if found != APPLICATION_ID:
            raise IndexFormatError(f"{path}: not a sidr-rag store")

    @staticmethod
    def create(path: Path, settings: dict[str, str]) -> None:
        """Make an empty store file, whole or not at all."""
        partial = path.with_name(path.name + ".new")
        partial.unlink(missing_ok=True)
        try:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(partial, isolation_level=None)
            try:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.executescript(_SCHEMA)
                connection.executemany("INSERT INTO meta VALUES (?, ?)", settings.items())
                connection.execute("PRAGMA journal_mode = WAL")
            finally:
                connection.close()
            partial.replace(path)
        except (OSError, sqlite3.Error) as e:
            partial.unlink(missing_ok=True)
            raise StorageError(getattr(e, "errno", None), f"cannot create the store: {e}", str(path)) from e

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Give SQLite's errors as this library's."""
        try:
            yield
        except sqlite3.OperationalError as e:
            if "no such" in str(e):
                raise IndexFormatError(f"{self.path}: a part of the database is missing ({e})") from e
            raise StorageError(
                getattr(e, "sqlite_errorcode", None), f"the store's database: {e}", str(self.path)
            ) from e
        except sqlite3.DatabaseError as e:
            raise IndexFormatError(f"{self.path}: damaged or not a database ({e})") from e

    def reader(self) -> sqlite3.Connection:
        """This thread's reading connection, made anew after a fork."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None or self._local.pid != os.getpid():
            connection = self._connect(write=False)
            self._local.connection, self._local.pid = connection, os.getpid()
        if self._closed:
            raise SidrError("this store is closed; open it again")
        return connection

    def generation(self) -> int:
        """The number of the last commit, by any process."""
        with self.errors():
            (value,) = self.reader().execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        return int(value)

    def state(self) -> State:
        """Generation, segments, tombstones and settings of one moment."""
        with self.errors(), _reading(self.reader()) as c:
            meta: dict[str, str] = dict(c.execute("SELECT key, value FROM meta"))
            entries = c.execute("SELECT name, n_rows, first_seq, last_seq FROM segments ORDER BY position")
            segments = [SegmentEntry(str(n), int(r), int(a), int(b)) for n, r, a, b in entries]
            tombstones = [int(s) for (s,) in c.execute("SELECT seq FROM tombstones ORDER BY seq")]
        return State(int(meta.pop("generation")), int(meta.pop("next_seq")), segments, tombstones, meta)

    def scan_metadata(self) -> Iterator[tuple[int, str]]:
        """See `PassageTable`."""
        with self.errors():
            for seq, metadata in self.reader().execute("SELECT seq, metadata FROM passages ORDER BY seq"):
                yield int(seq), metadata.decode()

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """See `PassageTable`."""
        with self.errors():
            return _lookup(self.reader(), ids)

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """See `PassageTable`."""
        found: dict[int, Row] = {}
        with self.errors():
            connection = self.reader()
            for part in _parts(seqs):
                marks = ",".join("?" * len(part))
                query = f"SELECT seq, id, title, text, metadata FROM passages WHERE seq IN ({marks})"
                found.update((r.seq, r) for r in map(_row, connection.execute(query, part)))
        return found

    def scan(self) -> Iterator[Row]:
        """See `PassageTable`; a connection of its own keeps the state until the end."""
        return self.scan_range(0, 2**63 - 1)

    def scan_range(self, first: int, last: int) -> Iterator[Row]:
        """The rows with seqs from first to last, both included, in order."""
        query = "SELECT seq, id, title, text, metadata FROM passages WHERE seq BETWEEN ? AND ? ORDER BY seq"
        with self.errors():
            connection = self._connect(write=False)
            try:
                for values in connection.execute(query, (first, last)):
                    yield _row(values)
            finally:
                connection.close()

    def begin(self) -> SqliteTransaction:
        """See `PassageTable`."""
        with self.errors():
            if self._writer is None:
                self._writer = self._connect(write=True)
            self._writer.execute("BEGIN IMMEDIATE")
        return SqliteTransaction(self, self._writer)

    def purge(self) -> None:
        """Rewrite the file without free pages, and empty the journal."""
        with self.errors():
            connection = self._connect(write=True)
            try:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def close(self) -> None:
        """Close every connection of this process."""
        with self._guard:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        self._writer = None

    def _connect(self, *, write: bool) -> _Connection:
        connection = sqlite3.connect(
            self._uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10, factory=_Connection
        )
        if write:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA cache_size = -16384")
        else:
            connection.execute("PRAGMA query_only = ON")
        with self._guard:
            self._connections.add(connection)
        return connection


class SqliteTransaction:
    """See `Transaction`; also what only a copy into an existing store needs."""

    def __init__(self, database: Database, connection: sqlite3.Connection) -> None:
        self._database = database
        self._c = connection

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """See `Transaction`."""
        with self._database.errors():
            return _lookup(self._c, ids)

    def insert(self, rows: Sequence[Row]) -> None:
        """See `Transaction`."""
        with self._database.errors():
            self._c.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?)",
                (
                    (
                        r.seq,
                        _blob(r.id),
                        None if r.title is None else _blob(r.title),
                        _blob(r.text),
                        r.metadata.encode(),
                    )
                    for r in rows
                ),
            )

    def delete(self, seqs: Sequence[int]) -> None:
        """See `Transaction`."""
        with self._database.errors():
            self._c.executemany("DELETE FROM passages WHERE seq = ?", ((s,) for s in seqs))

    def clear(self) -> None:
        """Remove every passage, segment and tombstone."""
        with self._database.errors():
            for table in ("passages", "segments", "tombstones"):
                self._c.execute(f"DELETE FROM {table}")

    def set_settings(self, settings: dict[str, str]) -> None:
        """Set values of the settings table."""
        with self._database.errors():
            self._c.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", settings.items())

    def commit(self, change: SegmentChange, next_seq: int) -> int:
        """See `Transaction`."""
        with self._database.errors():
            if change.segments is not None:
                self._c.execute("DELETE FROM segments")
                self._c.executemany(
                    "INSERT INTO segments VALUES (?, ?, ?, ?, ?)",
                    ((i, *entry) for i, entry in enumerate(change.segments)),
                )
            self._c.executemany("INSERT OR IGNORE INTO tombstones VALUES (?)", ((s,) for s in change.bury))
            self._c.executemany("DELETE FROM tombstones WHERE seq = ?", ((s,) for s in change.settle))
            self._c.execute("UPDATE meta SET value = ? WHERE key = 'next_seq'", (str(next_seq),))
            self._c.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'generation'")
            (value,) = self._c.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
            self._c.execute("COMMIT")
        return int(value)

    def rollback(self) -> None:
        """See `Transaction`."""
        with contextlib.suppress(sqlite3.Error):
            if self._c.in_transaction:
                self._c.execute("ROLLBACK")


@contextlib.contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("COMMIT")


def _lookup(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _parts(ids):
        marks = ",".join("?" * len(part))
        query = f"SELECT id, seq FROM passages WHERE id IN ({marks})"
        found.update((_text(i), int(s)) for i, s in connection.execute(query, [_blob(i) for i in part]))
    return found


def _row(values: Any) -> Row:
    seq, passage_id, title, text, metadata = values
    return Row(seq, _text(passage_id), None if title is None else _text(title), _text(text), metadata.decode())


def _blob(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogatepass")


def _parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    for i in range(0, len(items), _CHUNK):
        yield list(items[i : i + _CHUNK])
