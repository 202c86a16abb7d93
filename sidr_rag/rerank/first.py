"""The first stage of a search: candidates of each query, from an index that needs no embedding of passages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder import Encoder
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.rerank.bm25 import Bm25, Bm25Keeper
from sidr_rag.rerank.fusion import FirstStage, Fusion
from sidr_rag.rerank.queries import Queries
from sidr_rag.search.beta import BetaKernel, BetaSearcher
from sidr_rag.search.filters import Filter
from sidr_rag.search.searcher import SearchPool, SeqHits
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries, without_light_weights
from sidr_rag.types import SparseVectors

_NONE = np.empty(0, np.uint64)


class FirstStages:
    """Every first stage over one store.

    Args:
        encoder: of queries.
        weighting: of beta search.
        pool: threads.
        kernel: of beta search; see `sidr_rag.search.beta.check_kernel`.
        contents: texts of passages by seq, in the order asked for; raises StaleStateError if one is gone.
        device: of beta search: "auto", "cpu", "cuda" or "cuda:N".
    """

    def __init__(
        self,
        encoder: Encoder,
        weighting: Weighting,
        pool: SearchPool,
        kernel: BetaKernel,
        contents: Callable[[Sequence[int]], Iterable[str]],
        device: str = "cpu",
    ) -> None:
        self._encoder = encoder
        self._weighting = weighting
        self._searcher = BetaSearcher(pool, kernel, device)
        self._bm25 = Bm25Keeper(contents)

    def hits(
        self,
        stage: FirstStage,
        queries: Queries,
        k: int,
        condition: Filter | None,
        index: BotIndex,
        weight_floor: float = 0.0,
    ) -> list[SeqHits]:
        """The k best passages of each query: score descending, then seq ascending.

        Args:
            stage: which one.
            queries: the queries.
            k: how many.
            condition: a filter, or None.
            index: the state to search.
            weight_floor: of "sidr" and "lexical"; see `weighed`.

        Raises:
            StaleStateError: if a passage of the state is gone (BM25 alone).
            MissingExtraError: if BM25 is asked for and its packages are absent.
        """
        if isinstance(stage, Fusion):
            depth = max(k, stage.depth)
            found = [self.hits(_single(part), queries, depth, condition, index, weight_floor) for part in stage.stages]
            return [stage.fuse(lists, k) for lists in zip(*found, strict=True)]
        if isinstance(stage, Bm25):
            return self._bm25_hits(stage, queries, k, condition, index)
        if stage == "overlap":
            return self.beta(queries.bags, BINARY, k, condition, index)
        asked = queries.bags if stage == "lexical" else queries.searched
        weights = self.weighed(asked, queries.bags, index, weight_floor)
        return self.beta(weights, self._weighting, k, condition, index)

    def beta(
        self, vectors: SparseVectors, weighting: Weighting, k: int, condition: Filter | None, index: BotIndex
    ) -> list[SeqHits]:
        """Exact beta search of query vectors with a filter applied before the cut."""
        allowed = None if condition is None else lambda view: view.segment.columns.mask(condition)
        return self._searcher.search(index, vectors, weighting, k, allowed=allowed)

    @property
    def device_bytes(self) -> int:
        """Bytes of the index in a device's memory."""
        return self._searcher.nbytes

    def close(self) -> None:
        """Let go of a device's memory."""
        self._searcher.close()

    def weighed(
        self, encoded: SparseVectors, own: SparseVectors, index: BotIndex, weight_floor: float = 0.0
    ) -> SparseVectors:
        """w(t) of the scoring contract for this store's weighting and corpus, without what is below the floor."""
        weights = weigh_queries(encoded, own, self._weighting, index.df, index.n_live)
        return without_light_weights(weights, weight_floor) if weight_floor else weights

    def _bm25_hits(
        self, stage: Bm25, queries: Queries, k: int, condition: Filter | None, index: BotIndex
    ) -> list[SeqHits]:
        if not k or not index.n_live:
            return [(_NONE, np.empty(0, np.float32)) for _ in queries.texts]
        words = self._bm25.of(stage, index)
        allowed = None if condition is None else allowed_live(index, condition)
        return [words.search(text, k, allowed) for text in queries.texts]


def allowed_live(index: BotIndex, condition: Filter) -> NDArray[np.bool_]:
    """Which of the live passages a filter lets through, bool[n_live] in seq order."""
    chosen = [(view.live, view.segment.columns.mask(condition)) for view in index.views]
    return np.concatenate([mask if live is None else mask[live] for live, mask in chosen] or [np.empty(0, np.bool_)])


def _single(stage: str | Bm25) -> FirstStage:
    return Bm25() if stage == "bm25" else stage
