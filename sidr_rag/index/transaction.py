"""One write to the SQLite file: what it changes becomes visible and durable together, or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.index.passages import Row, SegmentChange

if TYPE_CHECKING:
    from sidr_rag.index.database import Database

_CHUNK = 500


class SqliteTransaction:
    """See `Transaction`; also what only a copy into an existing store needs."""

    def __init__(self, database: Database, connection: sqlite3.Connection) -> None:
        self._database = database
        self._c = connection

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """See `Transaction`."""
        with self._database.errors():
            return lookup_ids(self._c, ids)

    def insert(self, rows: Sequence[Row]) -> None:
        """See `Transaction`."""
        with self._database.errors():
            self._c.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)", map(_values_of, rows))

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
        with contextlib.suppress(sqlite3.Error), FORK_GATE:
            if self._c.in_transaction:
                self._c.execute("ROLLBACK")


def lookup_ids(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    """The seqs of those of the ids that exist."""
    found: dict[str, int] = {}
    for part in parts_of(ids):
        marks = ",".join("?" * len(part))
        query = f"SELECT id, seq FROM passages WHERE id IN ({marks})"
        for passage_id, seq in connection.execute(query, [blob(i) for i in part]):
            if not isinstance(seq, int):
                raise sqlite3.DatabaseError("the list of ids is damaged")
            found[text_of(passage_id)] = seq
    return found


def row_of(values: Any) -> Row:
    """A row of the table `passages`.

    Raises:
        sqlite3.DatabaseError: if a column does not hold what was stored.
    """
    if values[5] != _checksum(*values[:5]):
        raise sqlite3.DatabaseError("a stored passage does not match its checksum")
    seq, passage_id, title, text, metadata, _ = values
    return Row(
        int(seq), text_of(passage_id), None if title is None else text_of(title), text_of(text), text_of(metadata)
    )


def _values_of(row: Row) -> tuple[int, bytes, bytes | None, bytes, bytes, int]:
    title = None if row.title is None else blob(row.title)
    stored = (row.seq, blob(row.id), title, blob(row.text), blob(row.metadata))
    return (*stored, _crc(*stored))


def _checksum(seq: Any, passage_id: Any, title: Any, text: Any, metadata: Any) -> int:
    """Of a row as it was read; -1, which none has, where a column holds something else than bytes."""
    if not all(isinstance(value, bytes) for value in (passage_id, b"" if title is None else title, text, metadata)):
        return -1
    return _crc(seq, passage_id, title, text, metadata)


def _crc(seq: int, passage_id: bytes, title: bytes | None, text: bytes, metadata: bytes) -> int:
    """SQLite does not notice a changed byte inside a value; with the lengths, no byte can change its column either."""
    lengths = f"{seq},{len(passage_id)},{-1 if title is None else len(title)},{len(text)}"
    return zlib.crc32(b"".join((lengths.encode(), passage_id, title or b"", text, metadata)))


def blob(text: str) -> bytes:
    """Text as it is stored; lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def text_of(stored: Any) -> str:
    """The text that `blob` stored.

    Raises:
        sqlite3.DatabaseError: if it is no such text.
    """
    try:
        return str(stored, "utf-8", "surrogatepass")
    except (UnicodeDecodeError, TypeError) as e:
        raise sqlite3.DatabaseError(f"a stored text is unreadable: {type(e).__name__}") from None


def parts_of(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Lists short enough for the variables of one SQL statement."""
    for i in range(0, len(items), _CHUNK):
        yield list(items[i : i + _CHUNK])
