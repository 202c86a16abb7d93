"""One search from query to results: encode, first stage, second stage, passages, all of one consistent state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder import Encoder
from sidr_rag.errors import IndexFormatError, InvalidInputError, InvalidTypeError
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.index.embedding_index import EmbeddingIndex
from sidr_rag.index.passages import Row
from sidr_rag.index.store import StaleStateError, Store
from sidr_rag.inputs import as_count
from sidr_rag.protocols import Reranker
from sidr_rag.rerank.cache import Vector
from sidr_rag.rerank.late import PassageEmbedder, blend_scores
from sidr_rag.search.filters import Filter, parse_filter
from sidr_rag.search.searcher import KernelChoice, SearchPool, SeqHits, check_weights, search_index
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries
from sidr_rag.types import SearchResult, SparseVectors

_SEARCHES = ("beta", "full", "alpha")
_REPRESENTATIONS = ("theta", "lex", "bin", "bot")
_FIRST_STAGES = ("sidr", "lexical")
_NONE = np.empty(0, np.bool_)
_RERANKERS = ("theta", "blend")


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of `SiDR.search`."""

    k: int
    search: str
    rerank: int
    filter: Mapping[str, Any] | None
    min_score: float | None
    first_stage: str
    reranker: str | Reranker | None
    query_repr: str
    max_active_dims: int | None


@dataclass(frozen=True)
class Request:
    """What one search asks for; checked when made.

    Raises:
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
    """

    k: int = 10
    search: str = "beta"
    rerank: int = 0
    filter: Filter | None = None
    min_score: float | None = None
    first_stage: str = "sidr"
    reranker: str | Reranker | None = None
    query_repr: str = "theta"
    max_active_dims: int | None = None

    @classmethod
    def of(cls, *, filter: Mapping[str, Any] | None, **values: Any) -> Request:
        """Check the arguments of `SiDR.search`."""
        values["k"] = as_count("k", values["k"])
        values["rerank"] = as_count("rerank", values["rerank"])
        if values["max_active_dims"] is not None:
            values["max_active_dims"] = as_count("max_active_dims", values["max_active_dims"], least=1)
        _one_of("search", values["search"], _SEARCHES)
        _one_of("first_stage", values["first_stage"], _FIRST_STAGES)
        _one_of("query_repr", values["query_repr"], _REPRESENTATIONS)
        reranker = values["reranker"]
        if isinstance(reranker, str):
            _one_of("reranker", reranker, _RERANKERS)
        elif reranker is not None and not callable(getattr(reranker, "rerank", None)):
            raise InvalidTypeError(
                f"reranker is a {type(reranker).__name__}; give one of {_RERANKERS} or an object with a rerank method"
            )
        least = values["min_score"]
        if least is not None and (isinstance(least, bool) or not isinstance(least, (int, float)) or least != least):
            raise InvalidInputError(f"min_score={least!r} must be a number or None")
        if values["search"] != "beta" and values["rerank"]:
            raise InvalidInputError(
                f"rerank={values['rerank']} needs search='beta'; {values['search']!r} scores every passage"
            )
        return cls(filter=parse_filter(filter), **values)


