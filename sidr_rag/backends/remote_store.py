"""A collection of an engine as a store: passages in and out, with the statistics that the weights need."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NoReturn

from sidr_rag.backends.ledger import Ledger, Sums
from sidr_rag.backends.protocol import Head, IndexBackend, Record
from sidr_rag.backends.records import LengthScale, records_of
from sidr_rag.backends.wire import key_of
from sidr_rag.errors import IndexFormatError, InvalidInputError, ReadOnlyError
from sidr_rag.index.folder import StoreSettings
from sidr_rag.index.passages import Row
from sidr_rag.index.writer import OnConflict
from sidr_rag.protocols import Tokenizer
from sidr_rag.search.filters import Filter
from sidr_rag.search.weighting import Weighting

BLOCK = 1000
_ALONE = 100  # so few records are not worth several requests
_FORMAT = 1
_SETTINGS = "settings"


class RemoteStore:
    """Passages of one collection.

    Args:
        backend: the collection; it exists.
        tokenizer: of the model that the collection was made for.
        writer: this writer's name; see `Ledger`.
        refresh_seconds: how old other writers' statistics may be when a search weighs its words.
        read_only: refuse to write.
        progress: called with the number of passages of a call that are stored so far, after every block.

    Raises:
        IndexFormatError: if the collection is of another tokenizer or format, or no collection of this library.
    """

    folder = None

    def __init__(
        self,
        backend: IndexBackend,
        tokenizer: Tokenizer,
        *,
        writer: str = "main",
        refresh_seconds: float = 1.0,
        read_only: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.read_only = read_only
        self.settings, weighting = _read_settings(backend, tokenizer)
        self.ledger = Ledger(backend, self.settings.dim, writer, refresh_seconds)
        self._weighting = weighting
        self._scale: LengthScale | None = None
        self._progress = progress
        self._write = threading.RLock()
        if not read_only:
            self._settle()

    @staticmethod
    def create(backend: IndexBackend, settings: StoreSettings, weighting: Weighting) -> None:
        """Make the collection; the weighting's length factor is what its vectors will carry."""
        backend.create()
        stored = {"format": _FORMAT, "settings": json.loads(settings.to_json()), "weighting": weighting.to_mapping()}
        backend.put_notes(_SETTINGS, {"settings": json.dumps(stored)})

    # Reading

    def count(self) -> int:
        """How many passages there are."""
        return self.backend.count()

    def scale(self) -> LengthScale | None:
        """What the stored vectors' values carry; None before there are any whose length matters."""
        if self._scale is None:
            average = self.backend.notes(_SETTINGS).get("average")
            if average is not None or not self._weighting.length_exponent:
                w = self._weighting
                self._scale = LengthScale(w.length_exponent, w.length_slope, float(average or 1.0))
        return self._scale

    def rows(self, ids: Sequence[str]) -> dict[str, Row]:
        """Passages by id; unknown ids are left out."""
        return {record.row.id: record.row for record in self.records(ids).values()}

    def records(self, ids: Sequence[str]) -> dict[str, Record]:
        """Records by key; unknown ids are left out."""
        keys = [key_of(i) for i in dict.fromkeys(ids)]
        found: dict[str, Record] = {}
        for i in range(0, len(keys), BLOCK):
            found.update(self.backend.fetch(keys[i : i + BLOCK]))
        return found

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """Seqs by id; unknown ids are left out."""
        return {i: row.seq for i, row in self.rows(ids).items()}

    def heads(self, condition: Filter | None = None) -> list[Head]:
        """Names of all records in seq order; a condition may be applied in part."""
        return sorted(self.backend.heads(condition), key=lambda head: (head.seq, head.key))

    def ids(self) -> list[str]:
        """All ids in seq order."""
        return [head.passage_id for head in self.heads()]

    def scan(self, condition: Filter | None = None) -> Iterator[Row]:
        """All rows in seq order; a condition may be applied in part. What is deleted meanwhile is left out."""
        heads = self.heads(condition)
        for i in range(0, len(heads), BLOCK):
            keys = [head.key for head in heads[i : i + BLOCK]]
            found = self.backend.fetch(keys)
            yield from (found[key].row for key in keys if key in found)

    def unavailable(self, *_: object) -> NoReturn:
        """What only a local store can give.

        Raises:
            InvalidInputError: always.
        """
        raise InvalidInputError(
            f"this needs the whole index at hand, and it is in {self.backend.name}: save() a local copy and use that"
        )

    current = fetch = frozen = unavailable

    @property
    def _writer(self) -> NoReturn:  # what `uploads` changes a local store through
        self.unavailable()

    # Writing

    def add(self, rows: Iterable[Row], on_conflict: OnConflict = "replace") -> list[int]:
        """Store rows block by block; of equal ids the last wins ("skip": the first).

        A block is searchable when it is stored. A call that is cut off leaves whole blocks; the same call with
        `on_conflict="skip"` goes on from there.

        Returns:
            Seqs of the passages that were replaced.
        """
        self._writable()
        replaced: list[int] = []
        n_stored = 0
        iterator = iter(rows)
        with self._write:
            while block := list(islice(iterator, BLOCK)):
                replaced += self._add_block(block, on_conflict)
                n_stored += len(block)
                if self._progress is not None:
                    self._progress(n_stored)
        return replaced

    def delete(self, ids: Sequence[str]) -> list[int]:
        """Delete passages block by block; returns the seqs of those that existed."""
        self._writable()
        distinct = list(dict.fromkeys(ids))
        gone: list[int] = []
        with self._write:
            for i in range(0, len(distinct), BLOCK):
                existing = self.records(distinct[i : i + BLOCK])
                if existing:
                    own = self._settle()
                    after = own.with_records(list(existing.values()), -1)
                    noted = self.ledger.write(own, replace(after, pending=tuple(existing)))
                    self.backend.delete(list(existing))
                    self.ledger.write(noted, replace(noted, pending=()))
                    gone += [record.row.seq for record in existing.values()]
        return sorted(gone)

    def recount(self) -> int:
        """Count the statistics anew from every stored record; returns how many there are.

        For a collection that several writers have changed at the same passages, or that was changed without this
        library. No writer may be at work meanwhile.
        """
        self._writable()
        with self._write:
            self.ledger.clear()
            start = self.ledger.own
            sums = start
            keys = [head.key for head in self.backend.heads()]
            for i in range(0, len(keys), BLOCK):
                sums = sums.with_records(list(self.backend.fetch(keys[i : i + BLOCK]).values()), 1)
            self.ledger.write(start, replace(sums, pending=()))
            return len(keys)

    def close(self) -> None:
        """Let go of the engine."""
        self.backend.close()

    # Inside

    def _writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("this collection was opened with read_only=True; open it without to change it")

    def _add_block(self, block: list[Row], on_conflict: OnConflict) -> list[int]:
        chosen: dict[str, Row] = {}
        for row in block:
            if on_conflict == "error" and row.id in chosen:
                raise InvalidInputError(
                    f"ids: {row.id!r} is given twice; make ids distinct or use on_conflict='replace'"
                )
            if on_conflict == "skip" and row.id in chosen:
                continue
            chosen.pop(row.id, None)
            chosen[row.id] = row
        existing = self.records(list(chosen))
        if existing and on_conflict == "error":
            first = next(iter(existing.values())).row.id
            raise InvalidInputError(
                f"ids: {len(existing)} of them exist, the first is {first!r}; use on_conflict='replace' or 'skip'"
            )
        if on_conflict == "skip":
            there = {record.row.id for record in existing.values()}
            chosen = {i: row for i, row in chosen.items() if i not in there}
            existing = {}
        if chosen:
            self._store(list(chosen.values()), list(existing.values()))
        return [record.row.seq for record in existing.values()]

    def _store(self, rows: list[Row], existing: list[Record]) -> None:
        own = self._settle()
        counts = self.tokenizer.counts(row.content for row in rows)
        # Microseconds since 1970, times 1,024: rising for all writers without asking each other.
        first = max(max(own.last_seq, self.ledger.total().last_seq) + 1, (time.time_ns() // 1000) << 10)
        rows = [Row(first + i, *row[1:]) for i, row in enumerate(rows)]
        scale = self._scale_for(int(counts.lengths.sum(dtype="int64")), len(rows))
        records = records_of(rows, counts, self.settings.thresholds, scale)
        without = own.with_records(existing, -1)
        noted = self.ledger.write(own, replace(without, pending=tuple(record.key for record in records)))
        self._upsert(records)
        self.ledger.write(noted, replace(noted.with_records(records, 1), pending=()))

    def _upsert(self, records: list[Record]) -> None:
        n_parts = self.backend.parallel_writes if len(records) > _ALONE else 1
        size = -(-len(records) // n_parts)
        parts = [records[i : i + size] for i in range(0, len(records), size)]
        if len(parts) == 1:
            self.backend.upsert(records)
            return
        with ThreadPoolExecutor(n_parts, thread_name_prefix="sidr-upsert") as pool:
            list(pool.map(self.backend.upsert, parts))

    def _scale_for(self, length: int, n: int) -> LengthScale:
        """What values carry; fixed by the first passages that have tokens."""
        scale = self.scale()
        if scale is None:
            average = max(1.0, length / n)
            self.backend.put_notes(_SETTINGS, {"average": repr(average)})
            scale = self.scale()
            assert scale is not None
        return scale

    def _settle(self) -> Sums:
        """This writer's sums, with what a change that was cut off has left: its keys say which records to count."""
        own = self.ledger.own
        if own.pending:
            left = list(self.backend.fetch(own.pending).values())
            own = self.ledger.write(own, replace(own.with_records(left, 1), pending=()))
        return own

    def statistics(self) -> Sums:
        """Of all living passages."""
        return self.ledger.total()


def _read_settings(backend: IndexBackend, tokenizer: Tokenizer) -> tuple[StoreSettings, Weighting]:
    text = backend.notes(_SETTINGS).get("settings")
    if text is None:
        raise IndexFormatError(f"{backend.place}: is no collection of this library; choose another name")
    try:
        stored = json.loads(text)
        if stored["format"] != _FORMAT:
            raise IndexFormatError(f"{backend.place}: has format {stored['format']!r}; this version reads {_FORMAT}")
        settings = StoreSettings.from_json(json.dumps(stored["settings"]), Path(backend.place))
        weighting = Weighting.from_mapping(stored["weighting"])
    except (ValueError, KeyError, TypeError) as e:
        raise IndexFormatError(f"{backend.place}: its settings are damaged ({type(e).__name__})") from e
    if settings.fingerprint != tokenizer.fingerprint or settings.dim != tokenizer.vocabulary.dim:
        raise IndexFormatError(
            f"{backend.place}: made with tokenizer {settings.fingerprint} (normalization {settings.normalization!r}), "
            f"opened with {tokenizer.fingerprint} ({tokenizer.normalization!r}); open it with the model it was made for"
        )
    return settings, weighting
