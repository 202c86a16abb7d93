"""Late parametric search (section 3.4 of the paper): V_theta of the best m candidates, on the fly and remembered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.protocols import PassageEncoder
from sidr_rag.rerank.cache import EmbeddingCache, Vector, content_key
from sidr_rag.search.searcher import pairwise_scores
from sidr_rag.types import SparseVectors

_BLOCK = 256
_HALF_MAX = float(np.finfo(np.float16).max)


class PassageEmbedder:
    """V_theta of passages, from the cache where it is there; always as the cache would give it back."""

    def __init__(self, encoder: PassageEncoder, cache: EmbeddingCache) -> None:
        self._encoder = encoder
        self.cache = cache

    def vectors(self, contents: Sequence[str]) -> list[Vector]:
        """Dims i32[n] ascending and weights f16[n] of each text."""
        keys = [content_key(text) for text in contents]
        found = self.cache.get(list(dict.fromkeys(keys)))
        missing = {key: text for key, text in zip(keys, contents, strict=True) if key not in found}
        items = list(missing.items())
        for i in range(0, len(items), _BLOCK):
            part = items[i : i + _BLOCK]
            fresh = self._encoder.encode_passages([text for _, text in part])
            rounded = [(key, _stored(fresh, j)) for j, (key, _) in enumerate(part)]
            self.cache.put(rounded)
            found.update(rounded)
        return [found[key] for key in keys]

    def scores(
        self, query: tuple[NDArray[np.int32], NDArray[np.float32]], contents: Sequence[str]
    ) -> NDArray[np.float64]:
        """<V_theta(q), V_theta(p)> for each text, f64[n] of float32 values."""
        return pairwise_scores(query, self.vectors(contents)).astype(np.float64)


def blend_scores(first: NDArray[np.float32], second: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """`share * z(first) + (1 - share) * z(second)`, z-scores over the candidates; 0 where all are equal.

    With share 0 the second stage's own scores are given back, not their z-scores.
    """
    if share == 0:
        return second
    return share * _z(first.astype(np.float64)) + (1.0 - share) * _z(second)


def _z(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # The mean of equal numbers can differ from them in the last bit, so the spread alone does not tell.
    if not len(values) or values.max() == values.min():
        return np.zeros_like(values)
    scaled: NDArray[np.float64] = (values - values.mean()) / values.std()
    return scaled


def _stored(vectors: SparseVectors, i: int) -> Vector:
    dims, weights = vectors.row(i)
    return dims.copy(), np.minimum(weights, _HALF_MAX).astype(np.float16)
