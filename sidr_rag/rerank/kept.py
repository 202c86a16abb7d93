"""A file of embeddings that is only read, as it lies beside a store that was opened read-only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.fork_lock import ForkLock

R = TypeVar("R")
ROW_SIZE = "LENGTH(dims) + LENGTH(weights) + 64"
_SIZE = f"SELECT COALESCE(SUM({ROW_SIZE}), 0) FROM vectors"
_CHUNK = 500
_MARK_DIGITS = 18


class KeptEmbeddings:
    """What writers have embedded, read without leaving a trace: neither file nor journal nor shared memory is written.

    A file that is missing, of another encoder or damaged is as good as absent, until it changes.

    Args:
        path: an SQLite file that an `EmbeddingCache` has written, or may yet write.
        fingerprint: of the store's encoder, as that cache notes it.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._lock = ForkLock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, _State] | None = None  # by which process, and what the file was then
        self._unusable: _State | None = None

    def read(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
        """Both byte strings of the stored keys that are here."""
        return self._ask(lambda c: read_rows(c, keys), {})

    def present(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of the stored keys are here."""
        return self._ask(lambda c: present_keys(c, keys), set())

    @property
    def embedded_until(self) -> int:
        """See `EmbeddingCache.embedded_until`."""
        return self._ask(mark_of, 0)

    @property
    def nbytes(self) -> int:
        """About how many bytes the embeddings take."""
        return self._ask(used_bytes, 0)

    def __len__(self) -> int:
        return self._ask(n_rows, 0)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock, FORK_GATE:
            self._drop()

    def _ask(self, question: Callable[[sqlite3.Connection], R], otherwise: R) -> R:
        with self._lock, FORK_GATE:
            for last in (False, True):
                state = _state_of(self._path)
                if state is None or state == self._unusable:
                    return otherwise
                try:
                    return self._answer(state, question, otherwise)
                except (sqlite3.Error, UnicodeDecodeError) as e:  # the last: of a damaged file's own names
                    self._drop()
                    # A writer may have changed the file under the question.
                    if last or _state_of(self._path) == state:
                        self._refuse(state, e)
                        break
            return otherwise

    def _answer(self, state: _State, question: Callable[[sqlite3.Connection], R], otherwise: R) -> R:
        if state.live:
            self._drop()
            # Closed at once: this process's own writers could not use shared memory that is open for reading only.
            with contextlib.closing(self._connect("readonly_shm=1")) as c:
                return question(c) if self._is_ours(c) else otherwise
        if self._connection is None or self._opened != (os.getpid(), state):
            self._drop()
            self._connection = self._connect("immutable=1")
            self._opened = os.getpid(), state
        return question(self._connection) if self._is_ours(self._connection) else otherwise

    def _connect(self, how: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode=ro&{how}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        found = connection.execute("SELECT value FROM meta WHERE key = 'fingerprint'").fetchone()
        return found is not None and found[0] == self._fingerprint

    def _refuse(self, state: _State, fault: Exception) -> None:
        if not isinstance(fault, sqlite3.OperationalError):  # that is none of the contents, and may pass
            self._unusable = state
        what = "damaged" if isinstance(fault, UnicodeDecodeError) else fault  # which quotes the damaged bytes
        warnings.warn(
            f"{self._path}: {what}; embeddings that are kept there are not used", RuntimeWarning, stacklevel=4
        )

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._opened = None


class _State(NamedTuple):
    """What tells whether a file has changed; `live`: a part of it is in a journal."""

    device: int
    inode: int
    size: int
    changed_ns: int
    live: bool


def _state_of(path: Path) -> _State | None:
    """None for what cannot hold embeddings: nothing, an empty file, or no file of its own (a pipe would never open)."""
    main, journal, shared = (_file_at(path, end) for end in ("", "-wal", "-shm"))
    if main is None or not main.st_size:
        return None
    # A journal without its index could be read only by writing one; the file itself has what was moved into it.
    live = journal is not None and journal.st_size > 0 and shared is not None
    return _State(main.st_dev, main.st_ino, main.st_size, main.st_mtime_ns, live)


def _file_at(path: Path, end: str) -> os.stat_result | None:
    try:
        found = path.with_name(path.name + end).lstat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def read_rows(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
    """Both byte strings of the stored keys that are there and whole."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for part in _parts(keys):
        query = f"SELECT key, crc, dims, weights FROM vectors WHERE key IN ({_marks(part)})"
        for own, crc, dims, weights in connection.execute(query, part):
            if isinstance(dims, bytes) and isinstance(weights, bytes) and crc == row_crc(own, dims, weights):
                found[own] = dims, weights
    return found


def present_keys(connection: sqlite3.Connection, keys: Sequence[bytes]) -> set[bytes]:
    """Which of the stored keys are there."""
    found: set[bytes] = set()
    for part in _parts(keys):
        found.update(k for (k,) in connection.execute(f"SELECT key FROM vectors WHERE key IN ({_marks(part)})", part))
    return found


def mark_of(connection: sqlite3.Connection) -> int:
    """The mark of what is embedded; 0 for none."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'embedded_until'").fetchone()
    text = "" if found is None else str(found[0])
    return int(text) if text.isdecimal() and len(text) <= _MARK_DIGITS else 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """About how many bytes the embeddings take."""
    (size,) = connection.execute(_SIZE).fetchone()
    return int(size)


def n_rows(connection: sqlite3.Connection) -> int:
    """How many embeddings there are."""
    (n,) = connection.execute("SELECT COUNT(*) FROM vectors").fetchone()
    return int(n)


def row_crc(key: bytes, dims: bytes, weights: bytes) -> int:
    """What a row is checked by: SQLite does not notice a changed byte inside a value."""
    return zlib.crc32(weights, zlib.crc32(dims, zlib.crc32(key)))


def _parts(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [keys[i : i + _CHUNK] for i in range(0, len(keys), _CHUNK)]


def _marks(keys: Sequence[bytes]) -> str:
    return ",".join("?" * len(keys))
