"""The seam to a search engine: what it must do for a `SiDR` to live on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.passages import Row
from sidr_rag.search.filters import Filter


@dataclass(frozen=True)
class Record:
    """A passage as an engine keeps it.

    Attributes:
        key: the engine's own id, a UUID made from the passage's id.
        row: the passage, with the seq that orders ties.
        length: indexable tokens, with repetition.
        dims: i64[nnz] ascending: dimension t of level l is `l * dim + t`; one reserved dimension where there is none.
        value: of every entry of the sparse vector; 1 under the paper's binary weighting.
    """

    key: str
    row: Row
    length: int
    dims: NDArray[np.int64]
    value: float

    @property
    def part(self) -> int:
        """A number from 0 to `LAST_PART` made from the key: what large answers are divided by."""
        return int(self.key[:8], 16) >> 1


class Candidate(NamedTuple):
    """A found record and the inner product as the engine computed it, in float32 and in an order of its own."""

    record: Record
    product: float


class Head(NamedTuple):
    """What names a record."""

    key: str
    seq: int
    passage_id: str


LAST_PART = (1 << 31) - 1  # engines compare ranges in float64, which seqs would not survive


class PartRange(NamedTuple):
    """Parts from `first` to `last`, both included."""

    first: int
    last: int


class Query(NamedTuple):
    """One sparse query vector: dims i64[n] ascending, weights f32[n] positive."""

    dims: NDArray[np.int64]
    weights: NDArray[np.float32]


class IndexBackend(Protocol):
    """One collection of an engine. Methods may be called from several threads.

    Whatever an engine raises comes out as a `StorageError` that names the collection and never a text.

    Attributes:
        name: of the engine, for people.
        place: of the collection, for people; holds no secret.
        most_candidates: the most results that one search gives.
        parallel_writes: how many `upsert` calls at once are of use.
    """

    name: str
    place: str
    most_candidates: int
    parallel_writes: int

    def exists(self) -> bool:
        """Whether the collection is there."""
        ...

    def create(self) -> None:
        """Make the collection, empty, with exact search settings."""
        ...

    def drop(self) -> None:
        """Remove the collection and its notes, if they are there."""
        ...

    def count(self) -> int:
        """How many records there are, exactly."""
        ...

    def upsert(self, records: Sequence[Record]) -> None:
        """Store records, in place of those with the same keys; every search that starts afterwards sees them.

        Raises:
            InvalidInputError: if a record is over a limit of the engine; names the passage id, the limit and the fix.
        """
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove records; unknown keys are ignored."""
        ...

    def fetch(self, keys: Sequence[str]) -> dict[str, Record]:
        """Records by key; unknown keys are left out."""
        ...

    def search(
        self, queries: Sequence[Query], limit: int, condition: Filter | None, parts: PartRange | None
    ) -> list[list[Candidate]]:
        """The records with the greatest inner products, greatest first, for each query.

        Args:
            queries: at least one.
            limit: 1 to `most_candidates`.
            condition: may be applied in part: everything that matches must be found, more may be.
            parts: only records with these parts.
        """
        ...

    def heads(self, condition: Filter | None = None) -> Iterator[Head]:
        """Every record's names, in any order; a condition may be applied in part, as in `search`."""
        ...

    def notes(self, kind: str) -> dict[str, str]:
        """Short texts kept beside the collection: those of one kind, by name."""
        ...

    def put_notes(self, kind: str, notes: Mapping[str, str]) -> None:
        """Write notes of a kind, each of at most 60,000 characters, in place of those with the same names."""
        ...

    def close(self) -> None:
        """Let go of the engine; a client that the caller gave stays open."""
        ...


def filterable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata in a form that every engine can keep for filtering: UTF-8, and numbers that float64 holds.

    Order between numbers is kept, though near ones may become equal; the passage's own metadata are kept elsewhere.
    """
    return {_utf8(key): _native(value) for key, value in metadata.items()}


_MOST = 1.7e308
_EXACT = 1 << 53


def _native(value: Any) -> Any:
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and abs(value) > _EXACT:
        return as_float(value)
    if isinstance(value, dict):
        return filterable(value)
    if isinstance(value, list):
        return [_native(item) for item in value]
    return value


def as_float(value: float) -> float:
    """The nearest float64 that every engine's JSON can hold."""
    return float(max(-_MOST, min(_MOST, value)))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
