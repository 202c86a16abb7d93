"""The queries of one search, encoded when a stage first asks for it, and once."""

from __future__ import annotations

from collections.abc import Sequence

from sidr_rag.costs import clocked
from sidr_rag.encoder import Encoder
from sidr_rag.encoder.representations import represented
from sidr_rag.search.searcher import check_weights
from sidr_rag.search.weighting import heaviest
from sidr_rag.types import SparseVectors

_BINARY = "binary"


class Queries:
    """Texts with their bags and vectors.

    Args:
        texts: the queries.
        encoder: the store's.
        dim: dimensions of the store.
        representation: "theta", "lex", "bin" or "bot": what the first stage searches with.
        max_active_dims: cuts V_theta.
        binary: whether the first stage is the paper's binary beta search, for which a model may have fewer dimensions
            (unless `max_active_dims` says how many) and layers of its own.
        tokens: whether a second stage will ask for the vectors of their tokens, which then come with V_theta.
    """

    def __init__(
        self,
        texts: Sequence[str],
        encoder: Encoder,
        dim: int,
        representation: str,
        max_active_dims: int | None,
        *,
        binary: bool = False,
        tokens: bool = False,
    ) -> None:
        self.texts = texts
        self.representation = representation
        self._encoder = encoder
        self._dim = dim
        self._max_active_dims = max_active_dims
        self._binary = binary
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
        """The chosen representation as the first stage searches with it."""
        config = self._encoder.config
        if not self._binary or self.representation == "bot":
            return self.represented
        if config.binary_layers:
            return self._made(_BINARY)
        if self._max_active_dims is not None or config.binary_active_dims is None or self.representation == "lex":
            return self.represented
        # As `encode_binary_queries` would have it, without reading the queries once more.
        return represented(self.representation, heaviest(self.theta, self.bags, config.binary_active_dims), self.bags)

    def _made(self, representation: str) -> SparseVectors:
        # No cached_property: before Python 3.12 it holds a lock of the whole class, across forks as well.
        if representation not in self._vectors:
            self._vectors[representation] = self._encoded(representation)
        return self._vectors[representation]

    def _encoded(self, representation: str) -> SparseVectors:
        with clocked("encode"):
            if representation == "bot":
                return self._encoder.encode_queries(self.texts, representation="bot")
            if representation == _BINARY:
                vectors = self._encoder.encode_binary_queries(
                    self.texts, representation=self.representation, max_active_dims=self._max_active_dims
                )
            else:
                vectors = self._encoder.encode_queries(
                    self.texts, representation=representation, max_active_dims=self._max_active_dims, **self._kept
                )
        check_weights(vectors, self._dim)
        return vectors
