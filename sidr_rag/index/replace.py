"""Rows that stand for whole sources: what is new is stored, what is gone is deleted, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.folder import in_blocks
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store

Stale = Callable[[BotIndex], Sequence[int]]
_BLOCK = 1000


@dataclass
class Replaced:
    """What one replacement did.

    Attributes:
        written: ids stored new, or in place of another text.
        unchanged: how many rows were stored already, letter for letter; they keep their place.
        removed: ids deleted because their source no longer has them.
    """

    written: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: list[str] = field(default_factory=list)


def replace_sources(store: Store, rows: Iterable[Row], stale: Stale) -> Replaced:
    """Store rows and delete what their sources held before and do not hold now, all or nothing.

    Args:
        store: where.
        rows: consumed once, in blocks; of equal ids the last wins.
        stale: called when the rows are consumed, with the state before the change: seqs of passages to delete, unless
            a row of the same id was given.

    Raises:
        ReadOnlyError, StoreLockedError: before any row is consumed.
        StorageError: if the disk refuses; nothing is then changed.
    """
    done = Replaced()
    given: set[str] = set()
    writer = store._writer
    with writer._writing() as change:
        before = store.current()
        for block in in_blocks(_changed(store, iter(rows), given, done)):
            writer._add_block(change, block, "replace")
            done.written.extend(row.id for row in block)
        gone = list(_not_given(store, stale(before), given))
        change.transaction.delete([row.seq for row in gone])
        change.buried.extend(row.seq for row in gone)
    writer._wake_merger()
    done.written = list(dict.fromkeys(done.written))
    done.removed = [row.id for row in gone]
    return done


def _changed(store: Store, rows: Iterator[Row], given: set[str], done: Replaced) -> Iterator[Row]:
    """The rows that differ from what is stored; the ids of all of them are noted."""
    for block in _parts(rows):
        seqs = store.lookup([row.id for row in block])
        stored = store.fetch(list(seqs.values()))
        for row in block:
            # An id that came before in these rows may stand in the transaction with another text by now.
            old = None if row.id in given else stored.get(seqs.get(row.id, -1))
            given.add(row.id)
            if old is not None and old[1:] == row[1:]:
                done.unchanged += 1
            else:
                yield row


def _parts(rows: Iterator[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == _BLOCK:
            yield part
            part = []
    if part:
        yield part


def _not_given(store: Store, seqs: Sequence[int], given: Collection[str]) -> Iterator[Row]:
    for start in range(0, len(seqs), _BLOCK):
        rows = store.fetch(seqs[start : start + _BLOCK])
        yield from (rows[seq] for seq in sorted(rows) if rows[seq].id not in given)
