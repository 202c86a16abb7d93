"""The queries of one search, encoded when a stage first asks for it, and once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sidr_rag.costs import clocked
from sidr_rag.encoder import Encoder
from sidr_rag.search.searcher import check_weights
from sidr_rag.search.weighting import heaviest
from sidr_rag.types import SparseVectors


class Queries:
    """Texts with their bags and vectors.

    Args:
        texts: the queries.
        encoder: the store's.
        dim: dimensions of the store.
        representation: "theta", "lex", "bin" or "bot": what the first stage searches with.
        max_active_dims: cuts V_theta.
        searched_dims: cuts what the first stage searches with further; None leaves it.
        tokens: whether a second stage will ask for the vectors of their tokens, which then come with V_theta.
    """

    def __init__(
        self,
        texts: Sequence[str],
        encoder: Encoder,
        dim: int,
        representation: str,
        max_active_dims: int | None,
        searched_dims: int | None = None,
        *,
        tokens: bool = False,
    ) -> None:
        self.texts = texts
        self.representation = representation
        self._encoder = encoder
        self._dim = dim
        self._max_active_dims = max_active_dims
        self._searched_dims = searched_dims
        self._kept = {"tokens": True} if tokens else {}
        self._vectors: dict[str, SparseVectors] = {}

    @property
    def bags(self) -> SparseVectors:
        """The queries' own tokens, weight 1; nothing is encoded."""
        return self._made("bot")

    @property
    def theta(self) -> SparseVectors:
        """V_theta."""
        return self._made("theta")

    @property
    def represented(self) -> SparseVectors:
        """The chosen representation."""
        return self._made(self.representation)

    @property
    def searched(self) -> SparseVectors:
        """The chosen representation, on as many dimensions as the first stage takes."""
        if self._searched_dims is None or self.representation not in ("theta", "bin"):
            return self.represented
        cut = heaviest(self.theta, self.bags, self._searched_dims)
        if self.representation == "theta":
            return cut
        return SparseVectors(cut.indptr, cut.dims, np.ones_like(cut.weights), cut.dim)

    def _made(self, representation: str) -> SparseVectors:
        # No cached_property: before Python 3.12 it holds a lock of the whole class, across forks as well.
        if representation not in self._vectors:
            self._vectors[representation] = self._encoded(representation)
        return self._vectors[representation]

    def _encoded(self, representation: str) -> SparseVectors:
        with clocked("encode"):
            if representation == "bot":
                return self._encoder.encode_queries(self.texts, representation="bot")
            vectors = self._encoder.encode_queries(
                self.texts, representation=representation, max_active_dims=self._max_active_dims, **self._kept
            )
        check_weights(vectors, self._dim)
        return vectors