class Pipeline:
    """Ties a store to its encoder; holds no state but the parametric index of full search."""

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        embedder: PassageEmbedder,
        weighting: Weighting,
        pool: SearchPool,
        kernel: KernelChoice,
    ) -> None:
        self.store = store
        self.encoder = encoder
        self.embedder = embedder
        self.weighting = weighting
        self._pool = pool
        self._kernel = kernel
        self._embedding: EmbeddingIndex | None = None
        self._embedding_lock = threading.Lock()

    def run(self, queries: Sequence[str], request: Request) -> list[list[SearchResult]]:
        """Results of every query; the passages returned are those that were scored."""
        encoded = self._encode(queries, request)
        hits, rows = self._consistent(lambda index: self._hits(encoded, request, index))
        if request.rerank and request.k:
            return self._reranked(queries, self._second_vectors(queries, encoded[0], request), hits, rows, request)
        beta = request.search == "beta"
        return [
            [
                SearchResult(rows[int(seq)].passage(), float(score), rank, float(score) if beta else None)
                for rank, (seq, score) in enumerate(zip(seqs[: request.k], scores, strict=False), start=1)
            ]
            for seqs, scores in hits
        ]

    def run_vectors(
        self, vectors: SparseVectors, k: int, condition: Filter | None
    ) -> tuple[list[SeqHits], dict[int, Row]]:
        """Hits of the paper's binary beta search, and the rows they name."""
        return self._consistent(lambda index: self.first_stage(vectors, BINARY, k, condition, index))

    def weighed(self, encoded: SparseVectors, own: SparseVectors, index: BotIndex) -> SparseVectors:
        """w(t) of the scoring contract for this store's weighting and corpus."""
        return weigh_queries(encoded, own, self.weighting, index.df, index.n_live)

    def first_stage(
        self, vectors: SparseVectors, weighting: Weighting, k: int, condition: Filter | None, index: BotIndex
    ) -> list[SeqHits]:
        """Exact beta search of query vectors with a filter applied before the cut."""
        allowed = None if condition is None else lambda view: view.segment.columns.mask(condition)
        return search_index(index, vectors, weighting, k, allowed=allowed, pool=self._pool, kernel=self._kernel)

    def embedding_index(self, index: BotIndex) -> EmbeddingIndex:
        """V_theta of every live passage of a state, made now where it is missing."""
        with self._embedding_lock:
            if self._embedding is None or self._embedding.generation != index.generation:
                self._embedding = EmbeddingIndex.build(index.generation, index.dim, self._embedded(index))
            return self._embedding

    def embed_all(self) -> int:
        """Embed what is not embedded yet; returns how many passages there are."""
        for _ in range(10):
            try:
                return len(self.embedding_index(self.store.current()).seqs)
            except StaleStateError:
                continue
        with self.store.frozen() as index:
            return len(self.embedding_index(index).seqs)

    # Inside

    def _encode(self, queries: Sequence[str], request: Request) -> tuple[SparseVectors, SparseVectors]:
        """The queries' chosen representation, and their bags."""
        own = self.encoder.encode_queries(queries, representation="bot")
        representation = "bot" if request.first_stage == "lexical" or request.search == "alpha" else request.query_repr
        if representation == "bot":
            return own, own
        encoded = self.encoder.encode_queries(
            queries, representation=representation, max_active_dims=request.max_active_dims
        )
        check_weights(encoded, self.store.settings.dim)
        return encoded, own

    def _second_vectors(self, queries: Sequence[str], first: SparseVectors, request: Request) -> SparseVectors:
        """V_theta of the queries for the second stage, whatever represented them in the first."""
        if not (request.reranker is None or isinstance(request.reranker, str)):
            return first  # an object scores the text itself
        if request.query_repr == "theta" and request.first_stage != "lexical":
            return first
        second = self.encoder.encode_queries(queries, max_active_dims=request.max_active_dims)
        check_weights(second, self.store.settings.dim)
        return second

    def _hits(self, encoded: tuple[SparseVectors, SparseVectors], request: Request, index: BotIndex) -> list[SeqHits]:
        theta, own = encoded
        if request.search == "beta":
            weights = self.weighed(theta, own, index)
            hits = self.first_stage(weights, self.weighting, max(request.k, request.rerank), request.filter, index)
        else:
            hits = self._full(theta, request, index)
        if request.min_score is not None:
            hits = [(seqs[scores >= request.min_score], scores[scores >= request.min_score]) for seqs, scores in hits]
        return hits

    def _consistent(self, search: Callable[[BotIndex], list[SeqHits]]) -> tuple[list[SeqHits], dict[int, Row]]:
        """Hits with the rows they name; searched again where a found passage was deleted before it was read."""
        for _ in range(10):
            try:
                hits, rows = self._with_rows(search(self.store.current()))
            except StaleStateError:
                continue
            if rows is not None:
                return hits, rows
        # Every attempt lost a passage to a deletion: let this object's writers wait once.
        with self.store.frozen() as index:
            hits, rows = self._with_rows(search(index))
        if rows is None:
            # `frozen` has seen that nothing changed meanwhile.
            where = self.store.folder.database if self.store.folder else "this store"
            raise IndexFormatError(f"{where}: lacks passages that its index holds; restore it from a copy")
        return hits, rows

    def _with_rows(self, hits: list[SeqHits]) -> tuple[list[SeqHits], dict[int, Row] | None]:
        wanted = sorted({int(s) for seqs, _ in hits for s in seqs})
        rows = self.store.fetch(wanted)
        return hits, rows if len(rows) == len(wanted) else None

    def _full(self, theta: SparseVectors, request: Request, index: BotIndex) -> list[SeqHits]:
        if not request.k or not len(theta):
            return [(np.empty(0, np.uint64), np.empty(0, np.float32)) for _ in range(len(theta))]
        embedding = self.embedding_index(index)
        allowed = None
        if request.filter is not None:
            chosen = [(view.live, view.segment.columns.mask(request.filter)) for view in index.views]
            allowed = np.concatenate([mask if live is None else mask[live] for live, mask in chosen] or [_NONE])
        return self._pool.map(lambda i: embedding.search(theta.row(i), request.k, allowed), range(len(theta)))

    def _embedded(self, index: BotIndex) -> Iterator[tuple[int, Vector]]:
        seqs = index.live_seqs().tolist()
        for i in range(0, len(seqs), 1024):
            rows = self.store.fetch(seqs[i : i + 1024])
            if len(rows) < len(seqs[i : i + 1024]):
                raise StaleStateError("a passage was deleted before it was embedded")
            part = sorted(rows)
            yield from zip(part, self.embedder.vectors([rows[s].content for s in part]), strict=True)

    def _reranked(
        self,
        queries: Sequence[str],
        theta: SparseVectors,
        hits: list[SeqHits],
        rows: dict[int, Row],
        request: Request,
    ) -> list[list[SearchResult]]:
        results = []
        for i, (seqs, scores) in enumerate(hits):
            candidates = [rows[int(s)] for s in seqs]
            head = candidates[: request.rerank]
            second = self._second_stage(queries[i], theta.row(i), head, scores[: len(head)], request)
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

    def _second_stage(
        self,
        query: str,
        theta: tuple[NDArray[np.int32], NDArray[np.float32]],
        rows: list[Row],
        scores: NDArray[np.float32],
        request: Request,
    ) -> NDArray[np.float64]:
        if not rows:
            return np.empty(0, np.float64)
        default_share = self.encoder.config.rerank_blend or 0.0
        if request.reranker is None or isinstance(request.reranker, str):
            second = self.embedder.scores(theta, [r.content for r in rows])
            return blend_scores(scores, second, 0.0 if request.reranker == "theta" else default_share)
        second = np.asarray(
            request.reranker.rerank(query, [r.passage() for r in rows], scores.copy()), dtype=np.float64
        )
        if second.shape != (len(rows),) or not np.isfinite(second).all():
            raise InvalidInputError(
                f"reranker gave an array of shape {second.shape}; "
                f"it must give one finite score for each of {len(rows)} passages"
            )
        return second


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, allowed))}")
