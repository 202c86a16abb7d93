"""Several local stores as one: exact merging, with statistics of the whole corpus."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from sidr_rag.errors import IndexFormatError, InvalidInputError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.folder import in_blocks
from sidr_rag.index.passages import Row
from sidr_rag.index.segment import Segment
from sidr_rag.index.store import Store
from sidr_rag.index.writer import OnConflict

_SHIFT = 48  # seqs of one store stay below 2**48; the bits above are the shard's


class ShardedStore:
    """Stores in an order, as one: a seq is the shard's number and the seq in that shard.

    Shards hold different ids; `check_ids` tells. Searches see the segments of all shards as one index, with df and
    average length of all of them, so results are those of one store that holds every shard's passages in shard order.
    A passage that is replaced stays in its shard; a new one goes to the shard that has the fewest.

    Args:
        shards: at least one, of equal settings.

    Raises:
        InvalidInputError: if there are none, or their settings differ.
    """

    folder = None

    def __init__(self, shards: Sequence[Store]) -> None:
        if not shards:
            raise InvalidInputError("shards=[] is empty; give at least one folder")
        self.shards = tuple(shards)
        self.settings = shards[0].settings
        for i, shard in enumerate(shards):
            if (shard.settings.thresholds, shard.settings.fingerprint) != (
                self.settings.thresholds,
                self.settings.fingerprint,
            ):
                raise InvalidInputError(f"shards[{i}] keeps other levels or another tokenizer than shards[0]")
        self.tokenizer = shards[0].tokenizer
        self.read_only = any(shard.read_only for shard in shards)
        self.store_id = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._write = threading.RLock()
        self._joined: tuple[tuple[int, ...], BotIndex] | None = None
        self._shifted: dict[str, Segment] = {}
        self._n_states = 0

    # Reading

    def current(self) -> BotIndex:
        """The shards' last commits as one state."""
        with self._lock:
            states = [shard.current() for shard in self.shards]
            generations = tuple(state.generation for state in states)
            if self._joined is None or self._joined[0] != generations:
                self._n_states += 1
                self._joined = generations, self._join(states)
            return self._joined[1]

    @property
    def published(self) -> BotIndex:
        """The state that searches see."""
        return self.current()

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """Rows by seq; those deleted since are left out."""
        by_shard: dict[int, list[int]] = defaultdict(list)
        for seq in seqs:
            by_shard[int(seq) >> _SHIFT].append(int(seq) & ((1 << _SHIFT) - 1))
        rows = {}
        for number, own in by_shard.items():
            for seq, row in self.shards[number].fetch(own).items():
                rows[self._seq(number, seq)] = Row(self._seq(number, seq), *row[1:])
        return rows

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """Seqs by id; unknown ids are left out."""
        return {
            i: self._seq(number, seq)
            for number, shard in enumerate(self.shards)
            for i, seq in shard.lookup(ids).items()
        }

    def ids(self) -> list[str]:
        """All ids in seq order."""
        return [i for shard in self.shards for i in shard.ids()]

    def scan(self) -> Iterator[Row]:
        """All rows in seq order."""
        for number, shard in enumerate(self.shards):
            for row in shard.scan():
                yield Row(self._seq(number, row.seq), *row[1:])

    # Writing

    def add(self, rows: Iterable[Row], on_conflict: OnConflict = "replace") -> list[int]:
        """Store rows in blocks of 20,000; within a block, each shard's part is all or nothing.

        Returns:
            Seqs of the passages that were replaced.
        """
        replaced: list[int] = []
        with self._write:
            for block in in_blocks(iter(rows)):
                replaced += self._add_block(block, on_conflict)
        return replaced

    def delete(self, ids: Sequence[str]) -> list[int]:
        """Delete passages, shard by shard; returns the seqs of those that existed."""
        with self._write:
            return sorted(
                self._seq(number, seq)
                for number, shard in enumerate(self.shards)
                if (own := list(shard.lookup(ids)))
                for seq in shard.delete(own)
            )

    def compact(self) -> None:
        """Compact every shard."""
        for shard in self.shards:
            shard.compact()

    def wait(self) -> None:
        """Return when no background merge is at work in any shard."""
        for shard in self.shards:
            shard.wait()

    def purge(self) -> None:
        """Overwrite what deleted passages have left in every shard."""
        for shard in self.shards:
            shard.purge()

    @property
    def _writer(self) -> NoReturn:  # what `uploads` changes a local store through
        raise InvalidInputError("files are added to one folder's store, not to several as one: open the one to change")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[BotIndex]:
        """Hold the writers of every shard while a consistent copy is made."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._write)
            for shard in self.shards:
                held.enter_context(shard.frozen())
            yield self.current()

    def close(self) -> None:
        """Release every shard."""
        for shard in self.shards:
            shard.close()

    # Inside

    @staticmethod
    def _seq(number: int, seq: int) -> int:
        return number << _SHIFT | seq

    def _join(self, states: Sequence[BotIndex]) -> BotIndex:
        views = []
        kept: dict[str, Segment] = {}
        for number, state in enumerate(states):
            for view in state.views:
                name = f"{number}.{view.name}"
                segment = view.segment
                if number:
                    segment = self._shifted.get(name) or replace(
                        segment, seqs=segment.seqs + np.uint64(number << _SHIFT)
                    )
                    kept[name] = segment
                views.append(SegmentView(name, segment, view.live))
        self._shifted = kept
        return BotIndex(
            self.settings.dim,
            tuple(views),
            sum((state.df for state in states), np.zeros(self.settings.dim, np.int64)),
            sum(state.n_live for state in states),
            sum(state.total_length for state in states),
            self._n_states,
            self._seq(len(states) - 1, states[-1].next_seq),
        )

    def _add_block(self, block: Sequence[Row], on_conflict: OnConflict) -> list[int]:
        ids = list(dict.fromkeys(row.id for row in block))
        homes = {i: number for number, shard in enumerate(self.shards) for i in shard.lookup(ids)}
        if on_conflict == "error":
            _refuse_conflicts(block, homes)
        fewest = min(range(len(self.shards)), key=lambda number: self.shards[number].current().n_live)
        parts: dict[int, list[Row]] = defaultdict(list)
        for row in block:
            parts[homes.get(row.id, fewest)].append(row)
        return [
            self._seq(number, seq)
            for number in sorted(parts)
            for seq in self.shards[number].add(parts[number], on_conflict)
        ]

    def check_ids(self) -> None:
        """Read every id once and refuse shards that share one: a replacement would leave the other passage.

        Raises:
            IndexFormatError: naming the shards and the id.
        """
        homes: dict[str, int] = {}
        for number, shard in enumerate(self.shards):
            for i in shard.ids():
                if homes.setdefault(i, number) != number:
                    raise IndexFormatError(
                        f"shards[{homes[i]}] and shards[{number}] both hold a passage with id {i!r}; delete one"
                    )


def _refuse_conflicts(block: Sequence[Row], homes: Mapping[str, int]) -> None:
    if homes:
        raise InvalidInputError(
            f"ids: {len(homes)} of them exist, the first is {next(iter(homes))!r}; use on_conflict='replace' or 'skip'"
        )
    seen: set[str] = set()
    for row in block:
        if row.id in seen:
            raise InvalidInputError(f"ids: {row.id!r} is given twice; make ids distinct or use on_conflict='replace'")
        seen.add(row.id)
