"""The bag-of-tokens index at one moment: segments, what is deleted of them, and statistics of the living."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.segment import Segment


@dataclass(frozen=True)
class SegmentView:
    """A segment as one index state sees it.

    Attributes:
        name: the segment's file name without suffix; unique in a store.
        segment: the immutable lists.
        live: bool[n_rows], or None where nothing is deleted.
    """

    name: str
    segment: Segment
    live: NDArray[np.bool_] | None = None

    @cached_property
    def n_live(self) -> int:
        """Number of passages that are not deleted."""
        return self.segment.n_rows if self.live is None else int(np.count_nonzero(self.live))

    def without(self, rows: NDArray[np.int64]) -> SegmentView:
        """The same segment with some more rows deleted."""
        live = np.ones(self.segment.n_rows, dtype=np.bool_) if self.live is None else self.live.copy()
        live[rows] = False
        return SegmentView(self.name, self.segment, live)

    def live_rows(self, seqs: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Rows of those of the given seqs that are here and not deleted."""
        rows = self.segment.rows_of(seqs)
        return rows if self.live is None else rows[self.live[rows]]


@dataclass(frozen=True)
class BotIndex:
    """An immutable state of the index; a change makes a new one, so a search never sees half a change.

    Attributes:
        dim: dimensions of the vocabulary space.
        views: segments in seq order.
        df: i64[dim]; in how many live passages each dimension occurs.
        n_live: number of live passages.
        total_length: tokens of all live passages, with repetition.
        generation: counts commits; equal generations of one store are equal states.
        next_seq: the seq that the next passage gets.
    """

    dim: int
    views: tuple[SegmentView, ...]
    df: NDArray[np.int64]
    n_live: int
    total_length: int
    generation: int = 0
    next_seq: int = 1
    _factors: dict[tuple[str, float, float], NDArray[np.float64]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, dim: int, views: Sequence[SegmentView], generation: int = 0, next_seq: int = 1) -> BotIndex:
        """Count the statistics of the given segments from their lists."""
        df = np.zeros(dim, dtype=np.int64)
        total = 0
        for view in views:
            gone = np.empty(0, np.int64) if view.live is None else np.flatnonzero(~view.live)
            df += _df(view.segment) - _df_of_rows(view.segment, gone)
            total += int(view.segment.lengths.sum(dtype=np.int64)) - int(view.segment.lengths[gone].sum(dtype=np.int64))
        return cls(dim, tuple(views), df, sum(v.n_live for v in views), total, generation, next_seq)

    def changed(
        self, *, add: Sequence[SegmentView], delete: NDArray[np.uint64], generation: int, next_seq: int
    ) -> BotIndex:
        """The state after adding segments and deleting passages (by seq, also from the added segments)."""
        views = [*self.views, *add]
        df = self.df.copy()
        total = self.total_length
        for view in add:
            df += _df(view.segment)
            total += int(view.segment.lengths.sum(dtype=np.int64))
        if len(delete):
            for i, view in enumerate(views):
                rows = view.live_rows(delete)
                if len(rows):
                    df -= _df_of_rows(view.segment, rows)
                    total -= int(view.segment.lengths[rows].sum(dtype=np.int64))
                    views[i] = view.without(rows)
        return BotIndex(self.dim, tuple(views), df, sum(v.n_live for v in views), total, generation, next_seq)

    def replaced(self, start: int, end: int, merged: SegmentView | None, generation: int) -> BotIndex:
        """The state in which a merged segment stands for the views in a range; statistics are the same."""
        views = (*self.views[:start], *(() if merged is None else (merged,)), *self.views[end:])
        return BotIndex(self.dim, views, self.df, self.n_live, self.total_length, generation, self.next_seq)

    def length_factors(self, view: SegmentView, exponent: float, slope: float) -> NDArray[np.float64] | None:
        """s(d) of every row of a segment: `(1 - slope + slope * length / average) ** -exponent`, f64[n_rows].

        None where s is 1 for every passage.
        """
        if exponent == 0 or self.total_length == 0:
            return None
        key = (view.name, exponent, slope)
        factors = self._factors.get(key)
        if factors is None:
            # One power for each distinct length: equal lengths get equal bits wherever the passage stands.
            lengths, at = np.unique(view.segment.lengths, return_inverse=True)
            lengths = np.maximum(lengths, 1)  # a passage without tokens is never scored, and 0 has no negative power
            average = self.total_length / self.n_live
            factors = np.power(1.0 - slope + slope * (lengths.astype(np.float64) / average), -exponent)[at]
            self._factors[key] = factors
        return factors

    def live_seqs(self) -> NDArray[np.uint64]:
        """u64[n_live]: all live passages in order."""
        parts = [v.segment.seqs if v.live is None else v.segment.seqs[v.live] for v in self.views]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _df(segment: Segment) -> NDArray[np.int64]:
    level = segment.levels[0]
    df = np.zeros(segment.dim, dtype=np.int64)
    df[level.term_dims] = np.diff(level.term_indptr)
    return df


def _df_of_rows(segment: Segment, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(rows):
        return np.zeros(segment.dim, dtype=np.int64)
    level = segment.levels[0]
    lens = level.doc_indptr[rows + 1] - level.doc_indptr[rows]
    offsets = np.repeat(level.doc_indptr[rows] - (np.cumsum(lens) - lens), lens) + np.arange(int(lens.sum()))
    return np.bincount(level.doc_dims[offsets], minlength=segment.dim).astype(np.int64)
