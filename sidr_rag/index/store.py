"""The store: passages and their bag-of-tokens index, changed together by one writer and read by many."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sidr_rag.errors import IndexFormatError, SidrError
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.database import Database
from sidr_rag.index.folder import Folder, StoreSettings, load_segment, rebuild_segment
from sidr_rag.index.passages import (
    MemoryTable,
    PassageTable,
    Row,
)
from sidr_rag.index.writer import OnConflict, Writer
from sidr_rag.protocols import Tokenizer


class StaleStateError(SidrError):
    """A part of a state is no longer to be had, because a newer one was committed; take that one."""


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
        self.tokenizer = tokenizer
        self.table = table
        self._write = threading.RLock()
        self._load = threading.Lock()
        self._pid = os.getpid()
        self._writer = Writer(self)
        self.rebuilt: set[str] = set()
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
        folder.create(settings)
        folder.finish(store_id)
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
                    f"{folder.database}: made with tokenizer {settings.fingerprint} "
                    f"(normalization {settings.normalization!r}), opened with {tokenizer.fingerprint} "
                    f"({tokenizer.normalization!r}); open it with the model it was made for"
                )
            if settings.dim != tokenizer.vocabulary.dim:
                raise IndexFormatError(
                    f"{folder.database}: has {settings.dim} dimensions, and its tokenizer {tokenizer.vocabulary.dim}"
                )
            return cls(settings, tokenizer, database, folder, read_only=read_only)
        except BaseException:
            database.close()
            raise

    @property
    def write_lock(self) -> threading.RLock:
        """Held by whoever changes the store, one at a time."""
        self._renew_after_fork()
        return self._write

    # Reading

    @property
    def published(self) -> BotIndex:
        """The state that searches of this object see; for its writer, the last commit."""
        return self._index

    def current(self) -> BotIndex:
        """The index state of the last commit, also of other processes."""
        if self.folder is None:
            return self._index
        self._renew_after_fork()
        while self.table.generation() != self._index.generation:
            with self._load:
                self._reload()
        return self._index

    def fetch(self, seqs: Sequence[int]) -> dict[int, Row]:
        """Rows by seq; those deleted since are left out."""
        return self.table.fetch(seqs)

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """Seqs by id; unknown ids are left out."""
        return self.table.lookup(ids)

    def ids(self) -> list[str]:
        """All ids in seq order."""
        return self.table.ids()

    def scan(self) -> Iterator[Row]:
        """All rows in seq order."""
        return self.table.scan()

    # Writing

    def add(self, rows: Iterable[Row], on_conflict: OnConflict = "replace") -> list[int]:
        """Index and store rows (their seqs are given here), all or none.

        Args:
            rows: consumed once, in blocks; of equal ids in one call the last wins ("skip": the first).
            on_conflict: what to do with an id that exists: "replace" it, raise an "error", or "skip" the new row.

        Returns:
            Seqs of the passages that were replaced.
        """
        return self._writer.add(rows, on_conflict)

    def delete(self, ids: Sequence[str]) -> list[int]:
        """Delete passages, all or none; returns the seqs of those that existed."""
        return self._writer.delete(ids)

    def compact(self) -> None:
        """Merge neighbours as far as segments may grow, and drop every tombstone."""
        self._writer.compact()

    def wait(self) -> None:
        """Return when no background merge is at work or due."""
        self._writer.wait()

    def purge(self) -> None:
        """Overwrite what deleted passages have left in the database file."""
        with self.write_lock:
            if isinstance(self.table, Database):
                self.table.purge()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[BotIndex]:
        """Hold this object's writers while a consistent copy is made.

        Raises:
            SidrError: at the end, if another process changed the store meanwhile: the copy is then not to be used.
        """
        with self.write_lock:
            index = self.current()
            yield index
            if self.folder is not None and self.table.generation() != index.generation:
                raise SidrError("another process changed the store while it was being copied; try again")

    def close(self) -> None:
        """Release the folder; later calls raise."""
        self._writer.end_merging()
        with self.write_lock:
            self.table.close()
            self._writer.close()

    # Inside

    def _renew_after_fork(self) -> None:
        """Give a forked child locks of its own: another thread of its parent may have held the old ones."""
        if self._pid != os.getpid():
            self._write, self._load, self._pid = threading.RLock(), threading.Lock(), os.getpid()

    def _reload(self) -> None:
        assert isinstance(self.table, Database)
        assert self.folder is not None
        state = self.table.state()
        if state.generation == self._index.generation:
            return
        if state.generation < self._index.generation:
            raise IndexFormatError(f"{self.folder.database}: is older than it was; open the store again")
        known = {view.name: SegmentView(view.name, view.segment) for view in self._index.views}
        tombstones = np.array(state.tombstones, dtype=np.uint64)
        views = []
        for entry in state.segments:
            view = known.get(entry.name)
            if view is None:
                view, fault = load_segment(self.folder, entry, self.settings)
                if view is None:
                    if self.table.generation() != state.generation:
                        return  # merged away while we looked; the caller looks again
                    warnings.warn(f"{fault}; rebuilding it from the stored passages", RuntimeWarning, stacklevel=2)
                    view = rebuild_segment(entry, self.settings, self.table, self.tokenizer)
                    self.rebuilt.add(view.name)
            dead = view.segment.rows_of(tombstones)
            if view.segment.n_rows:
                views.append(view.without(dead) if len(dead) else view)
        self._index = BotIndex.of(self.settings.dim, views, state.generation, state.next_seq)

    def publish(self, index: BotIndex) -> None:
        """Make a committed state the one that searches see; an older one changes nothing."""
        with self._load:
            if index.generation > self._index.generation:
                self._index = index
