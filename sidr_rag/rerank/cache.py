"""Embeddings of passages by content, in memory or beside a store: derived data that any encoder change drops."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from sidr_rag.errors import StorageError
from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.fork_lock import ForkLock
from sidr_rag.rerank.codecs import Codec, HalfWeights
from sidr_rag.rerank.codecs import Vector as Vector
from sidr_rag.rerank.kept import (
    ROW_SIZE,
    KeptEmbeddings,
    mark_of,
    n_rows,
    present_keys,
    read_rows,
    row_crc,
    used_bytes,
)

T = TypeVar("T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, age INTEGER NOT NULL, crc INTEGER NOT NULL, dims BLOB NOT NULL, weights BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS vectors_by_age ON vectors (age);
"""
_KEPT_SHARE = 0.9  # of the bound, after forgetting: counting again at every call would cost more than it saves


def content_key(text: str) -> bytes:
    """What an embedding is remembered by: 16 bytes of SHA-256 of the encoded text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class EmbeddingSpace(Generic[T]):
    """The embeddings of one model in a cache: one fingerprint, one way of rounding."""

    def __init__(self, cache: EmbeddingCache, fingerprint: str, codec: Codec[T]) -> None:
        self._cache = cache
        self._codec = codec
        self._prefix = fingerprint.encode()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, T]:
        """The embeddings that are here, as they were put."""
        asked = {self.stored_key(key): key for key in keys}
        found: dict[bytes, T] = {}
        for own, blobs in self._cache.read(list(asked)).items():
            # What a foreign hand has written is as good as absent.
            with contextlib.suppress(ValueError):
                found[asked[own]] = self._codec.decode(*blobs)
        return found

    def put(self, vectors: Iterable[tuple[bytes, T]]) -> dict[bytes, T]:
        """Remember embeddings, and forget the oldest ones beyond the cache's bound.

        Returns:
            the embeddings as `get` gives them back: rounded.
        """
        blobs = [(key, self._codec.encode(vector)) for key, vector in vectors]
        self._cache.write([(self.stored_key(key), first, second) for key, (first, second) in blobs])
        return {key: self._codec.decode(first, second) for key, (first, second) in blobs}

    def has(self, keys: Sequence[bytes]) -> int:
        """How many of the texts have an embedding here."""
        return len(self._cache.present([self.stored_key(key) for key in keys]))

    def stored_key(self, key: bytes) -> bytes:
        """A key that no other model's embedding has, even while another process uses the file with that model."""
        return hashlib.sha256(self._prefix + key).digest()[:16]


