"""Plain accumulation: what a careful hour with numba gives, and the measure of this library's kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpora import Corpus, K
from benchmarks.searchers.base import Searcher


def invert(corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Postings of a corpus: i64[dim + 1] and u32[nnz], rows ascending within a dimension."""
    counts = np.bincount(corpus.dims, minlength=corpus.dim)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows = np.empty(len(corpus.dims), np.uint32)
    _scatter_rows()(corpus.indptr, np.asarray(corpus.dims), indptr[:-1].copy(), rows)
    return indptr, rows


def compile_inversion() -> None:
    """Before the clock starts."""
    _scatter_rows()(np.zeros(2, np.int64), np.zeros(0, np.uint16), np.zeros(1, np.int64), np.zeros(0, np.uint32))


class PlainAccumulation(Searcher):
    """Postings of 32-bit rows, one 32-bit float for each passage, and a scan with a heap of K."""

    label = "plain accumulation (numba)"
    packages = ("numba",)
    index = "plain"
    in_memory = True

    def load(self) -> None:
        """Compile."""
        none = np.zeros(1, np.int64)
        _kernel()(none, none, np.zeros(1, np.float32), np.zeros(1, np.uint32), 4)
        compile_inversion()

    def open(self) -> None:
        """Invert the bags."""
        self._kernel = _kernel()
        self._indptr, self._rows = invert(self.corpus)

    def index_bytes(self) -> int:
        """Postings alone."""
        return self._indptr.nbytes + self._rows.nbytes

    def take(self, name: str) -> None:
        """Dimensions and weights as they are."""
        self._queries = list(self.corpus.vectors(name))

    def search(self, i: int) -> Any:
        """One vector."""
        dims, weights = self._queries[i]
        return self._kernel(self._indptr[dims], self._indptr[dims + 1], weights, self._rows, len(self.corpus))

    def rows(self, found: Any) -> Sequence[int]:
        """Best first."""
        rows, scores = found
        order = np.lexsort((rows, -scores))
        return [int(r) for r in rows[order][:K]]


@functools.cache
def _scatter_rows() -> Any:
    import numba

    @numba.njit
    def scatter(indptr: Any, dims: Any, at: Any, rows: Any) -> None:
        for row in range(len(indptr) - 1):
            for j in range(indptr[row], indptr[row + 1]):
                rows[at[dims[j]]] = row
                at[dims[j]] += 1

    return scatter


@functools.cache
def _kernel() -> Any:
    import numba

    k = K

    @numba.njit
    def plain(starts: Any, ends: Any, weights: Any, rows: Any, n: int) -> Any:
        scores = np.zeros(n, np.float32)
        for t in range(len(starts)):
            weight = weights[t]
            for j in range(starts[t], ends[t]):
                scores[rows[j]] += weight
        best_scores = np.zeros(k, np.float32)
        best_rows = np.zeros(k, np.int64)
        least = np.float32(0)
        for row in range(n):
            if scores[row] > least:
                # The least of the k best stands at the root; the new one sinks to its place.
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= k:
                        break
                    if child + 1 < k and best_scores[child + 1] < best_scores[child]:
                        child += 1
                    if best_scores[child] >= scores[row]:
                        break
                    best_scores[at], best_rows[at] = best_scores[child], best_rows[child]
                    at = child
                best_scores[at], best_rows[at] = scores[row], row
                least = best_scores[0]
        return best_rows, best_scores

    return plain
