"""The store: passages and their bag-of-tokens index, changed together by one writer and read by many."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError, InvalidInputError, ReadOnlyError, SidrError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.database import Database
from sidr_rag.index.folder import Folder, StoreSettings, in_blocks, load_segment, remove_quietly
from sidr_rag.index.lock import WriterLock
from sidr_rag.index.merge import merge_segments, plan_merge
from sidr_rag.index.passages import (
    MemoryTable,
    PassageTable,
    Row,
    SegmentChange,
    SegmentEntry,
    Transaction,
    metadata_of,
)
from sidr_rag.protocols import Tokenizer
from sidr_rag.search.filters import Filter, filter_mask

OnConflict = Literal["replace", "error", "skip"]
_FILTER_CACHE = 32


@dataclass
class _Change:
    """What a write has done so far: nothing of it is visible before the commit."""

    transaction: Transaction
    next_seq: int
    added: list[SegmentView] = field(default_factory=list)
    buried: list[int] = field(default_factory=list)


class Store:
    """Passages in a table (SQLite or memory) with the immutable index state that belongs to each commit.

    Use `Store.in_memory`, `Store.create` or `Store.open`.
    """

    def __init__(
        self,
        settings: StoreSettings,
        tokenizer: Tokenizer,
        table: PassageTable,
        folder: Folder | None,
        *,
        read_only: bool,
    ) -> None:
        self.settings = settings
        self.store_id = uuid.uuid4().hex if folder is None else folder.store_id()
        self.folder = folder
        self.read_only = read_only
        self._tokenizer = tokenizer
        self._table = table
        self._write = threading.RLock()
        self._load = threading.Lock()
        self._lock = None if folder is None else WriterLock(folder.lock)
        self._rebuilt: set[str] = set()
        self._filters: OrderedDict[tuple[int, str], NDArray[np.uint64]] = OrderedDict()
        self._index = BotIndex.of(settings.dim, (), generation=-1 if folder else 0)
        if folder is not None:
            self.current()

    @classmethod
    def in_memory(cls, settings: StoreSettings, tokenizer: Tokenizer) -> Store:
        """An empty store without a folder."""
        return cls(settings, tokenizer, MemoryTable(), None, read_only=False)

    @classmethod
    def create(cls, path: Path, settings: StoreSettings, tokenizer: Tokenizer, store_id: str | None = None) -> Store:
        """An empty store in a new or empty folder; see `Folder.create` for errors."""
        folder = Folder(path)
        folder.create(settings, store_id)
        return cls(settings, tokenizer, Database(folder.database, read_only=False), folder, read_only=False)

    @classmethod
    def open(cls, path: Path, tokenizer: Tokenizer, *, read_only: bool = False) -> Store:
        """The store in a folder.

        Raises:
            IndexFormatError: if it is no store, is damaged beyond rebuilding, or was made with another tokenizer,
                normalizer or format; the message names the file, or both fingerprints.
        """
        folder = Folder(path)
        folder.store_id()
        database = Database(folder.database, read_only=read_only)
        try:
            settings = StoreSettings.from_json(database.state().settings.get("settings", ""), folder.database)
            if settings.fingerprint != tokenizer.fingerprint:
                raise IndexFormatError(
                    f"{path}: made with tokenizer {settings.fingerprint} (normalization {settings.normalization!r}), "
                    f"opened with {tokenizer.fingerprint} ({tokenizer.normalization!r}); "
                    "open it with the model it was made for"
                )
            return cls(settings, tokenizer, database, folder, read_only=read_only)
        except BaseException:
            database.close()
            raise

    # Reading

    def current(self) -> BotIndex:
        """The index state of the last commit, also of other processes."""
        if self.folder is None:
            return self._index
        while self._table.generation() != self._index.generation:
            with self._load:
                self._reload()
        return self._index

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """Rows by seq; those deleted since are left out."""
        return self._table.fetch(seqs)

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """Seqs by id; unknown ids are left out."""
        return self._table.lookup(ids)

    def scan(self) -> Iterator[Row]:
        """All rows in seq order."""
        return self._table.scan()

    def matching(self, condition: Filter, index: BotIndex) -> NDArray[np.uint64]:
        """Seqs of the passages whose metadata match, ascending; remembered for as long as nothing changes."""
        key = (index.generation, condition.key)
        with self._load:
            if key in self._filters:
                self._filters.move_to_end(key)
                return self._filters[key]
        pairs = list(self._table.scan_metadata())
        mask = filter_mask(condition, (metadata_of(text) for _, text in pairs))
        seqs = np.array([seq for seq, _ in pairs], dtype=np.uint64)[mask]
        with self._load:
            self._filters[key] = seqs
            while len(self._filters) > _FILTER_CACHE:
                self._filters.popitem(last=False)
        return seqs

    # Writing

    def add(self, rows: Iterable[Row], on_conflict: OnConflict = "replace") -> list[int]:
        """Index and store rows (their seqs are given here), all or none.

        Args:
            rows: consumed once, in blocks; of equal ids in one call the last wins ("skip": the first).
            on_conflict: what to do with an id that exists: "replace" it, raise an "error", or "skip" the new row.

        Returns:
            Seqs of the passages that were replaced.
        """
        with self._writing() as change:
            for block in in_blocks(iter(rows)):
                self._add_block(change, block, on_conflict)
        self._merge_due()
        return change.buried

    def delete(self, ids: Sequence[str]) -> list[int]:
        """Delete passages, all or none; returns the seqs of those that existed."""
        with self._writing() as change:
            change.buried = sorted(change.transaction.lookup(list(dict.fromkeys(ids))).values())
            change.transaction.delete(change.buried)
        self._merge_due()
        return change.buried

    def compact(self) -> None:
        """Merge everything into one segment without tombstones."""
        with self._write:
            if self._lock is not None:
                self._lock.acquire()
            index = self.current()
            if len(index.views) > 1 or any(view.live is not None for view in index.views):
                self._merge(0, len(index.views))

    def purge(self) -> None:
        """Overwrite what deleted passages have left in the database file."""
        with self._write:
            if isinstance(self._table, Database):
                self._table.purge()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[BotIndex]:
        """Hold this object's writers while a consistent copy is made.

        Raises:
            SidrError: at the end, if another process changed the store meanwhile: the copy is then not to be used.
        """
        with self._write:
            index = self.current()
            yield index
            if self.folder is not None and self._table.generation() != index.generation:
                raise SidrError("another process changed the store while it was being copied; try again")

    def close(self) -> None:
        """Release the folder; later calls raise."""
        with self._write:
            self._table.close()
            if self._lock is not None:
                self._lock.release()

    # Inside

    def _reload(self) -> None:
        assert isinstance(self._table, Database)
        assert self.folder is not None
        state = self._table.state()
        if state.generation <= self._index.generation:
            return
        known = {view.name: SegmentView(view.name, view.segment) for view in self._index.views}
        tombstones = np.array(state.tombstones, dtype=np.uint64)
        views = []
        for entry in state.segments:
            view = known.get(entry.name)
            if view is None:
                if not self.folder.segment_file(entry.name).exists() and self._table.generation() != state.generation:
                    return  # merged away while we looked; the caller looks again
                view, rebuilt = load_segment(self.folder, entry, self.settings, self._table, self._tokenizer)
                if rebuilt:
                    self._rebuilt.add(view.name)
            dead = view.segment.rows_of(tombstones)
            if view.segment.n_rows:
                views.append(view.without(dead) if len(dead) else view)
        self._index = BotIndex.of(self.settings.dim, views, state.generation, state.next_seq)

    def _publish(self, index: BotIndex) -> None:
        with self._load:
            if index.generation > self._index.generation:
                self._index = index

    @contextlib.contextmanager
    def _writing(self) -> Iterator[_Change]:
        """One commit: everything done inside becomes visible at the end, or nothing does."""
        with self._write:
            if self.read_only:
                raise ReadOnlyError("this store was opened with read_only=True; open it without to change it")
            first = self._lock is not None and not self._lock.held
            if self._lock is not None:
                self._lock.acquire()
            index = self.current()
            if first and self.folder is not None:
                self.folder.drop_unlisted({view.name for view in index.views})
            change = _Change(self._table.begin(), index.next_seq)
            saved: list[str] = []
            try:
                index = self._mended(index, saved)
                yield change
                if not change.added and not change.buried:
                    change.transaction.rollback()
                    return
                dead = np.array(sorted(change.buried), dtype=np.uint64)
                after = index.changed(
                    add=change.added, delete=dead, generation=index.generation + 1, next_seq=change.next_seq
                )
                change.transaction.commit(
                    SegmentChange([_entry(v) for v in after.views], change.buried), after.next_seq
                )
            except BaseException:
                change.transaction.rollback()
                self._discard([*saved, *(view.name for view in change.added)])
                raise
            self._rebuilt.clear()
            self._publish(after)

    def _mended(self, index: BotIndex, saved: list[str]) -> BotIndex:
        """The same state with rebuilt segments back on disk, under new names, for the coming commit to list."""
        for i, view in enumerate(index.views):
            if self.folder is not None and view.name in self._rebuilt:
                mended = SegmentView(uuid.uuid4().hex, view.segment, view.live)
                mended.segment.save(self.folder.segment_file(mended.name))
                saved.append(mended.name)
                index = index.replaced(i, i + 1, mended, index.generation)
        return index

    def _add_block(self, change: _Change, block: list[Row], on_conflict: OnConflict) -> None:
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
        existing = change.transaction.lookup(list(chosen))
        if existing and on_conflict == "error":
            raise InvalidInputError(
                f"ids: {len(existing)} of them exist, the first is {next(iter(existing))!r}; "
                "use on_conflict='replace' or 'skip'"
            )
        if on_conflict == "skip":
            chosen = {i: row for i, row in chosen.items() if i not in existing}
        elif existing:
            change.transaction.delete(list(existing.values()))
            change.buried.extend(existing.values())
        if not chosen:
            return
        rows = [row._replace(seq=change.next_seq + i) for i, row in enumerate(chosen.values())]
        seqs = np.arange(change.next_seq, change.next_seq + len(rows), dtype=np.uint64)
        segment = build_segment(self._tokenizer.counts(r.content for r in rows), seqs, self.settings.thresholds)
        view = SegmentView(uuid.uuid4().hex, segment)
        change.added.append(view)
        if self.folder is not None:
            segment.save(self.folder.segment_file(view.name))
        change.transaction.insert(rows)
        change.next_seq += len(rows)

    def _merge_due(self) -> None:
        with self._write:
            while plan := plan_merge([(v.segment.n_rows, v.n_live) for v in self.current().views]):
                self._merge(*plan)

    def _merge(self, start: int, end: int) -> None:
        index = self.current()
        old = index.views[start:end]
        merged = None
        if any(view.n_live for view in old):
            merged = SegmentView(uuid.uuid4().hex, merge_segments([(v.segment, v.live) for v in old]))
            if self.folder is not None:
                merged.segment.save(self.folder.segment_file(merged.name))
        settled = [int(s) for v in old if v.live is not None for s in v.segment.seqs[~v.live]]
        after = index.replaced(start, end, merged, index.generation + 1)
        transaction = self._table.begin()
        try:
            transaction.commit(SegmentChange([_entry(v) for v in after.views], settle=settled), after.next_seq)
        except BaseException:
            transaction.rollback()
            self._discard([] if merged is None else [merged.name])
            raise
        self._publish(after)
        self._discard([view.name for view in old])

    def _discard(self, names: Sequence[str]) -> None:
        if self.folder is not None:
            for name in names:
                remove_quietly(self.folder.segment_file(name))


def _entry(view: SegmentView) -> SegmentEntry:
    seqs = view.segment.seqs
    return SegmentEntry(view.name, len(seqs), int(seqs[0]), int(seqs[-1]))
