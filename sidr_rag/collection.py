"""The passages of a store: added, deleted, fetched and kept; no model is needed for any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.passages import Row
from sidr_rag.index.snapshot import write_snapshot
from sidr_rag.index.store import Store
from sidr_rag.index.writer import OnConflict
from sidr_rag.inputs import as_count, ids_list, rows_of_columns, rows_of_passages
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.types import Passage

C = TypeVar("C", bound="Collection")
_CONTENT: Callable[[Row], str] = attrgetter("content")


class Collection:
    """What `SiDR` offers of its store without encoding anything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[str | None] | None = None,
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        titles: Iterable[str | None] | None = None,
        on_conflict: OnConflict = "replace",
        num_workers: int = 0,
    ) -> list[str]:
        """Index and store texts, all or none; searchable (and on disk, with a folder) when this returns.

        Args:
            texts: any iterable, consumed once in blocks, so that a stream of any length needs bounded memory.
            ids: as many as texts; of equal ids in one call the last wins.
            metadatas: as many as texts.
            titles: as many as texts.
            on_conflict: for an id that exists: "replace", "error" or "skip".
            num_workers: how many other processes count tokens; 0: none. They start when there are thousands of texts
                (about a third of a second of CPU each), and end with the call.

        Returns:
            The id of each text, in order.

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument and position; nothing of the call is then stored.
            StoreLockedError: if another process writes to the folder.
            StorageError: if the disk refuses.
            SidrError: if one of the other processes was ended from outside; nothing of the call is then stored.
        """
        if on_conflict not in ("replace", "error", "skip"):
            raise InvalidInputError(f"on_conflict={on_conflict!r} is not known; choose 'replace', 'error' or 'skip'")
        given: list[str] = []
        self._add(rows_of_columns(texts, ids, metadatas, titles, given), on_conflict, num_workers)
        return given

    def add_passages(
        self, passages: Iterable[Passage], *, on_conflict: OnConflict = "replace", num_workers: int = 0
    ) -> list[str]:
        """The same for `Passage` objects, such as `sidr_rag.files.read_passages` gives."""
        given: list[str] = []
        self._add(rows_of_passages(passages, given), on_conflict, num_workers)
        return given

    def _add(self, rows: Iterator[Row], on_conflict: OnConflict, num_workers: int) -> None:
        n_workers = as_count("num_workers", num_workers)
        tokenizer = self._store.tokenizer
        if n_workers and isinstance(tokenizer, BagTokenizer):
            from sidr_rag.text.workers import CountingWorkers

            with CountingWorkers[Row](tokenizer, n_workers) as workers, tokenizer.counting_with(workers):
                self._store.add(workers.ahead(rows, _CONTENT), on_conflict)
        else:
            self._store.add(rows, on_conflict)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete passages, all or none; unknown ids are ignored. Returns how many existed."""
        wanted = ids_list(ids)
        return len(self._store.delete(wanted)) if wanted else 0

    def get(self, ids: Iterable[str]) -> list[Passage]:
        """Passages by id, in the order asked for; missing ids are left out."""
        wanted = ids_list(ids)
        seqs, rows = self._found(wanted)
        for _ in range(10):
            if len(rows) == len(seqs):
                break
            seqs, rows = self._found(wanted)  # one was replaced between the two readings
        else:
            with self._store.frozen():
                seqs, rows = self._found(wanted)
        return [rows[seqs[i]].passage() for i in wanted if i in seqs and seqs[i] in rows]

    def _found(self, ids: list[str]) -> tuple[dict[str, int], dict[int, Row]]:
        seqs = self._store.lookup(ids)
        return seqs, self._store.fetch(list(seqs.values()))

    def ids(self) -> list[str]:
        """All ids, oldest first."""
        return self._store.ids()

    def __len__(self) -> int:
        return self._store.current().n_live

    def __bool__(self) -> bool:
        return True

    def __contains__(self, passage_id: object) -> bool:
        return isinstance(passage_id, str) and bool(self._store.lookup([passage_id]))

    def refresh(self) -> int:
        """Look for commits of other processes (every search does); returns the number of passages."""
        return self._store.current().n_live

    @property
    def path(self) -> Path | None:
        """The store's folder, or None for memory."""
        return None if self._store.folder is None else self._store.folder.path

    def save(self, path: str | Path) -> None:
        """Write a consistent snapshot to a folder, in one step: a new one, or an earlier snapshot of this store.

        A store that lives in that very folder is saved already.

        Raises:
            IndexFormatError: if the folder holds another store or other files.
            StorageError: if the disk refuses; the folder then has its old contents.
        """
        if self.path is not None and Path(path).resolve() == self.path.resolve():
            return
        write_snapshot(self._store, Path(path))

    def close(self) -> None:
        """Release the folder; with one, later calls raise."""
        self._store.close()

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
