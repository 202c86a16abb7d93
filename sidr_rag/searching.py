"""Searching a store: queries to results, explanations, embeddings and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from sidr_rag.collection import Collection
from sidr_rag.costs import Costs
from sidr_rag.encoder import Encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.explain import Explanation, explain_beta, explain_full
from sidr_rag.inputs import as_count, query_list
from sidr_rag.pipeline import Pipeline, Request
from sidr_rag.rerank.background import Embedding
from sidr_rag.rerank.fusion import first_stage_of
from sidr_rag.rerank.queries import Queries
from sidr_rag.search.filters import parse_filter
from sidr_rag.search.searcher import check_weights
from sidr_rag.search.weighting import BINARY
from sidr_rag.types import Hits, SearchResult, SparseVectors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sidr_rag.request import FirstStageChoice, RerankerChoice, SearchArguments


class Searching(Collection):
    """What `SiDR` offers beyond keeping passages: it needs a model."""

    _encoder: Encoder
    _pipeline: Pipeline
    _embedding: Embedding | None = None

    @overload
    def search(  # type: ignore[overload-overlap]
        self, query: str, **arguments: Unpack[SearchArguments]
    ) -> list[SearchResult]: ...

    @overload
    def search(self, query: Sequence[str], **arguments: Unpack[SearchArguments]) -> list[list[SearchResult]]: ...

    def search(
        self,
        query: str | Sequence[str],
        *,
        k: int = 10,
        search: str = "beta",
        rerank: int = 0,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        first_stage: FirstStageChoice = "sidr",
        reranker: RerankerChoice | None = None,
        query_repr: str = "theta",
        max_active_dims: int | None = None,
        weight_floor: float = 0.0,
    ) -> list[SearchResult] | list[list[SearchResult]]:
        """The k best passages that share a token with the query vector: score descending, then oldest first.

        Args:
            query: one query, or a list of them (the result is then a list for each).
            k: how many; more than there are gives all matches, 0 none.
            search: "beta" (the bag-of-tokens index, or another `first_stage`), "full" (V_theta of every passage,
                embedding what is missing), "alpha" (the query's bag against V_theta of every passage), or "auto": beta
                with late re-ranking (m = 20 where `rerank` is 0) until every passage is embedded, see `embed`; then
                late re-ranking of m = 100 by both heads for a model with a dense head, such as the bundled one (where
                fewer than k passages share a token with the query, full search adds to them), and full search for any
                other. Passages that were added since, up to 32, are embedded within a full search,
                so that they are ranked in one list with the rest; with more of them, all are searched by beta and late
                again. In every search the query's weights are what the store's weighting makes of its vector; with
                `weighting="binary"` they are the vector itself, as in the paper.
            rerank: m; the best m candidates are ordered by the second stage, then the rest follow.
            filter: on metadata, applied before the cut to k; see `sidr_rag.search.filters`.
            min_score: leave out passages whose first-stage score is lower.
            first_stage: "sidr" (beta search), "lexical" (beta search with the query's own words: no encoder),
                "overlap" (how many distinct tokens are shared), "bm25" or a `Bm25` (exact BM25; needs `[bm25]`),
                several with "+" between them, as "sidr+bm25" (reciprocal rank fusion), or a `Fusion`.
            reranker: None or "blend" (the model's own way, blended with the first stage's score as the model says:
                "all" for the bundled one, else its dense head if it has one, else V_theta), "both" (the dense head and
                V_theta, half each, blended likewise), "theta" (V_theta of the candidates, as
                in the paper), "dense" (the dense head), "maxsim" (token by token, see `sidr_rag.rerank.maxsim`: kept
                passages take 48 bytes a token), "all" (as "both", with "maxsim" as half of the second stage and the
                first stage's share halved: one reading gives all three), a `BiEncoder`, a
                `CrossEncoder`, an `Encoder` (V_theta of another model), a `Blend` of one of these with the first
                stage's score, an object with a `rerank` method, or a callable with the same arguments; see
                `sidr_rag.rerank`.
            query_repr: "theta", "lex", "bin" or "bot".
            max_active_dims: cut V_theta(q) to this many dimensions; None takes the model's number for the search.
            weight_floor: in beta search ("sidr" and "lexical"), leave out the query's dimensions whose weight is less
                than this share, 0 to 1, of its greatest one: quicker, and an approximation, for what is left out is
                missing from every score (`benchmarks/RESULTS.md` has what it costs in quality).

        Raises:
            InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
            MissingExtraError: if BM25 is asked for and bm25s or PyStemmer is absent.
        """
        request = Request.of(
            k=k,
            search=search,
            rerank=rerank,
            filter=filter,
            min_score=min_score,
            first_stage=first_stage,
            reranker=reranker,
            query_repr=query_repr,
            max_active_dims=max_active_dims,
            weight_floor=weight_floor,
        )
        queries = [query] if isinstance(query, str) else query_list(query)
        results = self._pipeline.run(queries, request) if queries else []
        return results[0] if isinstance(query, str) else results

    def search_vectors(self, vectors: SparseVectors, k: int = 10, filter: Mapping[str, Any] | None = None) -> Hits:
        """The raw beta search of the paper: <vector, bag of tokens> of one level, for researchers and benchmarks.

        Args:
            vectors: query weights, finite and non-negative, in this store's dimensions.
            k: how many.
            filter: on metadata.
        """
        k = as_count("k", k)
        check_weights(vectors, self._store.settings.dim)
        found, rows = self._pipeline.run_vectors(vectors, k, parse_filter(filter))
        scores = np.full((len(found), max((len(v) for _, v in found), default=0)), -np.inf, dtype=np.float32)
        for i, (_, values) in enumerate(found):
            scores[i, : len(values)] = values
        return Hits([[rows[int(s)].id for s in seqs] for seqs, _ in found], scores)

    def explain(
        self,
        query: str,
        passage_id: str,
        *,
        search: str = "beta",
        first_stage: str = "sidr",
        query_repr: str = "theta",
        max_active_dims: int | None = None,
        weight_floor: float = 0.0,
    ) -> Explanation:
        """The part of each token in a passage's score; the parts add up to it.

        Args:
            query: the query.
            passage_id: the passage.
            search: "beta", "full" or "alpha" (the passage is embedded if need be), or "auto" for whichever it stands
                for at the moment. The late score of a re-ranked passage has no such parts: it compares candidates.
            first_stage: of beta search: "sidr", "lexical" or "overlap".
            query_repr: as for `search`.
            max_active_dims: as for `search`.
            weight_floor: as for `search`.

        Raises:
            InvalidInputError: if there is no such passage, or the search's score has no parts by token.
        """
        request = Request.of(
            k=1,
            search=search,
            rerank=0,
            filter=None,
            min_score=None,
            first_stage=first_stage,
            reranker=None,
            query_repr=query_repr,
            max_active_dims=max_active_dims,
            weight_floor=weight_floor,
        )
        if first_stage_of(first_stage) not in ("sidr", "lexical", "overlap"):
            raise InvalidInputError(f"first_stage={first_stage!r} has no parts by token; choose 'sidr' or 'lexical'")
        request = self._pipeline.settled(request)
        asked = self._pipeline.asked([query], request)
        if request.search == "beta":
            return self._explain_beta(asked, passage_id, request)
        found = self.get([passage_id])
        if not found:
            raise InvalidInputError(f"passage_id={passage_id!r}: no such passage")
        contents = [found[0].content]
        [vector] = self._pipeline.embedder.vectors(contents)
        vocabulary = self._encoder.tokenizer.vocabulary
        own = self.bags(contents)
        weights = self._pipeline.first.weighed(asked.represented, asked.bags, self._store.current())
        return explain_full(passage_id, weights.row(0), vector, asked.bags, own, vocabulary, search=request.search)

    def _explain_beta(self, asked: Queries, passage_id: str, request: Request) -> Explanation:
        with self._store.frozen():
            index = self._store.current()
            seq = self._store.lookup([passage_id]).get(passage_id)
        for view in index.views if seq is not None else ():
            rows = view.live_rows(np.array([seq], dtype=np.uint64))
            if len(rows):
                weighting, weights = self._pipeline.weighting, asked.bags
                if request.first_stage == "overlap":
                    weighting = BINARY
                else:
                    weights = self._pipeline.first.weighed(asked.searched, asked.bags, index, request.weight_floor)
                vocabulary = self._encoder.tokenizer.vocabulary
                return explain_beta(passage_id, view, int(rows[0]), weights, asked.bags, weighting, index, vocabulary)
        raise InvalidInputError(f"passage_id={passage_id!r}: no such passage")

    def encode_queries(self, texts: Sequence[str], **arguments: Any) -> SparseVectors:
        """V_theta of queries; see `Encoder.encode_queries`."""
        return self._encoder.encode_queries(texts, **arguments)

    def encode_passages(self, texts: Sequence[str], **arguments: Any) -> SparseVectors:
        """V_theta of passages; see `Encoder.encode_passages`."""
        return self._encoder.encode_passages(texts, **arguments)

    def bags(self, texts: Sequence[str]) -> SparseVectors:
        """V_BoT of texts: weight 1 for each distinct token."""
        return self._encoder.encode_passages(texts, representation="bot")

    @overload
    def embed(self, background: Literal[False] = False, progress: Callable[[int, int], None] | None = None) -> int: ...

    @overload
    def embed(self, background: Literal[True], progress: Callable[[int, int], None] | None = None) -> Embedding: ...

    def embed(self, background: bool = False, progress: Callable[[int, int], None] | None = None) -> int | Embedding:
        """Embed what is not embedded yet, oldest first, so that full search answers at once.

        Embeddings are kept beside the store, within `cache_bytes`, so that what was interrupted is taken up where it
        stopped, by this process or another. Passages that are added meanwhile are embedded as well.

        Args:
            background: work in a thread of its own, while searches go on; one at a time.
            progress: told (passages done, passages there are) every few passages; in the background, by that thread.

        Returns:
            how many passages there are; in the background, a handle with `pause`, `resume`, `wait` and `close`.

        Raises:
            InvalidInputError: if such work is going on already.
        """
        if not background:
            return self._pipeline.embed_all() if progress is None else self._pipeline.embed_all(progress)
        if self._embedding is not None and self._embedding.state in ("running", "paused"):
            raise InvalidInputError("background=True: such work is going on already; wait for it, or close it")
        self._embedding = Embedding(self._pipeline.embed_all, progress)
        return self._embedding

    def costs(self) -> Costs:
        """What all searches and embeddings of this object have cost so far; see `Costs`."""
        return self._pipeline.ledger.total()

    def measured(self) -> AbstractContextManager[Costs]:
        """What single searches cost: `with sidr.measured() as costs: sidr.search(query)`; then see `costs`.

        Only calls of this thread (or asyncio task) count.
        """
        return self._pipeline.ledger.measured()
