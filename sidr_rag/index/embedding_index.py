"""The parametric index of full search: V_theta of every live passage, as postings with weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.builder import invert
from sidr_rag.search.kernels import kernel_for
from sidr_rag.search.topk import merge_hits


@dataclass(frozen=True)
class EmbeddingIndex:
    """Weighted postings over the passages of one index state.

    Attributes:
        generation: of the index state.
        seqs: u64[n], ascending.
        term_dims: dimensions that have postings, ascending.
        term_indptr: i64[len(term_dims) + 1].
        rows: u16 or u32 [nnz], ascending within a list.
        weights: f32[nnz].
    """

    generation: int
    seqs: NDArray[np.uint64]
    term_dims: NDArray[Any]
    term_indptr: NDArray[np.int64]
    rows: NDArray[Any]
    weights: NDArray[np.float32]

    @classmethod
    def build(
        cls, generation: int, dim: int, vectors: Iterable[tuple[int, tuple[NDArray[Any], NDArray[Any]]]]
    ) -> EmbeddingIndex:
        """From (seq, (dims, weights)) in seq order."""
        seqs, lens, dims_parts, weight_parts = [], [], [], []
        for seq, (dims, weights) in vectors:
            seqs.append(seq)
            lens.append(len(dims))
            dims_parts.append(dims.astype(np.uint16 if dim <= 65_536 else np.int32))
            weight_parts.append(weights.astype(np.float32))
        indptr = np.zeros(len(seqs) + 1, dtype=np.int64)
        np.cumsum(np.array(lens, dtype=np.int64), out=indptr[1:])
        all_dims = np.concatenate(dims_parts) if dims_parts else np.empty(0, np.uint16)
        all_weights = np.concatenate(weight_parts) if weight_parts else np.empty(0, np.float32)
        rows, term_dims, term_indptr, moved = invert(indptr, all_dims, dim, all_weights)
        assert moved is not None
        return cls(generation, np.array(seqs, dtype=np.uint64), term_dims, term_indptr, rows, moved)

    def search(
        self,
        query: tuple[NDArray[np.int32], NDArray[np.float32]],
        k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """The k best passages by <query, V_theta(p)>: float32 of a float64 sum in ascending dimension order."""
        dims, weights = query
        kernel = kernel_for(len(self.seqs))
        scores = np.zeros(len(self.seqs), dtype=np.float64)
        if len(self.term_dims) and len(dims):
            at = np.searchsorted(self.term_dims, dims)
            at[at == len(self.term_dims)] = 0
            found = np.flatnonzero((self.term_dims[at] == dims) & (weights > 0))
            at = at[found]
            kernel.accumulate_weighted(
                self.rows,
                self.weights,
                self.term_indptr[at],
                self.term_indptr[at + 1],
                weights[found].astype(np.float64),
                scores,
            )
        rows, values = kernel.select(scores, None, allowed, k)
        return merge_hits([(self.seqs[rows], values)], k)
