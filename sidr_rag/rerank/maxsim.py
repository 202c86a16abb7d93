"""Late interaction: every token of the query looks for the token of the passage that is nearest to it.

ColBERT's MaxSim (Khattab and Zaharia 2020, eq. 3) over the states that the encoder has anyway, no head of its own:
s(q, p) = mean over tokens t of q of max over tokens u of p of <h_t / |h_t|, sign(h_u)> / sqrt(width). Of passages the
signs alone are kept, 1 bit a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.rerank.cache import EmbeddingSpace
from sidr_rag.rerank.late import Embedder

States = list[NDArray[np.float32]]


class TokenEmbedder(Embedder[NDArray[np.uint8]]):
    """Signs of passages' token vectors, packed: u8[tokens, width / 8].

    Args:
        encode: texts to f32[tokens, width] each.
        space: where they are kept.
        width: numbers in a vector.
    """

    def __init__(
        self, encode: Callable[[Sequence[str]], States], space: EmbeddingSpace[NDArray[np.uint8]], width: int
    ) -> None:
        n_bytes = -(-width // 8)
        super().__init__(
            lambda texts: [signs_of(states) for states in encode(texts)],
            space,
            lambda bits: bits.shape[1] == n_bytes and len(bits) > 0,
        )

    def scores(self, query: NDArray[np.float32], contents: Sequence[str]) -> NDArray[np.float64]:
        """MaxSim of a query's token vectors, f32[tokens, width], with each text: f64[n], from -1 to 1."""
        unit = unit_rows(query)
        # One by one: the bits of a larger product would depend on which candidates stand beside it.
        return np.array([maxsim(unit, bits) for bits in self.vectors(contents)], dtype=np.float64)


def signs_of(states: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The signs of vectors f32[n, width], packed: a bit is set where a number is not negative."""
    return np.packbits(states >= 0, axis=1)


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    lengths[lengths == 0] = 1.0
    scaled: NDArray[np.float32] = vectors / lengths
    return scaled


def maxsim(query: NDArray[np.float32], bits: NDArray[np.uint8]) -> float:
    """The mean over the query's tokens of their greatest product with a token of the passage.

    Args:
        query: f32[t, width], rows of length 1.
        bits: u8[n, width / 8], see `signs_of`; n at least 1.
    """
    width = query.shape[1]
    set_ = np.unpackbits(bits, axis=1, count=width).astype(np.float32)
    # <x, sign> = 2 <x, bit> - sum of x
    products = 2.0 * (set_ @ query.T).max(axis=0) - query.sum(axis=1)
    return float(products.mean(dtype=np.float64) / np.sqrt(width))
