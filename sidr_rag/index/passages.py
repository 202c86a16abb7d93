"""Where passages are kept: the seam, and the table that lives in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from sidr_rag.errors import IndexFormatError, InvalidInputError, InvalidTypeError
from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.fork_lock import ForkLock
from sidr_rag.search.json_values import MAX_DEPTH
from sidr_rag.types import Passage


class Row(NamedTuple):
    """A passage as it is stored; metadata as JSON text, so that no one holds a live reference to it."""

    seq: int
    id: str
    title: str | None
    text: str
    metadata: str

    @property
    def content(self) -> str:
        """What is tokenized and encoded: title and text, separated by one space."""
        return f"{self.title} {self.text}" if self.title else self.text

    def passage(self) -> Passage:
        """A private copy for the caller."""
        return Passage(self.id, self.text, self.title, metadata_of(self.metadata))


class SegmentEntry(NamedTuple):
    """A segment in a store's list: its file's name, its rows, and the seqs that only it can hold."""

    name: str
    n_rows: int
    first_seq: int
    last_seq: int


@dataclass
class SegmentChange:
    """What a commit does to the list of segments and tombstones.

    Attributes:
        segments: all segments afterwards, in seq order; None leaves the list as it is.
        bury: seqs that become tombstones.
        settle: seqs whose tombstones a merge has dropped.
    """

    segments: list[SegmentEntry] | None = None
    bury: list[int] = field(default_factory=list)
    settle: list[int] = field(default_factory=list)


class Transaction(Protocol):
    """Changes that become visible together, or not at all."""

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """The seqs of those of the ids that exist, this transaction's own changes included."""
        ...

    def insert(self, rows: Sequence[Row]) -> None:
        """Add rows whose ids are free."""
        ...

    def delete(self, seqs: Sequence[int]) -> None:
        """Remove rows."""
        ...

    def commit(self, change: SegmentChange, next_seq: int) -> int:
        """Make everything durable and visible; returns the new generation."""
        ...

    def rollback(self) -> None:
        """Forget everything."""
        ...


class PassageTable(Protocol):
    """Passages by id and by seq."""

    def begin(self) -> Transaction:
        """Start the one transaction that may be open; the caller serialises writers."""
        ...

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """The seqs of those of the ids that exist."""
        ...

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """The rows of those of the seqs that exist."""
        ...

    def ids(self) -> list[str]:
        """All ids in seq order."""
        ...

    def scan(self) -> Iterator[Row]:
        """All rows in seq order, of one consistent state."""
        ...

    def generation(self) -> int:
        """The number of the last commit."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class MemoryTable:
    """Passages in dictionaries: for stores without a path."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self.rows: dict[int, Row] = {}
        self.seqs: dict[str, int] = {}
        self._generation = 0

    def begin(self) -> Transaction:
        """See `PassageTable`."""
        return _MemoryTransaction(self)

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """See `PassageTable`."""
        with self._lock:
            return {i: self.seqs[i] for i in ids if i in self.seqs}

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """See `PassageTable`."""
        with self._lock:
            return {s: self.rows[s] for s in seqs if s in self.rows}

    def ids(self) -> list[str]:
        """See `PassageTable`."""
        return [row.id for row in self.scan()]

    def scan(self) -> Iterator[Row]:
        """See `PassageTable`."""
        with self._lock:
            rows = list(self.rows.values())
        return iter(sorted(rows))

    def generation(self) -> int:
        """See `PassageTable`."""
        return self._generation

    def close(self) -> None:
        """See `PassageTable`."""

    def apply(self, inserted: dict[int, Row], deleted: set[int]) -> int:
        """Make a transaction's changes visible at once."""
        with FORK_GATE, self._lock:
            for seq in deleted:
                row = self.rows.pop(seq, None)
                if row is not None and self.seqs.get(row.id) == seq:
                    del self.seqs[row.id]
            self.rows.update(inserted)
            self.seqs.update((row.id, seq) for seq, row in inserted.items())
            self._generation += 1
            return self._generation


class _MemoryTransaction:
    def __init__(self, table: MemoryTable) -> None:
        self._table = table
        self._inserted: dict[int, Row] = {}
        self._ids: dict[str, int] = {}
        self._deleted: set[int] = set()

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        found = {i: s for i, s in self._table.lookup(ids).items() if s not in self._deleted}
        found.update((i, self._ids[i]) for i in ids if i in self._ids)
        return found

    def insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._inserted[row.seq] = row
            self._ids[row.id] = row.seq

    def delete(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            row = self._inserted.pop(seq, None)
            if row is None:
                self._deleted.add(seq)
            else:
                del self._ids[row.id]

    def commit(self, change: SegmentChange, next_seq: int) -> int:
        return self._table.apply(self._inserted, self._deleted)

    def rollback(self) -> None:
        self._inserted.clear()
        self._ids.clear()
        self._deleted.clear()


def metadata_of(text: str) -> dict[str, Any]:
    """Metadata from its JSON text: new objects at every call."""
    try:
        value = {} if text == "{}" else json.loads(text)
    except (ValueError, RecursionError) as e:
        value = e
    if not isinstance(value, dict):
        raise IndexFormatError(f"passages.db: the metadata of a passage are damaged ({type(value).__name__})")
    return value


def metadata_json(metadata: Mapping[str, Any] | None, passage_id: str) -> str:
    """Metadata as JSON text.

    Raises:
        InvalidTypeError: if it is no mapping, or holds what JSON cannot give back: other types, keys that are no
            strings. The message names the passage id and the type.
        InvalidInputError: if it holds NaN, infinity or an integer of thousands of digits, or is nested too deep.
    """
    if not metadata:
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidTypeError(
                f"metadata of passage {passage_id!r} is {type(metadata).__name__}; give a mapping or None"
            )
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidTypeError(
            f"metadata of passage {passage_id!r} is {type(metadata).__name__}; give a mapping or None"
        )
    try:
        # Not as ASCII: two halves of a surrogate pair would come back as one character.
        return json.dumps(_plain(metadata, passage_id), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as e:
        if isinstance(e, InvalidInputError):
            raise
        raise InvalidInputError(
            f"metadata of passage {passage_id!r} holds NaN, infinity or an integer too long for JSON; "
            "use null or a string"
        ) from None


def _plain(value: Any, passage_id: str, depth: int = 1) -> Any:
    if depth > MAX_DEPTH + 1:
        raise InvalidInputError(
            f"metadata of passage {passage_id!r} is nested more than {MAX_DEPTH} levels deep, or holds itself; "
            "flatten it"
        )
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidTypeError(
                    f"metadata of passage {passage_id!r} has a key of type {type(key).__name__}; keys must be strings"
                )
        return {str.__str__(k): _plain(v, passage_id, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, passage_id, depth + 1) for v in value]
    if isinstance(value, str):
        return str.__str__(value)  # str() of a subclass, such as an enumeration's member, may be another text
    for base in (bool, int, float):
        if isinstance(value, base):
            return base(value)
    raise InvalidTypeError(
        f"metadata of passage {passage_id!r} holds a {type(value).__name__}; "
        "use strings, numbers, booleans, null, lists and mappings"
    )
