"""Searches of an engine's collection: candidates from the engine, everything after them by the library's pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sidr_rag.backends.candidates import best_of, find_candidates
from sidr_rag.backends.ledger import Sums
from sidr_rag.backends.remote_store import RemoteStore
from sidr_rag.encoder import Encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.passages import Row
from sidr_rag.pipeline import AUTO_RERANK, Found, Pipeline, Request
from sidr_rag.rerank.bm25 import Bm25
from sidr_rag.rerank.first import FirstStages
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.rerank.queries import Queries
from sidr_rag.search.filters import Filter
from sidr_rag.search.searcher import SearchPool, SeqHits
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors


@dataclass(frozen=True)
class RemoteIndex(BotIndex):
    """The statistics of a collection in the place of an index state, and what one search has found in it.

    Attributes:
        sums: the statistics as the ledger has them.
        rows: by seq; filled by the search.
    """

    sums: Sums | None = None
    rows: dict[int, Row] = field(default_factory=dict)

    @classmethod
    def at(cls, store: RemoteStore) -> RemoteIndex:
        """Of the collection as it is now."""
        sums = store.statistics()
        return cls(store.settings.dim, (), sums.df, sums.passages, sums.length, sums=sums)


class RemoteFirstStages(FirstStages):
    """First stages whose candidates an engine finds."""

    def __init__(self, store: RemoteStore, encoder: Encoder, weighting: Weighting, pool: SearchPool) -> None:
        super().__init__(encoder, weighting, pool, "auto", store.unavailable)
        self._store = store

    def beta(
        self, vectors: SparseVectors, weighting: Weighting, k: int, condition: Filter | None, index: BotIndex
    ) -> list[SeqHits]:
        """Exact beta search of query vectors with a filter applied before the cut."""
        assert isinstance(index, RemoteIndex)
        assert index.sums is not None
        found = find_candidates(self._store, index.sums, vectors, weighting, k, condition)
        index.rows.update((record.row.seq, record.row) for record in found.records)
        return best_of(found.index, vectors, weighting, k, condition)

    def _bm25_hits(
        self, stage: Bm25, queries: Queries, k: int, condition: Filter | None, index: BotIndex
    ) -> list[SeqHits]:
        raise InvalidInputError(
            f"first_stage='bm25' needs every text at hand, which {self._store.backend.name} keeps; "
            "use first_stage='sidr' or 'lexical'"
        )


class RemotePipeline(Pipeline):
    """The pipeline over a collection; full and alpha search are refused, and "auto" is beta and late."""

    def __init__(
        self, store: RemoteStore, encoder: Encoder, embedder: PassageEmbedder, weighting: Weighting, pool: SearchPool
    ) -> None:
        shared: Any = store
        super().__init__(shared, encoder, embedder, weighting, pool, "auto")
        self._remote = store
        self.first = RemoteFirstStages(store, encoder, weighting, pool)

    def settled(self, request: Request) -> Request:
        """What "auto" stands for.

        Raises:
            InvalidInputError: for full and alpha search, which need V_theta of every passage.
        """
        if request.search in ("full", "alpha"):
            self._refuse(f"search={request.search!r}")
        if request.search == "auto":
            return replace(request, search="beta", rerank=request.rerank or AUTO_RERANK)
        return request

    def embed_all(
        self, progress: Callable[[int, int], None] = lambda done, total: None, step: Callable[[], bool] = lambda: True
    ) -> int:
        """Refused: a collection holds no embeddings.

        Raises:
            InvalidInputError: always.
        """
        self._refuse("embed()")

    def _consistent(self, search: Callable[[BotIndex], list[SeqHits]]) -> Found:
        index = RemoteIndex.at(self._remote)
        return search(index), index.rows, index  # the very rows that were scored

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidInputError(
            f"{what} needs the embedding of every passage, which {self._remote.backend.name} does not hold; "
            "use search='beta' with rerank=100"
        )