class EmbeddingCache:
    """Embeddings of passages, found again by the text itself; V_theta of the store's encoder, and others' beside it.

    What cannot be read, written or trusted is as good as absent: a fault of the file costs time and a warning, never
    a search.

    Args:
        path: an SQLite file of its own (a damaged one is replaced), or None for memory.
        read_only: what is in the file is used, and what is new stays in memory; nothing is written, see
            `KeptEmbeddings`.
        fingerprint: of the store's encoder; when it changes, every embedding in the file is dropped.
        max_bytes: about this much is kept, of all spaces together; the oldest go first.
        codec: how V_theta is rounded.
    """

    def __init__(
        self,
        path: Path | None,
        fingerprint: str,
        max_bytes: int = 1 << 30,
        codec: Codec[Vector] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        chosen = HalfWeights() if codec is None else codec
        self._path = None if read_only else path
        # Embeddings that are rounded in another way are other embeddings.
        self._fingerprint = fingerprint if chosen.name == HalfWeights.name else f"{fingerprint}:{chosen.name}"
        self._kept = KeptEmbeddings(path, self._fingerprint) if read_only and path is not None else None
        self._max_bytes = max_bytes
        self._lock = ForkLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._size = 0
        self._age = 0
        self.n_forgotten = 0  # embeddings that the bound has cost since this object was made
        self.theta = EmbeddingSpace(self, self._fingerprint, chosen)
        self._spaces: dict[str, EmbeddingSpace[Any]] = {}

    def space(self, fingerprint: str, codec: Codec[T]) -> EmbeddingSpace[T]:
        """The embeddings of another model, in the same file and under the same bound."""
        name = f"{fingerprint}:{codec.name}"
        return self._spaces.setdefault(name, EmbeddingSpace(self, name, codec))

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """V_theta of the texts that have it here, as it was put."""
        return self.theta.get(keys)

    def put(self, vectors: Iterable[tuple[bytes, Vector]]) -> dict[bytes, Vector]:
        """Remember V_theta of texts; see `EmbeddingSpace.put`."""
        return self.theta.put(vectors)

    def read(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
        """Both byte strings of the stored keys that are here."""
        found: dict[bytes, tuple[bytes, bytes]] = {}
        with self._open() as c:
            found.update(read_rows(c, keys))
        if self._kept is not None:
            found.update(self._kept.read([key for key in keys if key not in found]))
        return found

    def present(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of the stored keys are here."""
        found: set[bytes] = set()
        with self._open() as c:
            found.update(present_keys(c, keys))
        if self._kept is not None:
            found.update(self._kept.present([key for key in keys if key not in found]))
        return found

    def write(self, rows: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        """Remember stored keys with their byte strings, and forget the oldest ones beyond the bound."""
        with self._open() as c:
            self._age += 1
            self._size += sum(len(first) + len(second) + 64 for _, first, second in rows)
            c.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)",
                [(own, self._age, row_crc(own, first, second), first, second) for own, first, second in rows],
            )
            if self._size > self._max_bytes:
                self._size = used_bytes(c)  # replaced rows and other processes were not counted
            if self._size > self._max_bytes:
                self._forget_oldest(c)
                c.execute("DELETE FROM meta WHERE key = 'embedded_until'")

    @property
    def nbytes(self) -> int:
        """About how many bytes the embeddings take."""
        used = 0 if self._kept is None else self._kept.nbytes
        with self._open() as c:
            used += used_bytes(c)
        return used

    @property
    def embedded_until(self) -> int:
        """Every passage of the store with a lower seq has its V_theta here, as far as is known; 0 for none."""
        marks = [0 if self._kept is None else self._kept.embedded_until]
        with self._open() as c:
            marks.append(mark_of(c))
        return max(marks)

    def mark_embedded(self, until: int) -> None:
        """Note `embedded_until`; forgotten as soon as an embedding is."""
        with self._open() as c:
            c.execute("INSERT OR REPLACE INTO meta VALUES ('embedded_until', ?)", (str(until),))

    def keep_only(self, keys: set[bytes]) -> None:
        """Forget the embeddings of all other texts, and overwrite what they held on disk.

        Raises:
            StorageError: if the file cannot be rewritten, as while another process uses it.
        """
        kept = {space.stored_key(key) for space in (self.theta, *self._spaces.values()) for key in keys}
        with self._open(must=True) as c:
            gone = [(key,) for (key,) in c.execute("SELECT key FROM vectors") if key not in kept]
            c.executemany("DELETE FROM vectors WHERE key = ?", gone)
        with self._open(transaction=False, must=True) as c:
            c.execute("VACUUM")
            (busy, _, _) = c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise sqlite3.OperationalError("another process reads it")

    def __len__(self) -> int:
        n = 0 if self._kept is None else len(self._kept)
        with self._open() as c:
            n += n_rows(c)
        return n

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        if self._kept is not None:
            self._kept.close()
        with self._lock, FORK_GATE:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _open(self, *, transaction: bool = True, must: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock, FORK_GATE:
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

    def _forget_oldest(self, c: sqlite3.Connection) -> None:
        allowed = int(self._max_bytes * _KEPT_SHARE)
        drop: list[tuple[bytes]] = []
        for key, size in c.execute(f"SELECT key, {ROW_SIZE} FROM vectors ORDER BY age"):
            if self._size <= allowed:
                break
            drop.append((key,))
            self._size -= size
        c.executemany("DELETE FROM vectors WHERE key = ?", drop)
        self.n_forgotten += len(drop)

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
                connection.execute("DELETE FROM meta")
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('fingerprint', ?)", (self._fingerprint,))
        self._size = used_bytes(connection)
        (self._age,) = connection.execute("SELECT COALESCE(MAX(age), 0) FROM vectors").fetchone()
        return connection


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
