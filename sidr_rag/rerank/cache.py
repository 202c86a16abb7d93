"""Embeddings of passages by content, in memory or beside a store: derived data that any encoder change drops."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import threading
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import StorageError

Vector = tuple[NDArray[np.int32], NDArray[np.float16]]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, age INTEGER NOT NULL, crc INTEGER NOT NULL, dims BLOB NOT NULL, weights BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS vectors_by_age ON vectors (age);
"""
_CHUNK = 500
_KEPT_SHARE = 0.9  # of the bound, after forgetting: counting again at every call would cost more than it saves
_ROW_SIZE = "LENGTH(dims) + LENGTH(weights) + 64"


def content_key(text: str) -> bytes:
    """What an embedding is remembered by: 16 bytes of SHA-256 of the encoded text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class EmbeddingCache:
    """V_theta of passages with weights in half precision, found again by the text itself.

    What cannot be read, written or trusted is as good as absent: a fault of the file costs time and a warning, never
    a search.

    Args:
        path: an SQLite file of its own (a damaged one is replaced), or None for memory.
        fingerprint: of the encoder; embeddings of another one are dropped.
        max_bytes: about this much is kept; the oldest go first.
    """

    def __init__(self, path: Path | None, fingerprint: str, max_bytes: int = 1 << 30) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._size = 0
        self._age = 0

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The embeddings that are here, as they were put."""
        found: dict[bytes, Vector] = {}
        asked = {self._key(key): key for key in keys}
        own_keys = list(asked)
        with self._open() as c:
            for i in range(0, len(own_keys), _CHUNK):
                part = own_keys[i : i + _CHUNK]
                marks = ",".join("?" * len(part))
                for own, crc, dims, weights in c.execute(
                    f"SELECT key, crc, dims, weights FROM vectors WHERE key IN ({marks})", part
                ):
                    if crc == _crc(own, dims, weights):
                        found[asked[own]] = np.frombuffer(dims, np.int32), np.frombuffer(weights, np.float16)
        return found

    def put(self, vectors: Iterable[tuple[bytes, Vector]]) -> None:
        """Remember embeddings, and forget the oldest ones beyond the bound."""
        with self._open() as c:
            self._age += 1
            rows = []
            for key, (dims, weights) in vectors:
                own, dim_bytes, weight_bytes = self._key(key), dims.tobytes(), weights.tobytes()
                rows.append((own, self._age, _crc(own, dim_bytes, weight_bytes), dim_bytes, weight_bytes))
                self._size += len(dim_bytes) + len(weight_bytes) + 64
            c.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)", rows)
            if self._size > self._max_bytes:
                self._size = _used(c)  # replaced rows and other processes were not counted
            if self._size > self._max_bytes:
                self._forget_oldest(c)

    def keep_only(self, keys: set[bytes]) -> None:
        """Forget the embeddings of all other texts, and overwrite what they held on disk.

        Raises:
            StorageError: if the file cannot be rewritten, as while another process uses it.
        """
        kept = {self._key(key) for key in keys}
        with self._open(must=True) as c:
            gone = [(key,) for (key,) in c.execute("SELECT key FROM vectors") if key not in kept]
            c.executemany("DELETE FROM vectors WHERE key = ?", gone)
        with self._open(transaction=False, must=True) as c:
            c.execute("VACUUM")
            (busy, _, _) = c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise sqlite3.OperationalError("another process reads it")

    def __len__(self) -> int:
        n = 0
        with self._open() as c:
            (n,) = c.execute("SELECT COUNT(*) FROM vectors").fetchone()
        return int(n)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _open(self, *, transaction: bool = True, must: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None or self._pid != os.getpid():
                    self._connection, self._pid = self._connect(), os.getpid()
                if transaction:
                    with self._connection:
                        yield self._connection
                else:
                    yield self._connection
            except sqlite3.Error as e:
                if must and isinstance(e, sqlite3.OperationalError):
                    raise StorageError(errno.EBUSY, f"cannot rewrite the embeddings: {e}", str(self._path)) from e
                self._give_up(e)

    def _give_up(self, fault: sqlite3.Error) -> None:
        """Close after a fault; the next call opens the file again, or a new one where this one is damaged."""
        warnings.warn(f"embeddings cannot be remembered at the moment ({fault})", RuntimeWarning, stacklevel=5)
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._path is not None and not isinstance(fault, sqlite3.OperationalError):
            _remove(self._path)

    def _key(self, key: bytes) -> bytes:
        """A key that no other encoder's embedding has, even while another process uses the file with that encoder."""
        return hashlib.sha256(self._fingerprint.encode() + key).digest()[:16]

    def _forget_oldest(self, c: sqlite3.Connection) -> None:
        allowed = int(self._max_bytes * _KEPT_SHARE)
        drop: list[tuple[bytes]] = []
        for key, size in c.execute(f"SELECT key, {_ROW_SIZE} FROM vectors ORDER BY age"):
            if self._size <= allowed:
                break
            drop.append((key,))
            self._size -= size
        c.executemany("DELETE FROM vectors WHERE key = ?", drop)

    def _connect(self) -> sqlite3.Connection:
        if self._path is None:
            return self._prepared(sqlite3.connect(":memory:", check_same_thread=False))
        try:
            return self._prepared(_file_connection(self._path))
        except (sqlite3.DatabaseError, OSError, UnicodeDecodeError) as e:  # the last: of a damaged file's own names
            if isinstance(e, (sqlite3.OperationalError, OSError)):
                warnings.warn(f"{self._path}: {e}; embeddings are kept in memory instead", RuntimeWarning, stacklevel=2)
                return self._prepared(sqlite3.connect(":memory:", check_same_thread=False))
            warnings.warn(f"{self._path}: {e}; the embeddings are made anew", RuntimeWarning, stacklevel=2)
            _remove(self._path)
            return self._prepared(_file_connection(self._path))

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        connection.executescript(_SCHEMA)
        with connection:
            stored: Any = connection.execute("SELECT value FROM meta WHERE key = 'fingerprint'").fetchone()
            if stored is None or stored[0] != self._fingerprint:
                connection.execute("DELETE FROM vectors")
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('fingerprint', ?)", (self._fingerprint,))
        self._size = _used(connection)
        (self._age,) = connection.execute("SELECT COALESCE(MAX(age), 0) FROM vectors").fetchone()
        return connection


def _used(connection: sqlite3.Connection) -> int:
    (size,) = connection.execute(f"SELECT COALESCE(SUM({_ROW_SIZE}), 0) FROM vectors").fetchone()
    return int(size)


def _crc(key: bytes, dims: bytes, weights: bytes) -> int:
    # SQLite does not notice a changed byte inside a value.
    return zlib.crc32(weights, zlib.crc32(dims, zlib.crc32(key)))


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _file_connection(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    connection = sqlite3.connect(path, check_same_thread=False, timeout=10)
    # Derived data: losing the last seconds of it costs a few embeddings, never a passage.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection
