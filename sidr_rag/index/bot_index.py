"""The bag-of-tokens index at one moment: segments, what is deleted of them, and statistics of the living."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.postings import CHUNK_ROWS, chunks_of, packed
from sidr_rag.index.segment import Segment
from sidr_rag.search.bounds import steps_of


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
    def live_bits(self) -> NDArray[np.uint32] | None:
        """`live` as bits, for scans by integers."""
        return None if self.live is None else packed(self.live)

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
class LengthFactors:
    """s(d) of the rows of a segment.

    Attributes:
        values: f64[n_values]; the factors that there are.
        at: int[n_rows]; where in `values` each row's is.
        steps: u16[n_chunks * 512]: the factors as `sidr_rag.search.bounds` rounds them.
        top: no factor is greater.
    """

    values: NDArray[np.float64]
    at: NDArray[Any]
    steps: NDArray[np.uint16]
    top: float

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The factors of some rows, f64 like `rows`."""
        factors: NDArray[np.float64] = self.values[self.at[rows]]
        return factors

    @cached_property
    def factors(self) -> NDArray[np.float64]:
        """f64[n_rows]: those of all rows; made on first use, since compiled scans need but a few of them."""
        factors: NDArray[np.float64] = self.values[self.at]
        return factors


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
    _factors: dict[tuple[str, float, float], LengthFactors] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, dim: int, views: Sequence[SegmentView], generation: int = 0, next_seq: int = 1) -> BotIndex:
        """Count the statistics of the given segments from their lists."""
        df = np.zeros(dim, dtype=np.int64)
        total = 0
        for view in views:
            gone = np.empty(0, np.int64) if view.live is None else np.flatnonzero(~view.live)
            df += view.segment.df() - _df_of_rows(view.segment, gone)
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
            df += view.segment.df()
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
        found = self.length_table(view, exponent, slope)
        return None if found is None else found.factors

    def length_table(self, view: SegmentView, exponent: float, slope: float) -> LengthFactors | None:
        """The same with what a scan by integers needs."""
        if exponent == 0 or self.total_length == 0:
            return None
        key = (view.name, exponent, slope)
        found = self._factors.get(key)
        if found is None:
            # One power for each length: equal lengths get equal bits wherever the passage stands.
            lengths, at, present = view.segment.distinct_lengths
            average = self.total_length / self.n_live
            factors = np.power(1.0 - slope + slope * (lengths / average), -exponent)
            top = float(factors[present].max(initial=0.0))
            steps = np.zeros(chunks_of(view.segment.n_rows) * CHUNK_ROWS, np.uint16)
            np.take(steps_of(factors, top), at, out=steps[: view.segment.n_rows], mode="clip")
            found = self._factors[key] = LengthFactors(factors, at, steps, top)
        return found

    def live_seqs(self) -> NDArray[np.uint64]:
        """u64[n_live]: all live passages in order."""
        parts = [v.segment.seqs if v.live is None else v.segment.seqs[v.live] for v in self.views]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _df_of_rows(segment: Segment, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(rows):
        return np.zeros(segment.dim, dtype=np.int64)
    level = segment.levels[0]
    lens = level.doc_indptr[rows + 1] - level.doc_indptr[rows]
    offsets = np.repeat(level.doc_indptr[rows] - (np.cumsum(lens) - lens), lens) + np.arange(int(lens.sum()))
    return np.bincount(level.doc_dims[offsets], minlength=segment.dim).astype(np.int64)
