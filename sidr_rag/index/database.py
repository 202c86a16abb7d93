"""Passages, tombstones, settings and the list of segments in one SQLite file: the only commit point of a store."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sidr_rag.errors import IndexFormatError, SidrError, StorageError
from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.index.passages import Row, SegmentEntry
from sidr_rag.index.sqlite_errors import errno_of
from sidr_rag.index.transaction import SqliteTransaction, lookup_ids, parts_of, row_of, text_of

APPLICATION_ID = 0x53694452  # "SiDR"
_SCANNED = 256  # rows read at a time
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE passages (
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, title BLOB, text BLOB NOT NULL, metadata BLOB NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE segments (
    position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, n_rows INTEGER NOT NULL,
    first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL
);
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY);
INSERT INTO meta VALUES ('generation', '0'), ('next_seq', '1');
"""


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
        self._uri = read_only_uri(path) if read_only else f"{path.absolute().as_uri()}?mode=rw"
        self._guard = threading.Lock()
        self._closed = False
        self._identity: tuple[int, int] | None = None
        with self.errors():
            (found,) = self.reader().execute("PRAGMA application_id").fetchone()
            self._identity = self._identity_now()
        if found != APPLICATION_ID:
            raise IndexFormatError(f"{path}: not a sidr-rag store")

    @staticmethod
    def create(path: Path, settings: dict[str, str]) -> None:
        """Make an empty store file, whole or not at all; what an interrupted attempt has left is dropped first."""
        partial = path.with_name(path.name + ".new")
        try:
            for suffix in ("", "-journal", "-wal", "-shm"):
                partial.with_name(partial.name + suffix).unlink(missing_ok=True)
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with FORK_GATE, contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.executescript(_SCHEMA)
                connection.executemany("INSERT INTO meta VALUES (?, ?)", settings.items())
                connection.execute("PRAGMA journal_mode = WAL")
            partial.replace(path)
        except (OSError, sqlite3.Error) as e:
            partial.unlink(missing_ok=True)
            raise StorageError(errno_of(e), f"cannot create the store: {e}", str(path)) from e

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Give SQLite's errors as this library's; a fork waits until the block has ended."""
        try:
            with FORK_GATE:
                yield
        except sqlite3.OperationalError as e:
            if "no such" in str(e):
                raise IndexFormatError(f"{self.path}: a part of the database is missing ({e})") from e
            raise StorageError(errno_of(e), f"the store's database: {e}", str(self.path)) from e
        except sqlite3.ProgrammingError as e:
            if self._closed:
                raise SidrError("this store was closed meanwhile; open it again") from e
            raise
        except sqlite3.DatabaseError as e:
            raise IndexFormatError(f"{self.path}: damaged or not a database ({e})") from e
        except UnicodeDecodeError as e:  # SQLite's own message quotes the damaged bytes
            raise IndexFormatError(f"{self.path}: damaged or not a database") from e

    def reader(self) -> sqlite3.Connection:
        """This thread's reading connection, made anew after a fork."""
        self._check_open()
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None or self._local.pid != os.getpid():
            connection = self._connect(write=False)
            self._local.connection, self._local.pid = connection, os.getpid()
        return connection

    def check_in_place(self) -> None:
        """See that the file is still the one that was opened.

        Raises:
            SidrError: if this object is closed.
            IndexFormatError: if the file was deleted or replaced; it names the file.
        """
        self._check_open()
        if self._identity_now() != self._identity:
            raise IndexFormatError(f"{self.path}: was deleted or replaced since it was opened; open the store again")

    def generation(self) -> int:
        """The number of the last commit, by any process."""
        with self.errors():
            found = self.reader().execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
            return _number("generation", found[0] if found else None)

    def state(self) -> State:
        """Generation, segments, tombstones and settings of one moment."""
        with self.errors(), _reading(self.reader()) as c:
            try:
                meta: dict[str, str] = dict(c.execute("SELECT key, value FROM meta"))
                entries = c.execute("SELECT name, n_rows, first_seq, last_seq FROM segments ORDER BY position")
                segments = [SegmentEntry(str(n), int(r), int(a), int(b)) for n, r, a, b in entries]
                tombstones = [int(s) for (s,) in c.execute("SELECT seq FROM tombstones ORDER BY seq")]
            except (TypeError, ValueError) as e:
                raise sqlite3.DatabaseError(f"its settings or segments are unreadable: {type(e).__name__}") from None
            ends = [seq for entry in segments for seq in (entry.first_seq, entry.last_seq)]
            if ends != sorted(ends) or min([*ends, *tombstones], default=0) < 0:
                raise sqlite3.DatabaseError("its segments or tombstones are out of order")
            numbers = [_number(key, meta.pop(key, None)) for key in ("generation", "next_seq")]
        return State(numbers[0], numbers[1], segments, tombstones, meta)

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """See `PassageTable`."""
        with self.errors():
            return lookup_ids(self.reader(), ids)

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """See `PassageTable`."""
        found: dict[int, Row] = {}
        with self.errors():
            connection = self.reader()
            for part in parts_of(seqs):
                marks = ",".join("?" * len(part))
                query = f"SELECT seq, id, title, text, metadata, crc FROM passages WHERE seq IN ({marks})"
                found.update((r.seq, r) for r in map(row_of, connection.execute(query, part)))
        return found

    def ids(self) -> list[str]:
        """See `PassageTable`."""
        with self.errors():
            return [text_of(i) for (i,) in self.reader().execute("SELECT id FROM passages ORDER BY seq")]

    def scan(self) -> Iterator[Row]:
        """See `PassageTable`; a connection of its own keeps the state until the end."""
        return self.scan_range(0, 2**63 - 1)

    def scan_range(self, first: int, last: int) -> Iterator[Row]:
        """The rows with seqs from first to last, both included, in order."""
        query = "SELECT seq, id, title, text, metadata, crc FROM passages WHERE seq BETWEEN ? AND ? ORDER BY seq"
        with self.errors():
            connection = self._connect(write=False)
        try:
            with self.errors():
                cursor = connection.execute(query, (first, last))
            more = True
            while more:
                with self.errors():  # not around the yield: a fork would wait for whoever reads on
                    rows = [row_of(values) for values in cursor.fetchmany(_SCANNED)]
                yield from rows
                more = bool(rows)
        finally:
            with FORK_GATE:
                connection.close()

    def begin(self) -> SqliteTransaction:
        """See `PassageTable`."""
        with self.errors():
            self.check_in_place()
            if self._writer is None:
                self._writer = self._connect(write=True)
            self._writer.execute("BEGIN IMMEDIATE")
        return SqliteTransaction(self, self._writer)

    def purge(self) -> None:
        """Rewrite the file without free pages, and empty the journal.

        Raises:
            StorageError: if a reader kept the journal from being emptied.
        """
        with self.errors():
            connection = self._connect(write=True)
            try:
                connection.execute("VACUUM")
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    raise StorageError(
                        errno.EBUSY, "a reader keeps old pages in use; purge again when it is done", str(self.path)
                    )
            finally:
                connection.close()

    def close(self) -> None:
        """Close every connection of this process."""
        with FORK_GATE, self._guard:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(sqlite3.Error), FORK_GATE:
                connection.close()
        self._writer = None

    def _check_open(self) -> None:
        if self._closed:
            raise SidrError("this store is closed; open it again")

    def _identity_now(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

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
        if self._identity is not None:
            self.check_in_place()  # a connection of a later thread must not see another file than the first one's
        return connection


def read_only_uri(path: Path) -> str:
    """How SQLite opens a file that it must not change."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    if os.access(path.parent, os.W_OK) or path.with_name(path.name + "-wal").exists():
        return uri
    # Without a writable folder SQLite cannot share a journal; without a journal the file is all there is.
    return f"{uri}&immutable=1"


def _number(key: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise sqlite3.DatabaseError(f"the setting {key!r} is unreadable") from None


@contextlib.contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("COMMIT")
