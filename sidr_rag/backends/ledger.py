"""Statistics of a whole collection, kept beside it by whoever writes: df, number of passages, total length.

Engines do not count in how many living passages a dimension occurs, so each writer keeps its own sum of what it added
and took away, and a reader adds the writers up. A writer's sums are written to one of two slots in turn, and one short
note then says which is valid, so that a reader never sees half a change.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.backends.protocol import IndexBackend, Record
from sidr_rag.backends.records import bag_of
from sidr_rag.errors import IndexFormatError, StoreLockedError

_PART = 60_000
_HEADS = "writer"
_NUMBERS = ("passages", "length", "longest", "last_seq", "version", "df_version", "n_parts")


@dataclass(frozen=True)
class Sums:
    """What one writer added, less what it took away; or the sum over all writers.

    Attributes:
        df: i64[dim]; passages that hold each dimension.
        passages: number of passages.
        length: tokens of all of them.
        longest: no passage ever added was longer.
        last_seq: no seq given is greater.
        version: counts this writer's changes.
        df_version: the version that wrote `df`.
        n_parts: how many notes hold `df`.
        pending: keys of records that a change was about to write or delete when it was noted.
    """

    df: NDArray[np.int64]
    passages: int = 0
    length: int = 0
    longest: int = 1
    last_seq: int = 0
    version: int = 0
    df_version: int = 0
    n_parts: int = 0
    pending: tuple[str, ...] = ()

    def with_records(self, records: Sequence[Record], sign: int) -> Sums:
        """The sums with some more records (sign 1) or without them (-1)."""
        bags = [bag_of(r, len(self.df)) for r in records]
        held = np.concatenate(bags) if bags else np.empty(0, np.int64)
        return replace(
            self,
            df=self.df + sign * np.bincount(held, minlength=len(self.df)),
            passages=self.passages + sign * len(records),
            length=self.length + sign * sum(r.length for r in records),
            longest=max([self.longest, *(r.length for r in records)]),
            last_seq=max([self.last_seq, *(r.row.seq for r in records)]),
        )


@dataclass
class Ledger:
    """The sums of all writers of a collection.

    Args:
        backend: the collection.
        dim: dimensions of the vocabulary space.
        writer: this writer's name; no other process may write under it at the same time.
        refresh_seconds: how old the other writers' sums may be.
    """

    backend: IndexBackend
    dim: int
    writer: str
    refresh_seconds: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, Sums] = field(default_factory=dict)
    _total: Sums | None = None
    _looked: float = -np.inf

    @property
    def own(self) -> Sums:
        """This writer's sums, read anew."""
        with self._lock:
            self._look()
            return self._known.get(self.writer, self._empty())

    def look(self) -> None:
        """Read every writer's sums now."""
        with self._lock:
            self._look()

    def total(self) -> Sums:
        """The sum over all writers."""
        with self._lock:
            if time.monotonic() - self._looked >= self.refresh_seconds:
                self._look()
            if self._total is None:
                known = list(self._known.values())
                n = max(0, sum(s.passages for s in known))
                # A writer at work has counted a part of its change: no df may leave the range it can have.
                self._total = Sums(
                    np.clip(sum((s.df for s in known), np.zeros(self.dim, np.int64)), 0, n),
                    n,
                    max(0, sum(s.length for s in known)),
                    max((s.longest for s in known), default=1),
                    max((s.last_seq for s in known), default=0),
                )
            return self._total

    def write(self, before: Sums, after: Sums) -> Sums:
        """Make `after` this writer's sums; returns them with their new version.

        Args:
            before: the sums that the change started from.
            after: the sums to keep, `pending` included.

        Raises:
            StoreLockedError: if another process has written under this writer's name since.
        """
        with self._lock:
            kept = self.backend.notes(_HEADS).get(self.writer)
            version = 0 if kept is None else _head(kept)["version"]
            if version != before.version:
                raise StoreLockedError(
                    f"{self.backend.place}: another process writes as writer={self.writer!r}; "
                    "open it with a name of its own, as in writer='b'"
                )
            new = replace(after, version=before.version + 1)
            if not np.array_equal(new.df, before.df):
                packed = base64.b64encode(zlib.compress(new.df.astype("<i8").tobytes(), 6)).decode("ascii")
                parts = [packed[i : i + _PART] for i in range(0, len(packed), _PART)]
                new = replace(new, df_version=before.df_version + 1, n_parts=len(parts))
                slot = self._slot(self.writer, new.df_version)
                self.backend.put_notes(slot, {str(i): f"{new.df_version}:{part}" for i, part in enumerate(parts)})
            self.backend.put_notes(_HEADS, {self.writer: _head_text(new)})
            self._known[self.writer] = new
            self._total = None
            return new

    def clear(self) -> None:
        """Forget every writer's sums, as before a recount."""
        with self._lock:
            self._look()
            for name, sums in self._known.items():
                emptied = Sums(
                    np.zeros(self.dim, np.int64), 0, 0, 1, sums.last_seq, sums.version + 1, sums.df_version + 1
                )
                self.backend.put_notes(_HEADS, {name: _head_text(emptied)})
            self._total = None
            self._looked = -np.inf

    # Inside

    def _empty(self) -> Sums:
        return Sums(np.zeros(self.dim, np.int64))

    def _look(self) -> None:
        for _ in range(10):
            heads = {name: _head(text) for name, text in self.backend.notes(_HEADS).items()}
            found = {name: self._sums(name, head) for name, head in heads.items()}
            if None not in found.values():
                changed = {n: s.version for n, s in found.items() if s} != {
                    n: s.version for n, s in self._known.items()
                }
                self._known = {name: s for name, s in found.items() if s is not None}
                self._total = None if changed else self._total
                self._looked = time.monotonic()
                return
            time.sleep(0.05)  # a writer changed both slots while they were read
        raise IndexFormatError(f"{self.backend.place}: its statistics cannot be read; recount() makes them anew")

    def _sums(self, name: str, head: dict[str, Any]) -> Sums | None:
        known = self._known.get(name)
        if known is not None and known.version == head["version"]:
            return known
        df = np.zeros(self.dim, np.int64)
        if head["n_parts"]:
            if known is not None and known.df_version == head["df_version"]:
                df = known.df
            else:
                parts = self.backend.notes(self._slot(name, head["df_version"]))
                texts = [parts.get(str(i), "").partition(":") for i in range(head["n_parts"])]
                if any(version != str(head["df_version"]) for version, _, _ in texts):
                    return None
                df = self._unpacked("".join(text for _, _, text in texts))
        numbers = {n: head[n] for n in _NUMBERS}
        return Sums(df, **numbers, pending=tuple(head["pending"]))

    def _unpacked(self, text: str) -> NDArray[np.int64]:
        try:
            df = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").astype(np.int64)
        except (binascii.Error, zlib.error, ValueError) as e:
            raise IndexFormatError(f"{self.backend.place}: its statistics are damaged; recount() mends them") from e
        if len(df) != self.dim:
            raise IndexFormatError(f"{self.backend.place}: has statistics of {len(df)} dimensions, not {self.dim}")
        return df

    @staticmethod
    def _slot(writer: str, version: int) -> str:
        return f"df/{writer}/{version % 2}"


def _head_text(sums: Sums) -> str:
    return json.dumps({**{name: getattr(sums, name) for name in _NUMBERS}, "pending": list(sums.pending)})


def _head(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        for name in _NUMBERS:
            if type(found[name]) is not int:
                raise TypeError(name)
        list(found["pending"])
    except (ValueError, KeyError, TypeError) as e:
        raise IndexFormatError("the collection's statistics are damaged; recount() makes them anew") from e
    return dict(found)
