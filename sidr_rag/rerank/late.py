"""Late parametric search (section 3.4 of the paper): the best m candidates are embedded on the fly, and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import clocked, note
from sidr_rag.protocols import PassageEncoder
from sidr_rag.rerank.cache import EmbeddingCache, EmbeddingSpace, Vector, content_key
from sidr_rag.search.searcher import pairwise_scores
from sidr_rag.types import SparseVectors

T = TypeVar("T")

_BLOCK = 256


class Embedder(Generic[T]):
    """Embeddings of texts, from the cache where they are there; always as the cache would give them back.

    Args:
        encode: texts to embeddings, one for each.
        space: where they are kept.
        usable: whether what the cache gave can be used.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Sequence[T]],
        space: EmbeddingSpace[T],
        usable: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._encode = encode
        self.space = space
        self._usable = usable

    def vectors(self, contents: Sequence[str]) -> list[T]:
        """The embedding of each text; what is missing is embedded now, equal texts once."""
        keys = [content_key(text) for text in contents]
        distinct = dict(zip(keys, contents, strict=True))
        found = {key: vector for key, vector in self.space.get(list(distinct)).items() if self._usable(vector)}
        note(cache_hits=len(found))
        missing = [(key, text) for key, text in distinct.items() if key not in found]
        for i in range(0, len(missing), _BLOCK):
            part = missing[i : i + _BLOCK]
            with clocked("embed"):
                fresh = self._encode([text for _, text in part])
            found.update(self.space.put(zip((key for key, _ in part), fresh, strict=True)))
        return [found[key] for key in keys]


class PassageEmbedder(Embedder[Vector]):
    """V_theta of passages: dims i32[n] ascending, and weights as the cache rounds them.

    Args:
        encoder: the model.
        cache: the store's.
        space: where they are kept in it; by default with those of the store's own model.
        encode: what encodes passages, by default the encoder's `encode_passages`.
    """

    def __init__(
        self,
        encoder: PassageEncoder,
        cache: EmbeddingCache,
        space: EmbeddingSpace[Vector] | None = None,
        encode: Callable[[Sequence[str]], SparseVectors] | None = None,
    ) -> None:
        super().__init__(lambda texts: list((encode or encoder.encode_passages)(texts)), space or cache.theta)
        self.cache = cache

    def scores(
        self, query: tuple[NDArray[np.int32], NDArray[np.float32]], contents: Sequence[str]
    ) -> NDArray[np.float64]:
        """<V_theta(q), V_theta(p)> for each text, f64[n] of float32 values."""
        return pairwise_scores(query, self.vectors(contents)).astype(np.float64)


class DenseEmbedder(Embedder[NDArray[np.float32]]):
    """Dense vectors of passages, as the cache rounds them.

    Args:
        encode: texts to f32[n, width].
        space: where they are kept.
        width: numbers in a vector.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], NDArray[np.float32]],
        space: EmbeddingSpace[NDArray[np.float32]],
        width: int,
    ) -> None:
        super().__init__(lambda texts: list(encode(texts)), space, lambda vector: vector.shape == (width,))

    def scores(self, query: NDArray[np.float32], contents: Sequence[str]) -> NDArray[np.float64]:
        """Inner products with one query's vector, f64[n]."""
        found = self.vectors(contents)
        wide = query.astype(np.float64)
        # One by one: the bits of a larger product would depend on which candidates stand beside it.
        return np.array([_inner(wide, vector) for vector in found], dtype=np.float64)


def blend_scores(first: NDArray[np.floating[Any]], second: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """`share * z(first) + (1 - share) * z(second)`, z-scores over the candidates; 0 where all are equal.

    With share 0 the second stage's own scores are given back, not their z-scores.
    """
    if share == 0:
        return second
    return share * _z(first.astype(np.float64)) + (1.0 - share) * _z(second)


def _inner(query: NDArray[np.float64], vector: NDArray[Any]) -> float:
    return float(query @ vector.astype(np.float64))


def _z(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # The mean of equal numbers can differ from them in the last bit, so the spread alone does not tell.
    if not len(values) or values.max() == values.min():
        return np.zeros_like(values)
    scaled: NDArray[np.float64] = (values - values.mean()) / values.std()
    return scaled
