"""Changes to a store: one transaction each, published when it is committed, and the merges that follow."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from sidr_rag.errors import InvalidInputError, ReadOnlyError, SidrError
from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.index.beside import Beside
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.index.database import Database
from sidr_rag.index.folder import in_blocks, remove_quietly
from sidr_rag.index.lock import WriterLock
from sidr_rag.index.merge import merge_segments, plan_compaction, plan_merge
from sidr_rag.index.merger import Merger
from sidr_rag.index.passages import Row, SegmentChange, SegmentEntry, Transaction, metadata_of
from sidr_rag.index.segment import Segment

if TYPE_CHECKING:
    from sidr_rag.index.store import Store

OnConflict = Literal["replace", "error", "skip"]
_MOST_SEGMENTS = 64


@dataclass
class _Change:
    """What a write has done so far: nothing of it is visible before the commit."""

    transaction: Transaction
    next_seq: int
    added: list[SegmentView] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    buried: list[int] = field(default_factory=list)


class Writer:
    """The writing side of a store; its methods hold the store's write lock and the folder's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = None if store.folder is None else WriterLock(store.folder.lock)
        self._changing = False
        self._merger = Merger(self._merge_step)

    def add(self, rows: Iterable[Row], on_conflict: OnConflict) -> list[int]:
        """See `Store.add`."""
        if on_conflict not in get_args(OnConflict):
            raise InvalidInputError(f"on_conflict={on_conflict!r} is not known; choose 'replace', 'error' or 'skip'")
        with self._writing() as change:
            for block in in_blocks(iter(rows)):
                self._add_block(change, block, on_conflict)
        self._wake_merger()
        return change.buried

    def delete(self, ids: Sequence[str]) -> list[int]:
        """See `Store.delete`."""
        with self._writing() as change:
            change.buried = sorted(change.transaction.lookup(list(dict.fromkeys(ids))).values())
            change.transaction.delete(change.buried)
        self._wake_merger()
        return change.buried

    def compact(self) -> None:
        """See `Store.compact`."""
        with self._store.write_lock:
            index = self._acquire()
            while plan := plan_compaction([(v.segment.n_rows, v.n_live) for v in index.views]):
                old = index.views[slice(*plan)]
                self._put_in_place(old, self._merged(old))
                index = self._store.current()

    def end_merging(self) -> None:
        """Let the merge at work end, and start no other; not to be called with the write lock held."""
        self._merger.close()

    def close(self) -> None:
        """Give the folder's lock back; the merger has ended before."""
        if self._lock is not None:
            self._lock.release()

    def _acquire(self) -> BotIndex:
        """Become the folder's writer; returns the state to build on."""
        if self._store.read_only:
            raise ReadOnlyError("this store was opened with read_only=True; open it without to change it")
        if self._changing:
            raise SidrError("this store is being changed by the call that asks for another change; make one at a time")
        if isinstance(self._store.table, Database):
            self._store.table.check_in_place()
        first = self._lock is not None and not self._lock.held
        if self._lock is not None:
            self._lock.acquire()
        index = self._store.current()
        if first and self._store.folder is not None:
            self._store.folder.drop_unlisted({view.name for view in index.views})
        return index

    @contextlib.contextmanager
    def _writing(self) -> Iterator[_Change]:
        """One commit: everything done inside becomes visible at the end, or nothing does."""
        with self._store.write_lock, contextlib.ExitStack() as gate:
            index = self._acquire()
            change = _Change(self._store.table.begin(), index.next_seq)
            saved: list[str] = []
            self._changing = True
            try:
                index = self._mended(index, saved)
                yield change
                if not change.added and not change.buried:
                    change.transaction.rollback()
                    self._discard(saved)
                    return
                dead = np.array(sorted(change.buried), dtype=np.uint64)
                after = index.changed(
                    add=change.added, delete=dead, generation=index.generation + 1, next_seq=change.next_seq
                )
                gate.enter_context(FORK_GATE)  # a forked child finds rows and index of the same commit
                change.transaction.commit(
                    SegmentChange([_entry(v) for v in after.views], change.buried), after.next_seq
                )
            except BaseException:
                change.transaction.rollback()
                self._discard([*saved, *change.files])
                raise
            finally:
                self._changing = False
            self._store.rebuilt.clear()
            self._store.publish(after)

    def _mended(self, index: BotIndex, saved: list[str]) -> BotIndex:
        """The same state with rebuilt segments back on disk, under new names, for the coming commit to list."""
        for i, view in enumerate(index.views):
            if self._store.folder is not None and view.name in self._store.rebuilt:
                mended = SegmentView(*self._kept(view.segment), view.live)
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
        rows = [Row(seq, *row[1:]) for seq, row in enumerate(chosen.values(), start=change.next_seq)]
        seqs = np.arange(change.next_seq, change.next_seq + len(rows), dtype=np.uint64)
        counts = self._store.tokenizer.counts(r.content for r in rows)
        metadatas = (metadata_of(r.metadata) for r in rows)
        segment = build_segment(counts, seqs, self._store.settings.thresholds, metadatas)
        name = uuid.uuid4().hex
        if self._store.folder is not None:
            change.files.append(name)
            with Beside(lambda: self._on_disk(name, segment)) as written:
                change.transaction.insert(rows)
            segment = written.result()
        else:
            change.transaction.insert(rows)
        change.added.append(SegmentView(name, segment))
        change.next_seq += len(rows)

    def wait(self) -> None:
        """Return when no merge is at work or due."""
        self._merger.wait()

    def _wake_merger(self) -> None:
        self._merger.wake()
        if len(self._store.current().views) > _MOST_SEGMENTS:
            # Changes come faster than merges: searches must not pay for that.
            self._merger.wait()

    def _merge_step(self) -> bool:
        """Make the next merge that is due: built beside the readers and writers, then put in place in one commit."""
        index = self._store.published
        plan = plan_merge([(v.segment.n_rows, v.n_live) for v in index.views])
        if plan is None:
            return False
        old = index.views[slice(*plan)]
        merged = self._merged(old)
        with self._store.write_lock, FORK_GATE:
            self._put_in_place(old, merged)
        return True

    def _merged(self, old: Sequence[SegmentView]) -> SegmentView | None:
        """The living rows of neighbouring segments as one, on disk but not yet listed; None if there are none."""
        if not any(view.n_live for view in old):
            return None
        return SegmentView(*self._kept(merge_segments([(v.segment, v.live) for v in old])))

    def _kept(self, segment: Segment) -> tuple[str, Segment]:
        """A name for a new segment, and with a folder, the segment mapped from its file instead of held in memory."""
        name = uuid.uuid4().hex
        return name, self._on_disk(name, segment)

    def _on_disk(self, name: str, segment: Segment) -> Segment:
        """The segment mapped from its file, which is whole and on disk when this returns; without a folder, itself."""
        if self._store.folder is None:
            return segment
        path = self._store.folder.segment_file(name)
        segment.save(path)
        return Segment.open(path, own=True)

    def _put_in_place(self, old: Sequence[SegmentView], merged: SegmentView | None) -> None:
        """Commit a merge, unless its segments are no longer there; what was deleted meanwhile stays deleted."""
        index = self._store.published
        names = [view.name for view in index.views]
        start = names.index(old[0].name) if old[0].name in names else len(names)
        end = start + len(old)
        if names[start:end] != [view.name for view in old]:
            self._discard([] if merged is None else [merged.name])
            return
        dropped = [int(s) for v in old if v.live is not None for s in v.segment.seqs[~v.live]]
        if merged is not None:
            living = [v.segment.seqs if v.live is None else v.segment.seqs[v.live] for v in index.views[start:end]]
            dead = np.flatnonzero(~np.isin(merged.segment.seqs, np.concatenate(living), assume_unique=True))
            merged = merged.without(dead) if len(dead) else merged
        after = index.replaced(start, end, merged, index.generation + 1)
        try:
            transaction = self._store.table.begin()
            try:
                transaction.commit(SegmentChange([_entry(v) for v in after.views], settle=dropped), after.next_seq)
            except BaseException:
                transaction.rollback()
                raise
        except BaseException:
            self._discard([] if merged is None else [merged.name])
            raise
        self._store.publish(after)
        self._discard([view.name for view in old])

    def _discard(self, names: Sequence[str]) -> None:
        if self._store.folder is not None:
            for name in names:
                remove_quietly(self._store.folder.segment_file(name))


def _entry(view: SegmentView) -> SegmentEntry:
    seqs = view.segment.seqs
    return SegmentEntry(view.name, len(seqs), int(seqs[0]), int(seqs[-1]))
