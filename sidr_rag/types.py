"""The values that pass between the parts: immutable, typed, and free of any framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError

Metadata = Mapping[str, Any]


@dataclass(frozen=True)
class Passage:
    """One stored unit of text: what is indexed, filtered, returned and deleted.

    Attributes:
        id: unique within a store; stable for the passage's life.
        text: exactly what was given to `add`.
        title: indexed before the text, separated by one space; None if there is none.
        metadata: JSON values; filters read it. A private copy: changing it changes nothing stored.
    """

    id: str
    text: str
    title: str | None = None
    metadata: Metadata = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The text that is indexed and encoded: title and text, separated by one space."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class SparseVectors:
    """Rows of weighted dimensions of the vocabulary space, as a compressed sparse matrix.

    Attributes:
        indptr: i64[n + 1]; row i holds entries `indptr[i]:indptr[i + 1]`.
        dims: i32[nnz], ascending and distinct within a row, in 0..dim-1.
        weights: f32[nnz].
        dim: number of dimensions of the space.
    """

    indptr: NDArray[np.int64]
    dims: NDArray[np.int32]
    weights: NDArray[np.float32]
    dim: int

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[Any, Any]], dim: int) -> SparseVectors:
        """Build from one (dims, weights) pair of array-likes per row; dims need not be sorted.

        Raises:
            InvalidInputError: if a row repeats a dimension, or one is outside 0..dim-1.
        """
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        all_dims: list[NDArray[np.int32]] = []
        all_weights: list[NDArray[np.float32]] = []
        for i, (dims, weights) in enumerate(rows):
            d = np.asarray(dims, dtype=np.int32)
            w = np.asarray(weights, dtype=np.float32)
            order = np.argsort(d, kind="stable")
            all_dims.append(d[order])
            all_weights.append(w[order])
            indptr[i + 1] = indptr[i] + len(d)
        vectors = cls(
            indptr,
            np.concatenate(all_dims) if all_dims else np.empty(0, np.int32),
            np.concatenate(all_weights) if all_weights else np.empty(0, np.float32),
            dim,
        )
        vectors.validate()
        return vectors

    def validate(self) -> None:
        """Check shapes, bounds and order.

        Raises:
            InvalidInputError: naming the first fault found.
        """
        if self.indptr.ndim != 1 or len(self.indptr) < 1 or self.indptr[0] != 0 or np.any(np.diff(self.indptr) < 0):
            raise InvalidInputError("vectors.indptr must start at 0 and never decrease")
        if len(self.dims) != self.indptr[-1] or len(self.weights) != self.indptr[-1]:
            raise InvalidInputError(
                f"vectors: indptr ends at {self.indptr[-1]}, but there are {len(self.dims)} dims "
                f"and {len(self.weights)} weights; all three must agree"
            )
        if len(self.dims) and (self.dims.min() < 0 or self.dims.max() >= self.dim):
            raise InvalidInputError(f"vectors.dims must lie in 0..{self.dim - 1}")
        if len(self.dims) > 1:
            rising = np.diff(self.dims.astype(np.int64)) > 0
            starts = self.indptr[1:-1]
            rising[starts[(starts > 0) & (starts < len(self.dims))] - 1] = True
            if not rising.all():
                raise InvalidInputError("vectors.dims must be ascending and distinct within a row")

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, i: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Dimensions and weights of row i (views)."""
        a, b = self.indptr[i], self.indptr[i + 1]
        return self.dims[a:b], self.weights[a:b]

    def __iter__(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        return (self.row(i) for i in range(len(self)))

    def toarray(self) -> NDArray[np.float32]:
        """The same rows as a dense f32[n, dim] matrix; for small numbers of rows."""
        dense = np.zeros((len(self), self.dim), dtype=np.float32)
        dense[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.dims] = self.weights
        return dense


@dataclass(frozen=True)
class TokenCounts:
    """How often each dimension occurs in each text: the tokenizer's output and the index builder's input.

    Attributes:
        indptr: i64[n + 1].
        dims: u16[nnz] where dim <= 65,536, else i32[nnz]; ascending and distinct within a row.
        counts: u32[nnz], at least 1.
        lengths: u32[n]; indexable tokens of each text, with repetition (the sum of its counts).
        dim: number of dimensions of the space.
    """

    indptr: NDArray[np.int64]
    dims: NDArray[Any]
    counts: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    dim: int

    def __len__(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True)
class Hits:
    """Raw results of a vector search.

    Attributes:
        ids: one list of passage ids per query, best first, at most k long.
        scores: f32[Q, k]; padded with -inf where a query has fewer matches than k.
    """

    ids: list[list[str]]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class SearchResult:
    """One found passage.

    Attributes:
        passage: the stored passage (a private copy).
        score: the score that decided its place: the second stage's where `reranked`, else the first stage's.
        rank: 1 for the best.
        beta_score: the first stage's score; None for full search.
        reranked: whether the second stage scored it.
    """

    passage: Passage
    score: float
    rank: int
    beta_score: float | None = None
    reranked: bool = False
