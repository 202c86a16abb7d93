"""The peers' side of a comparison, each called as its own documentation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sidr_rag.types import SparseVectors

BM25S_SETTINGS = "bm25s, Lucene's BM25, its English stop words, PyStemmer's English stemmer"


class Bm25:
    """bm25s over stemmed words."""

    def __init__(
        self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75, backend: Literal["numpy", "numba"] = "numpy"
    ) -> None:
        """Index texts; k1 and b are bm25s's own defaults."""
        import bm25s

        self._tokenize = bm25s.tokenize
        self._n = len(texts)
        self._bm25 = bm25s.BM25(k1=k1, b=b, method="lucene", backend=backend)
        self._bm25.index(self._words(texts, ids=True), show_progress=False)
        self._known = set(self._bm25.vocab_dict)

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """Each text's stemmed words that the index knows."""
        tokens: list[list[str]] = self._words(texts, ids=False)
        return [[word for word in words if word in self._known] for words in tokens]

    def search(self, words: list[str], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores of the best k texts, zero scores included."""
        found = self._bm25.retrieve([words], k=min(k, self._n), show_progress=False)
        return found.documents[0], found.scores[0]

    def index_bytes(self) -> int:
        """Bytes of the scores, rows and list starts."""
        return sum(int(self._bm25.scores[name].nbytes) for name in ("data", "indices", "indptr"))

    def _words(self, texts: Sequence[str], *, ids: bool) -> Any:
        import Stemmer

        stemmer = Stemmer.Stemmer("english")
        return self._tokenize(list(texts), stopwords="en", stemmer=stemmer, return_ids=ids, show_progress=False)


class ScipyCsr:
    """The binary bag-of-tokens matrix in scipy, searched by a product and argpartition."""

    def __init__(self, indptr: NDArray[np.int64], dims: NDArray[Any], dim: int) -> None:
        """Take forward lists: i64[n + 1] and the dimensions of every passage."""
        from scipy.sparse import csr_array

        ones = np.ones(len(dims), dtype=np.float32)
        self._passages = csr_array((ones, dims.astype(np.int32), indptr), shape=(len(indptr) - 1, dim))
        self._lists = self._passages.T.tocsr()

    def search_dense(self, query: NDArray[np.float32], k: int) -> NDArray[np.float32]:
        """The best k scores, best first: matrix times dense query f32[dim]."""
        return _best(self._passages @ query, k)

    def search_sparse(self, queries: SparseVectors, i: int, k: int) -> NDArray[np.float32]:
        """The same for row i: sparse query times the transposed matrix."""
        from scipy.sparse import csr_array

        dims, weights = queries.row(i)
        query = csr_array((weights, dims, np.array([0, len(dims)])), shape=(1, queries.dim))
        return _best((query @ self._lists).toarray()[0], k)


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    rows = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
    best: NDArray[np.float32] = scores[rows[np.argsort(-scores[rows])]]
    return best
