"""Search over any representation of passages, for the pairs that the engine keeps no index of."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.representations import represented
from sidr_rag.index.embedding_index import EmbeddingIndex
from sidr_rag.protocols import PassageEncoder, QueryEncoder
from sidr_rag.rerank.late import PassageEmbedder
from sidr_rag.types import SparseVectors

_BLOCK = 1024
_Row = tuple[NDArray[Any], NDArray[Any]]


class PairIndex:
    """Postings with weights of one representation of passages, in memory."""

    def __init__(self, index: EmbeddingIndex) -> None:
        self._index = index

    @classmethod
    def build(
        cls, representation: str, contents: Iterable[str], encoder: PassageEncoder, embedder: PassageEmbedder
    ) -> PairIndex:
        """Index passages by a representation.

        Args:
            representation: "theta", "lex", "bin" or "bot".
            contents: title and text of each passage.
            encoder: makes the bags of tokens.
            embedder: gives V_theta, rounded as the engine rounds it.
        """
        dim = 0
        rows: list[_Row] = []
        for block in _blocks(contents):
            vectors = _passages(representation, block, encoder, embedder)
            rows += list(vectors)
            dim = vectors.dim
        return cls(EmbeddingIndex.build(0, dim, enumerate(rows)))

    def search(self, query: _Row, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best k passages by inner product: rows i64[<= k] and scores f32[<= k], then place ascending."""
        seqs, scores = self._index.search(query, k)
        return seqs.astype(np.int64), scores


def represented_queries(representation: str, queries: list[str], encoder: QueryEncoder) -> SparseVectors:
    """A representation of queries; "bot" encodes nothing."""
    bags = encoder.encode_queries(queries, representation="bot")
    return bags if representation == "bot" else represented(representation, encoder.encode_queries(queries), bags)


def _passages(
    representation: str, contents: list[str], encoder: PassageEncoder, embedder: PassageEmbedder
) -> SparseVectors:
    bags = encoder.encode_passages(contents, representation="bot")
    if representation == "bot":
        return bags
    theta = SparseVectors.from_rows(embedder.vectors(contents), bags.dim)
    return represented(representation, theta, bags)


def _blocks(contents: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(contents)
    while block := list(itertools.islice(rest, _BLOCK)):
        yield block
