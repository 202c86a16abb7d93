"""Late interaction: every token of the query looks for the token of the passage that is nearest to it.

ColBERT's MaxSim (Khattab and Zaharia 2020, eq. 3) over the states that the encoder has anyway, no head of its own; the
query's tokens count by their idf in the collection:
s(q, p) = sum over tokens t of q of idf(t) max over tokens u of p of <h_t / |h_t|, sign(h_u)> / sqrt(width), divided by
the sum of idf(t). Of passages the signs alone are kept, 1 bit a number; special tokens take no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.windows import TokenVectors
from sidr_rag.rerank.cache import EmbeddingSpace
from sidr_rag.rerank.late import Embedder

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""f32[256, 8]: the bits of every byte as numbers."""


class TokenEmbedder(Embedder[NDArray[np.uint8]]):
    """Signs of passages' token vectors, packed: u8[tokens, width / 8].

    Args:
        encode: texts to vectors of their tokens.
        space: where they are kept.
        width: numbers in a vector.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], list[TokenVectors]],
        space: EmbeddingSpace[NDArray[np.uint8]],
        width: int,
    ) -> None:
        n_bytes = -(-width // 8)
        super().__init__(
            lambda texts: [signs_of(found.vectors) for found in encode(texts)],
            space,
            lambda bits: bits.shape[1] == n_bytes,
        )

    def scores(
        self, query: NDArray[np.float32], weights: NDArray[np.float64], contents: Sequence[str]
    ) -> NDArray[np.float64]:
        """MaxSim of a query with each text.

        Args:
            query: f32[tokens, width], its tokens' vectors.
            weights: f64[tokens], what each of them counts, at least 0; all alike where none counts.
            contents: the texts.

        Returns:
            f64[n], from -1 to 1; 0 where the query or the text has no tokens.
        """
        return maxsim(unit_rows(query), shares_of(weights), self.vectors(contents))


def signs_of(vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The signs of vectors f32[n, width], packed: a bit is set where a number is not negative."""
    return np.packbits(vectors >= 0, axis=1)


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    lengths[lengths == 0] = 1.0
    scaled: NDArray[np.float32] = vectors / lengths
    return scaled


def shares_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each token counts, in shares of sum 1: f64[tokens]; all alike where none of them counts."""
    total = weights.sum()
    shares: NDArray[np.float64] = weights / total if total > 0 else np.full(len(weights), 1 / max(len(weights), 1))
    return shares


def maxsim(
    query: NDArray[np.float32], shares: NDArray[np.float64], passages: Sequence[NDArray[np.uint8]]
) -> NDArray[np.float64]:
    """For each passage: the sum over the query's tokens of their share times their greatest product with its tokens.

    Args:
        query: f32[t, width], rows of length 1.
        shares: f64[t], of sum 1.
        passages: u8[n, width / 8] each, see `signs_of`.

    Returns:
        f64[passages], from -1 to 1; 0 where the query or the passage has no tokens.
    """
    found = np.zeros(len(passages))
    if not len(query):
        return found
    width, sums = query.shape[1], query.sum(axis=1)
    turned = np.ascontiguousarray(query.T)
    longest = max((len(bits) for bits in passages), default=0)
    # One array for all of them: memory that is asked for anew costs more than what is done in it.
    room = np.empty((longest, -(-width // 8), 8), np.float32)
    for i, bits in enumerate(passages):
        if not len(bits):
            continue
        set_ = room[: len(bits)]
        np.take(_BITS, bits, axis=0, out=set_, mode="clip")  # a byte is never out of range; "raise" would make a copy
        # <x, sign> = 2 <x, bit> - sum of x. Passage by passage: the bits of a larger product would depend on which
        # candidates stand beside it.
        products = 2.0 * (set_.reshape(len(bits), -1)[:, :width] @ turned).max(axis=0) - sums
        found[i] = shares @ products.astype(np.float64) / np.sqrt(width)
    return found
