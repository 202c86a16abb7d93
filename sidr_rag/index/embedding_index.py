"""The parametric index of full search: V_theta of every live passage, as postings with weights.

It lies in memory, in parts of up to 65,536 passages, so that new passages and deletions change little of it. A posting
takes 6 bytes: with the bundled model, whose passages have some 330 active dimensions, about 2 kB a passage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.builder import invert
from sidr_rag.search.kernels import kernel_for
from sidr_rag.search.searcher import SearchPool, SeqHits
from sidr_rag.search.topk import merge_hits

_MOST_ROWS = 1 << 16  # beyond, row numbers would take four bytes
_DEAD_SHARE = 4


@dataclass(frozen=True)
class EmbeddingIndex:
    """Weighted postings over some passages.

    Attributes:
        seqs: u64[n], ascending.
        term_dims: dimensions that have postings, ascending.
        term_indptr: i64[len(term_dims) + 1].
        rows: u16 or u32 [nnz], ascending within a list.
        weights: f32[nnz].
    """

    seqs: NDArray[np.uint64]
    term_dims: NDArray[Any]
    term_indptr: NDArray[np.int64]
    rows: NDArray[Any]
    weights: NDArray[np.float32]

    @classmethod
    def build(
        cls, generation: int, dim: int, vectors: Iterable[tuple[int, tuple[NDArray[Any], NDArray[Any]]]]
    ) -> EmbeddingIndex:
        """From (seq, (dims, weights)) in seq order; what lies beyond `dim` is left out."""
        seqs, lens, dims_parts, weight_parts = [], [], [], []
        for seq, (dims, weights) in vectors:
            if len(dims) and dims[-1] >= dim:
                dims, weights = dims[dims < dim], weights[dims < dim]
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
        return cls(np.array(seqs, dtype=np.uint64), term_dims, term_indptr, rows, moved)

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

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        arrays = (self.seqs, self.term_dims, self.term_indptr, self.rows, self.weights)
        return sum(array.nbytes for array in arrays)

    def vectors(self) -> Iterable[tuple[int, tuple[NDArray[Any], NDArray[Any]]]]:
        """What it was built from."""
        order = np.argsort(self.rows, kind="stable")
        dims = np.repeat(self.term_dims, np.diff(self.term_indptr))[order]
        weights = self.weights[order]
        ends = np.cumsum(np.bincount(self.rows, minlength=len(self.seqs)))
        for i, seq in enumerate(self.seqs.tolist()):
            part = slice(int(ends[i - 1]) if i else 0, int(ends[i]))
            yield seq, (dims[part], weights[part])


@dataclass(frozen=True)
class EmbeddingParts:
    """The parametric index of one state of a store: parts in seq order, and what is deleted of them.

    Attributes:
        generation: of the state; -1 before the first.
        dim: dimensions of the vocabulary space.
        parts: with the rows that live, bool[n], or None where all do.
    """

    generation: int
    dim: int
    parts: tuple[tuple[EmbeddingIndex, NDArray[np.bool_] | None], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(part.nbytes for part, _ in self.parts)

    @property
    def seqs(self) -> NDArray[np.uint64]:
        """u64[n], ascending: the live passages that are here."""
        found = [part.seqs if live is None else part.seqs[live] for part, live in self.parts]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def lacking(self, live: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Those of the ascending seqs that are not here."""
        here = np.concatenate([part.seqs for part, _ in self.parts] or [np.empty(0, np.uint64)])
        return live[~_among(live, here)]

    def changed(
        self,
        generation: int,
        live: NDArray[np.uint64],
        vectors: Callable[[NDArray[np.uint64]], Iterable[tuple[int, tuple[NDArray[Any], NDArray[Any]]]]],
    ) -> EmbeddingParts:
        """The index of another state, with what this one holds.

        Args:
            generation: of the new state.
            live: u64[n], ascending: its passages.
            vectors: embeddings of passages by ascending seq, as `EmbeddingIndex.build` takes them.
        """
        parts = [part for part, _ in self.parts]
        missing = self.lacking(live)
        for start in range(0, len(missing), _MOST_ROWS):
            parts.append(EmbeddingIndex.build(generation, self.dim, vectors(missing[start : start + _MOST_ROWS])))
        return EmbeddingParts(generation, self.dim, tuple(self._settled(parts, live)))

    def search(
        self,
        query: tuple[NDArray[np.int32], NDArray[np.float32]],
        k: int,
        allowed: NDArray[np.uint64] | None = None,
        pool: SearchPool | None = None,
    ) -> SeqHits:
        """The k best live passages by <query, V_theta(p)>.

        Args:
            query: dims ascending and weights.
            k: how many.
            allowed: u64[n], ascending: the passages that may be found; None for all.
            pool: threads to spread the parts over.
        """

        def run(item: tuple[EmbeddingIndex, NDArray[np.bool_] | None]) -> SeqHits:
            part, mask = item
            if allowed is not None:
                chosen = _among(part.seqs, allowed)
                mask = chosen if mask is None else mask & chosen
            return part.search(query, k, mask)

        found = [run(item) for item in self.parts] if pool is None else pool.map(run, self.parts)
        return merge_hits(found, k)

    def _settled(
        self, parts: Sequence[EmbeddingIndex], live: NDArray[np.uint64]
    ) -> list[tuple[EmbeddingIndex, NDArray[np.bool_] | None]]:
        """Parts with their living rows; small neighbours are joined, and rows that died written off in time."""
        kept: list[tuple[EmbeddingIndex, NDArray[np.bool_]]] = []
        for part in parts:
            lives = _among(part.seqs, live)
            kept.append((part, lives))
            while len(kept) > 1 and self._joins(kept[-2], kept[-1]):
                kept[-2:] = [self._joined(kept[-2:])]
        settled = []
        for part, lives in kept:
            n_live = int(lives.sum())
            if not n_live:
                continue
            if (len(lives) - n_live) * _DEAD_SHARE > len(lives):
                part, lives = self._joined([(part, lives)])
            settled.append((part, None if lives.all() else lives))
        return settled

    @staticmethod
    def _joins(a: tuple[EmbeddingIndex, NDArray[np.bool_]], b: tuple[EmbeddingIndex, NDArray[np.bool_]]) -> bool:
        n_a, n_b = int(a[1].sum()), int(b[1].sum())
        return n_a + n_b <= _MOST_ROWS and n_a <= 4 * n_b

    def _joined(
        self, parts: Sequence[tuple[EmbeddingIndex, NDArray[np.bool_]]]
    ) -> tuple[EmbeddingIndex, NDArray[np.bool_]]:
        vectors = (
            item for part, lives in parts for item, alive in zip(part.vectors(), lives.tolist(), strict=True) if alive
        )
        joined = EmbeddingIndex.build(self.generation, self.dim, vectors)
        return joined, np.ones(len(joined.seqs), np.bool_)


def _among(seqs: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of the ascending seqs are among the other ascending ones."""
    if not len(others):
        return np.zeros(len(seqs), np.bool_)
    at = np.minimum(np.searchsorted(others, seqs), len(others) - 1)
    found: NDArray[np.bool_] = others[at] == seqs
    return found
