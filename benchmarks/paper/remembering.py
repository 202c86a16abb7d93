"""Models that read each query, or each pair, once, however many searches of a table ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import note_read
from sidr_rag.encoder import Encoder
from sidr_rag.encoder.config import Side
from sidr_rag.encoder.representations import represented
from sidr_rag.encoder.windows import TokenVectors
from sidr_rag.rerank import CrossEncoder
from sidr_rag.types import Passage, SparseVectors

_Row = tuple[NDArray[np.int32], NDArray[np.float32]]


class RememberingEncoder:
    """Stands wherever the encoder itself would; figures of time made with it say nothing of encoding queries.

    Args:
        encoder: what is asked; it must keep every text's own tokens (`sparsify="union"`), so that the other
            representations follow from V_theta.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.tokenizer = encoder.tokenizer
        self.config = encoder.config
        self.fingerprint = encoder.fingerprint
        self._kept: dict[tuple[str, int | None], _Row] = {}
        self._dense: dict[str, NDArray[np.float32]] = {}
        self._tokens: dict[str, TokenVectors] = {}

    def encode_queries(
        self,
        texts: Sequence[str],
        *,
        representation: str = "theta",
        max_active_dims: int | None = None,
        tokens: bool = False,
    ) -> SparseVectors:
        """As `Encoder.encode_queries`."""
        bags = self._encoder.encode_queries(texts, representation="bot")
        if representation == "bot":
            return bags
        new = [t for t in dict.fromkeys(texts) if (t, max_active_dims) not in self._kept]
        vectors = self._encoder.encode_queries(new, max_active_dims=max_active_dims, tokens=tokens)
        note_read("query", len(texts) - len(new))  # a search's cost does not depend on the searches before it
        self._kept |= {(t, max_active_dims): row for t, row in zip(new, vectors, strict=True)}
        if new and self.config.dense is not None:  # comes along with V_theta, without another reading
            self._dense |= zip(new, self._encoder.encode_dense(new, "query"), strict=True)
        if new and tokens:
            self._tokens |= zip(new, self._encoder.encode_tokens(new, "query"), strict=True)
        theta = SparseVectors.from_rows([self._kept[t, max_active_dims] for t in texts], bags.dim)
        return theta if representation == "theta" else represented(representation, theta, bags)

    def encode_dense(self, texts: Sequence[str], side: Side = "passage") -> NDArray[np.float32]:
        """As `Encoder.encode_dense`; of queries whose V_theta was made, what came along with it."""
        if side == "passage" or not all(text in self._dense for text in texts):
            return self._encoder.encode_dense(texts, side)
        return np.stack([self._dense[text] for text in texts])

    def encode_tokens(self, texts: Sequence[str], side: Side = "passage") -> list[TokenVectors]:
        """As `Encoder.encode_tokens`; of queries that were read for it, what came along."""
        if side == "passage":
            return self._encoder.encode_tokens(texts, side)
        new = [text for text in dict.fromkeys(texts) if text not in self._tokens]
        self._tokens |= zip(new, self._encoder.encode_tokens(new, side), strict=True)
        return [self._tokens[text] for text in texts]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


class RememberingCross:
    """A cross-encoder as a second stage, whose score of a question and a passage is kept.

    Args:
        model: what reads the pairs.
    """

    def __init__(self, model: CrossEncoder) -> None:
        self._model = model
        self._kept: dict[tuple[str, str], float] = {}

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `CrossEncoder.rerank`."""
        texts = [passage.content for passage in passages]
        new = [text for text in texts if (query, text) not in self._kept]
        scores = self._model.scores(query, new).tolist()
        self._kept |= {(query, text): score for text, score in zip(new, scores, strict=True)}
        return np.array([self._kept[query, text] for text in texts], np.float64)
