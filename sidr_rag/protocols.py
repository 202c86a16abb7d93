"""The seams: what a part must offer to be put in place of ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.types import Passage, SparseVectors, TokenCounts


class Vocabulary(Protocol):
    """The vocabulary space of a tokenizer: which of its token ids are dimensions."""

    dim: int
    dim_to_token: NDArray[np.int32]
    token_to_dim: NDArray[np.int32]

    def token(self, dim: int) -> str:
        """The token's text, for people to read."""
        ...


class Tokenizer(Protocol):
    """Text to dimensions, without a model."""

    fingerprint: str
    normalization: str

    @property
    def vocabulary(self) -> Vocabulary:
        """The space that `counts` speaks of."""
        ...

    def counts(self, texts: Iterable[str]) -> TokenCounts:
        """Count the dimensions of every text."""
        ...

    def sequence_ids(self, text: str) -> list[int]:
        """The text's token ids in order, without special tokens."""
        ...


class QueryEncoder(Protocol):
    """V_theta of queries."""

    fingerprint: str

    def encode_queries(
        self, texts: Sequence[str], *, representation: str = "theta", max_active_dims: int | None = None
    ) -> SparseVectors:
        """One row per query."""
        ...


class PassageEncoder(Protocol):
    """V_theta of passages."""

    fingerprint: str

    def encode_passages(
        self, texts: Sequence[str], *, representation: str = "theta", max_active_dims: int | None = None
    ) -> SparseVectors:
        """One row per passage."""
        ...


class Reranker(Protocol):
    """A second stage: scores candidates of one query; higher is better."""

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """One score per passage, in the order given."""
        ...
