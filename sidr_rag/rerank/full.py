"""Full search, and the way there: which passages have their V_theta, and the parametric index of those that do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.fork_lock import ForkLock
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.embedding_index import EmbeddingParts
from sidr_rag.index.store import StaleStateError, Store
from sidr_rag.rerank.cache import Vector, content_key
from sidr_rag.rerank.first import allowed_live
from sidr_rag.rerank.late import DenseEmbedder, PassageEmbedder
from sidr_rag.search.filters import Filter
from sidr_rag.search.searcher import SearchPool, SeqHits
from sidr_rag.types import SparseVectors

FEW_MISSING = 32
"""So many passages without V_theta does `search="auto"` embed within a search, rather than leave full search."""

_BLOCK = 1024
_STEP = 32
_SAMPLE = 32


class FullSearch:
    """The parametric index of a store, kept up with it.

    Args:
        store: the passages.
        embedder: V_theta of passages.
        dense: vectors of the model's dense head, if it has one: embedded as well, for its own way of re-ranking.
        pool: threads.
    """

    def __init__(self, store: Store, embedder: PassageEmbedder, dense: DenseEmbedder | None, pool: SearchPool) -> None:
        self._store = store
        self._embedder = embedder
        self._dense = dense
        self._pool = pool
        self._lock = ForkLock()  # of whoever makes a new index; the last one is read without it
        self._nothing = EmbeddingParts(-1, store.settings.dim)
        self._kept: tuple[EmbeddingParts, frozenset[str]] = (self._nothing, frozenset())

    @property
    def nbytes(self) -> int:
        """Bytes of the parametric index in memory."""
        return self._kept[0].nbytes

    def hits(self, vectors: SparseVectors, k: int, condition: Filter | None, index: BotIndex) -> list[SeqHits]:
        """The k best live passages of each query by <query, V_theta(p)>, embedding what is missing.

        Raises:
            StaleStateError: if a passage of the state was deleted before it was embedded.
        """
        if not k or not len(vectors):
            return [(np.empty(0, np.uint64), np.empty(0, np.float32)) for _ in range(len(vectors))]
        parts = self.index(index)
        allowed = None if condition is None else index.live_seqs()[allowed_live(index, condition)]
        if len(vectors) == 1:
            return [parts.search(vectors.row(0), k, allowed, self._pool)]
        return self._pool.map(lambda i: parts.search(vectors.row(i), k, allowed), range(len(vectors)))

    def index(self, index: BotIndex) -> EmbeddingParts:
        """The parametric index of a state, embedding what is missing.

        Raises:
            StaleStateError: if a passage of the state was deleted before it was embedded.
        """
        parts, _ = self._kept
        if parts.generation == index.generation:
            return parts
        with self._lock:
            parts, _ = self._kept
            if parts.generation != index.generation:
                forgotten = self._embedder.cache.n_forgotten
                parts = self._start(index).changed(index.generation, index.live_seqs(), self._vectors)
                self._kept = parts, frozenset(view.name for view in index.views)
                self._mark(index.next_seq, forgotten)
            return parts

    def is_near(self, index: BotIndex) -> bool:
        """Whether full search can answer at once: at most `FEW_MISSING` passages lack V_theta."""
        live = index.live_seqs()
        parts = self._start(index)
        if parts.parts:
            return len(parts.lacking(live)) <= FEW_MISSING
        until = self._embedder.cache.embedded_until
        n_done = int(np.searchsorted(live, until))
        if len(live) - n_done > FEW_MISSING:
            return False
        # The mark speaks of what was embedded once; a look at some passages tells whether it is there still.
        places = np.unique(np.linspace(0, n_done - 1, _SAMPLE).astype(np.int64)) if n_done else np.empty(0, np.int64)
        rows = self._store.fetch(live[places].tolist())
        keys = list({content_key(row.content) for row in rows.values()})
        return self._embedder.space.has(keys) == len(keys)

    def embed(self, progress: Callable[[int, int], None], step: Callable[[], bool]) -> int:
        """Embed what is missing, oldest first; passages that are added meanwhile as well.

        Args:
            progress: is told (passages done, passages there are) now and then.
            step: called before each small batch; False ends the work.

        Returns:
            how many passages there are, all embedded; or how many are, if `step` ended it.
        """
        for _ in range(10):
            index = self._store.current()
            live = index.live_seqs()
            done = self._embed_missing(index, live, progress, step)
            if done < len(live):
                return done
            try:
                parts = self.index(self._store.current())
            except StaleStateError:
                continue
            progress(len(parts.seqs), len(parts.seqs))
            return len(parts.seqs)
        with self._store.frozen() as index:
            return len(self.index(index).seqs)

    def _embed_missing(
        self, index: BotIndex, live: NDArray[np.uint64], progress: Callable[[int, int], None], step: Callable[[], bool]
    ) -> int:
        """Fill the cache; returns how many of the passages have been seen to."""
        forgotten = self._embedder.cache.n_forgotten
        done = len(live)
        if len(self._start(index).lacking(live)):
            done = int(np.searchsorted(live, self._embedder.cache.embedded_until))
        progress(done, len(live))
        for start in range(done, len(live), _STEP):
            if not step():
                return start
            seqs = live[start : start + _STEP]
            rows = self._store.fetch(seqs.tolist())
            contents = [row.content for row in rows.values()]
            self._embedder.vectors(contents)
            if self._dense is not None:
                self._dense.vectors(contents)
            self._mark(int(seqs[-1]) + 1, forgotten)
            progress(min(start + _STEP, len(live)), len(live))
        return len(live)

    def _mark(self, until: int, forgotten: int) -> None:
        """Note how far the embeddings reach, unless the cache's bound has cost some of them meanwhile."""
        if self._embedder.cache.n_forgotten == forgotten:
            self._embedder.cache.mark_embedded(until)

    def _start(self, index: BotIndex) -> EmbeddingParts:
        """The index as it is, if the state follows from the one that it was made for."""
        # A store that was overwritten gives old seqs to new passages; none of its segments is known then.
        parts, names = self._kept
        return self._nothing if names.isdisjoint(view.name for view in index.views) else parts

    def _vectors(self, seqs: NDArray[np.uint64]) -> Iterator[tuple[int, Vector]]:
        wanted = seqs.tolist()
        for i in range(0, len(wanted), _BLOCK):
            part = wanted[i : i + _BLOCK]
            yield from zip(part, self._embedder.vectors(list(contents_of(self._store, part))), strict=True)


def contents_of(store: Store, seqs: Sequence[int]) -> Iterable[str]:
    """The texts of passages, in the order of their seqs given.

    Raises:
        StaleStateError: if one is gone.
    """
    for i in range(0, len(seqs), _BLOCK):
        part = seqs[i : i + _BLOCK]
        rows = store.fetch(part)
        if len(rows) < len(part):
            raise StaleStateError("a passage was deleted before it was read")
        yield from (rows[seq].content for seq in part)
