"""Embeddings of passages by content, in memory or beside a store: derived data that any encoder change drops."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = tuple[NDArray[np.int32], NDArray[np.float16]]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS embeddings (
    key BLOB PRIMARY KEY, age INTEGER NOT NULL, dims BLOB NOT NULL, weights BLOB NOT NULL
);
"""
_CHUNK = 500


def content_key(text: str) -> bytes:
    """What an embedding is remembered by: 16 bytes of SHA-256 of the encoded text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class EmbeddingCache:
    """V_theta of passages with weights in half precision, found again by the text itself.

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

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The embeddings that are here."""
        found: dict[bytes, Vector] = {}
        with self._open() as c:
            for i in range(0, len(keys), _CHUNK):
                part = list(keys[i : i + _CHUNK])
                marks = ",".join("?" * len(part))
                for key, dims, weights in c.execute(
                    f"SELECT key, dims, weights FROM embeddings WHERE key IN ({marks})", part
                ):
                    found[key] = np.frombuffer(dims, np.int32), np.frombuffer(weights, np.float16)
        return found

    def put(self, vectors: Iterable[tuple[bytes, Vector]]) -> None:
        """Remember embeddings, and forget the oldest ones beyond the bound."""
        with self._open() as c:
            (age,) = c.execute("SELECT COALESCE(MAX(age), 0) + 1 FROM embeddings").fetchone()
            c.executemany(
                "INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?, ?)",
                ((key, age, dims.tobytes(), weights.tobytes()) for key, (dims, weights) in vectors),
            )
            (size,) = c.execute(
                "SELECT COALESCE(SUM(LENGTH(dims) + LENGTH(weights) + 64), 0) FROM embeddings"
            ).fetchone()
            while size > self._max_bytes:
                oldest = list(
                    c.execute("SELECT key, LENGTH(dims) + LENGTH(weights) + 64 FROM embeddings ORDER BY age LIMIT 1000")
                )
                drop: list[tuple[bytes]] = []
                for key, bytes_used in oldest:
                    if size <= self._max_bytes:
                        break
                    drop.append((key,))
                    size -= bytes_used
                c.executemany("DELETE FROM embeddings WHERE key = ?", drop)

    def keep_only(self, keys: set[bytes]) -> None:
        """Forget the embeddings of all other texts, and overwrite what they held on disk."""
        with self._open() as c:
            gone = [(key,) for (key,) in c.execute("SELECT key FROM embeddings") if key not in keys]
            c.executemany("DELETE FROM embeddings WHERE key = ?", gone)
        with self._open(transaction=False) as c:
            c.execute("VACUUM")
            c.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def __len__(self) -> int:
        with self._open() as c:
            (n,) = c.execute("SELECT COUNT(*) FROM embeddings").fetchone()
        return int(n)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _open(self, *, transaction: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None or self._pid != os.getpid():
                self._connection, self._pid = self._connect(), os.getpid()
            if not transaction:
                yield self._connection
                return
            with self._connection:
                yield self._connection

    def _connect(self) -> sqlite3.Connection:
        if self._path is None:
            return self._prepared(sqlite3.connect(":memory:", check_same_thread=False))
        try:
            return self._prepared(_file_connection(self._path))
        except sqlite3.DatabaseError as e:
            if isinstance(e, sqlite3.OperationalError):
                warnings.warn(f"{self._path}: {e}; embeddings are kept in memory instead", RuntimeWarning, stacklevel=2)
                return self._prepared(sqlite3.connect(":memory:", check_same_thread=False))
            warnings.warn(f"{self._path}: {e}; the embeddings are made anew", RuntimeWarning, stacklevel=2)
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return self._prepared(_file_connection(self._path))

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        connection.executescript(_SCHEMA)
        with connection:
            stored: Any = connection.execute("SELECT value FROM meta WHERE key = 'fingerprint'").fetchone()
            if stored is None or stored[0] != self._fingerprint:
                connection.execute("DELETE FROM embeddings")
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('fingerprint', ?)", (self._fingerprint,))
        return connection


def _file_connection(path: Path) -> sqlite3.Connection:
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, check_same_thread=False, timeout=10)
    # Derived data: losing the last seconds of it costs a few embeddings, never a passage.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection
