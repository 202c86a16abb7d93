"""What a query vector says, for people."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sidr_rag.protocols import Vocabulary
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import active_vectors

TokenWeight = tuple[str, float, bool]


def heaviest_tokens(
    encoder: TrainableEncoder, reader: TextReader, vocabulary: Vocabulary, queries: Sequence[str], n: int = 12
) -> list[tuple[str, list[TokenWeight]]]:
    """For each query, its n heaviest tokens with their weights in V_theta, and whether it holds them itself.

    Args:
        encoder: of queries, in evaluation mode.
        reader: texts to tokens.
        vocabulary: names of the dimensions.
        queries: at least one.
        n: how many tokens.
    """
    with torch.no_grad():
        encoded = encoder.encode([reader.query(query) for query in queries])
        vectors = active_vectors(encoder, encoded, reader.own_dims(queries), n)
    shown = []
    for i, query in enumerate(queries):
        order = torch.argsort(vectors.theta[i], descending=True)[:n]
        shown.append(
            (
                query,
                [
                    (vocabulary.token(int(vectors.dims[i, j])), float(vectors.theta[i, j]), bool(vectors.own[i, j] > 0))
                    for j in order
                    if bool(vectors.real[i, j])
                ],
            )
        )
    return shown
