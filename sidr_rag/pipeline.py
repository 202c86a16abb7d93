"""One search from query to results: encode, first stage, second stage, passages, all of one consistent state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from sidr_rag.costs import Ledger, clocked, note
from sidr_rag.encoder import Encoder
from sidr_rag.errors import IndexFormatError
from sidr_rag.fork_gate import FORK_GATE
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.passages import Row
from sidr_rag.index.store import StaleStateError, Store
from sidr_rag.request import FilledRequest
from sidr_rag.request import Request as Request
from sidr_rag.request import SearchArguments as SearchArguments
from sidr_rag.rerank.first import FirstStages
from sidr_rag.rerank.full import FullSearch, contents_of
from sidr_rag.rerank.fusion import first_stage_of
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.rerank.queries import Queries
from sidr_rag.rerank.second import Scoring, SecondStages
from sidr_rag.search.beta import BetaKernel
from sidr_rag.search.filters import Filter
from sidr_rag.search.searcher import SearchPool, SeqHits
from sidr_rag.search.weighting import BINARY, Weighting, idf
from sidr_rag.types import SearchResult, SparseVectors

Found: TypeAlias = "tuple[list[SeqHits], dict[int, Row], BotIndex]"
"""Hits, the rows they name by seq, and the state that was searched."""

AUTO_RERANK = 20
"""What `search="auto"` re-ranks before everything is embedded, where `rerank` does not say."""
AUTO_RERANK_EMBEDDED = 100
"""The same afterwards, for a model with a dense head: its re-ranking is better than full search, and all is at hand."""


class Pipeline:
    """Ties a store to its encoder and the stages of a search; costs are booked in `ledger`, its own by default."""

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        embedder: PassageEmbedder,
        weighting: Weighting,
        pool: SearchPool,
        kernel: BetaKernel,
        ledger: Ledger | None = None,
        device: str = "cpu",
    ) -> None:
        self.store = store
        self.encoder = encoder
        self.embedder = embedder
        self.weighting = weighting
        self.ledger = ledger or Ledger()
        self.first = FirstStages(encoder, weighting, pool, kernel, lambda seqs: contents_of(store, seqs), device)
        self.second = SecondStages(encoder, embedder)
        self.full = FullSearch(store, embedder, self.second.dense, pool)

    def run(self, queries: Sequence[str], request: Request) -> list[list[SearchResult]]:
        """Results of every query; the passages returned are those that were scored."""
        with FORK_GATE, self.ledger.booking():
            note(searches=len(queries))
            return self._run(queries, self.settled(request))

    def run_vectors(
        self, vectors: SparseVectors, k: int, condition: Filter | None
    ) -> tuple[list[SeqHits], dict[int, Row]]:
        """Hits of the paper's binary beta search, and the rows they name."""
        with FORK_GATE:
            hits, rows, _ = self._consistent(lambda index: self.first.beta(vectors, BINARY, k, condition, index))
            return hits, rows

    def asked(self, queries: Sequence[str], request: Request) -> Queries:
        """The queries of a request, for the stages to encode."""
        return Queries(
            queries,
            self.encoder,
            self.store.settings.dim,
            request.representation,
            request.max_active_dims,
            binary=request.search == "beta" and self.weighting == BINARY,
            tokens=bool(request.rerank) and self.second.compares_tokens(request.reranker),
        )

    def embed_all(
        self, progress: Callable[[int, int], None] = lambda done, total: None, step: Callable[[], bool] = lambda: True
    ) -> int:
        """Embed what is not embedded yet; see `FullSearch.embed`."""
        with self.ledger.booking():
            return self.full.embed(progress, step)

    def settled(self, request: Request) -> Request:
        """What "auto" stands for at the moment: beta and late, by both heads once all is embedded; or full search."""
        if request.search != "auto":
            return request
        embedded = self.full.is_near(self.store.current())
        if embedded and self.second.dense is None:
            return replace(request, search="full", rerank=0)
        if not embedded:
            return replace(request, search="beta", rerank=request.rerank or AUTO_RERANK)
        reranker = "both" if request.reranker is None else request.reranker
        m = request.rerank or AUTO_RERANK_EMBEDDED
        return FilledRequest.like(replace(request, search="beta", rerank=m, reranker=reranker))

    # Inside

    def _run(self, queries: Sequence[str], request: Request) -> list[list[SearchResult]]:
        asked = self.asked(queries, request)
        hits, rows, index = self._consistent(lambda index: self._hits(asked, request, index))
        if request.rerank and request.k:
            with clocked("second_stage"):
                scoring = self.second.scoring(
                    request.reranker,
                    asked,
                    lambda theta: self.first.weighed(theta, asked.bags, index),
                    lambda dims: idf(index.df[dims], index.n_live),
                )
                return self._reranked(scoring, hits, rows, request)
        first = request.search == "beta"
        return [
            [
                SearchResult(rows[int(seq)].passage(), float(score), rank, float(score) if first else None)
                for rank, (seq, score) in enumerate(zip(seqs[: request.k], scores, strict=False), start=1)
            ]
            for seqs, scores in hits
        ]

    def _hits(self, queries: Queries, request: Request, index: BotIndex) -> list[SeqHits]:
        # What is encoded or embedded meanwhile is booked under its own name.
        with clocked("first_stage"):
            if request.search == "beta":
                stage = first_stage_of(request.first_stage)
                m = max(request.k, request.rerank)
                hits = self.first.hits(stage, queries, m, request.filter, index, request.weight_floor)
                if isinstance(request, FilledRequest):
                    hits = self._filled(hits, queries, request, index)
            else:
                weights = self.first.weighed(queries.represented, queries.bags, index)
                hits = self.full.hits(weights, request.k, request.filter, index)
        least = request.min_score
        if least is not None:
            hits = [(seqs[scores >= least], scores[scores >= least]) for seqs, scores in hits]
        return hits

    def _filled(self, hits: list[SeqHits], queries: Queries, request: Request, index: BotIndex) -> list[SeqHits]:
        """Hits with the best of full search after those of queries that have fewer than k; their own score is 0."""
        short = [i for i, (seqs, _) in enumerate(hits) if len(seqs) < min(request.k, index.n_live)]
        if not short:
            return hits
        weights = self.first.weighed(queries.theta, queries.bags, index)
        rows = SparseVectors.from_rows([weights.row(i) for i in short], weights.dim)
        filled = list(hits)
        for i, (found, _) in zip(short, self.full.hits(rows, request.k, request.filter, index), strict=True):
            seqs, scores = hits[i]
            more = found[~np.isin(found, seqs)][: request.k - len(seqs)]
            filled[i] = np.concatenate([seqs, more]), np.concatenate([scores, np.zeros(len(more), np.float32)])
        return filled

    def _consistent(self, search: Callable[[BotIndex], list[SeqHits]]) -> Found:
        """Hits with the rows they name; searched again where a found passage was deleted before it was read."""
        for _ in range(10):
            index = self.store.current()
            try:
                hits, rows = self._with_rows(search(index))
            except StaleStateError:
                continue
            if rows is not None:
                return hits, rows, index
        # Every attempt lost a passage to a deletion: let this object's writers wait once.
        with self.store.frozen() as index:
            hits, rows = self._with_rows(search(index))
        if rows is None:
            # `frozen` has seen that nothing changed meanwhile.
            where = self.store.folder.database if self.store.folder else "this store"
            raise IndexFormatError(f"{where}: lacks passages that its index holds; restore it from a copy")
        return hits, rows, index

    def _with_rows(self, hits: list[SeqHits]) -> tuple[list[SeqHits], dict[int, Row] | None]:
        wanted = sorted({int(s) for seqs, _ in hits for s in seqs})
        with clocked("fetch"):
            rows = self.store.fetch(wanted)
        return hits, rows if len(rows) == len(wanted) else None

    @staticmethod
    def _reranked(
        scoring: Scoring, hits: list[SeqHits], rows: dict[int, Row], request: Request
    ) -> list[list[SearchResult]]:
        results = []
        for i, (seqs, scores) in enumerate(hits):
            candidates = [rows[int(s)] for s in seqs]
            head = candidates[: request.rerank]
            second = scoring(i, head, scores[: len(head)]) if head else np.empty(0, np.float64)
            order = np.lexsort((np.arange(len(head)), -second))
            ranked = [
                SearchResult(head[j].passage(), float(second[j]), rank, float(scores[j]), reranked=True)
                for rank, j in enumerate(order.tolist(), start=1)
            ]
            ranked += [
                SearchResult(candidates[j].passage(), float(scores[j]), j + 1, float(scores[j]))
                for j in range(len(head), len(candidates))
            ]
            results.append(ranked[: request.k])
        return results
