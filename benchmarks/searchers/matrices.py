"""Sparse matrices: scipy's, and splade-index's column lists with numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.corpora import K
from benchmarks.searchers.base import BatchSearcher, peer
from benchmarks.searchers.plain import compile_inversion, invert


class ScipyCsr(BatchSearcher):
    """Passages times dense query, then argpartition."""

    label = "scipy CSR product, argpartition"
    packages = ("scipy",)
    index = "scipy"
    in_memory = True

    def load(self) -> None:
        """The module."""
        self._sparse = peer("scipy.sparse", "scipy")

    def open(self) -> None:
        """32-bit values, columns and, where they fit, row starts."""
        self.load()
        dims = np.asarray(self.corpus.dims).astype(np.int32)
        parts = (np.ones(len(dims), np.float32), dims, self.corpus.indptr)
        self._matrix = self._sparse.csr_array(parts, shape=(len(self.corpus), self.corpus.dim))

    def index_bytes(self) -> int:
        """The matrix's three arrays."""
        return int(self._matrix.data.nbytes + self._matrix.indices.nbytes + self._matrix.indptr.nbytes)

    def take(self, name: str) -> None:
        """Dense rows, and dense columns for the batch."""
        self._queries = self.corpus.vectors(name).toarray()
        self._columns = np.ascontiguousarray(self._queries.T)

    def search(self, i: int) -> Any:
        """One query."""
        return _best_rows(self._matrix @ self._queries[i])

    def search_all(self) -> Any:
        """All in one product."""
        scores = self._matrix @ self._columns
        return [_best_rows(scores[:, i]) for i in range(scores.shape[1])]

    def rows(self, found: Any) -> Sequence[int]:
        """Best first."""
        return [int(row) for row in found]


def _best_rows(scores: Any) -> Any:
    rows = np.argpartition(scores, len(scores) - K)[len(scores) - K :]
    return rows[np.argsort(-scores[rows])]


class _GivenVectors:
    """Stands where splade-index expects a model: "encodes" query numbers to vectors that are there already."""

    def __init__(self, vectors: Any, torch: Any) -> None:
        self._rows = []
        for dims, weights in vectors:
            indices = torch.from_numpy(dims.astype(np.int64))[None]
            row = torch.sparse_coo_tensor(indices, torch.from_numpy(weights), (vectors.dim,))
            self._rows.append(row.coalesce())

    def encode_query(self, queries: list[int], **_: Any) -> list[Any]:
        return [self._rows[i] for i in queries]


class SpladeIndex(BatchSearcher):
    """splade-index with its numba backend; its own encoder is replaced by vectors that are there already."""

    label = "splade-index (numba)"
    packages = ("splade_index", "numba")
    index = "splade_index"
    in_memory = True

    def load(self) -> None:
        """The module."""
        self._splade, self._torch = peer("splade_index", "splade-index"), peer("torch", "torch")
        compile_inversion()

    def open(self) -> None:
        """The arrays that its `index` makes of a model's output."""
        self.load()
        indptr, rows = invert(self.corpus)
        self._index = self._splade.SPLADE(backend="numba")
        self._index.scores = {
            "data": np.ones(len(rows), np.float32),
            "indices": rows.astype(np.int32),
            "indptr": indptr.astype(np.int32),
            "num_docs": len(self.corpus),
        }
        self._index.document_ids = np.arange(len(self.corpus))

    def index_bytes(self) -> int:
        """Values, rows and list starts."""
        return sum(self._index.scores[name].nbytes for name in ("data", "indices", "indptr"))

    def take(self, name: str) -> None:
        """Vectors as torch's sparse rows."""
        vectors = self.corpus.vectors(name)
        self._index.model = _GivenVectors(vectors, self._torch)
        self._all = list(range(len(vectors)))

    def search(self, i: int) -> Any:
        """One query."""
        return self._found([i])

    def search_all(self) -> Any:
        """All in one call."""
        return self._found(self._all)

    def _found(self, queries: list[int]) -> Any:
        return self._index.retrieve(queries, k=K, return_as="doc_ids", show_progress=False)

    def rows(self, found: Any) -> Sequence[int]:
        """Of the first query."""
        return [int(row) for row in found[0]]
