"""Passages to records and back: levelled bags as sparse vectors, and found records as a small index of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidr_rag.backends.protocol import Query, Record
from sidr_rag.backends.wire import key_of
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import segment_from_forward
from sidr_rag.index.columns import Columns
from sidr_rag.index.passages import Row, metadata_of
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors, TokenCounts


@dataclass(frozen=True)
class LengthScale:
    """s(d) for an average length that is fixed: what the values of the stored vectors carry.

    The corpus's average moves with every change; `most_over` bounds by how much that moves a factor, so that a search
    knows how far down the engine's order it must look.

    Attributes:
        exponent: of the factor; 0 makes every value 1.
        slope: of the factor.
        average: tokens of an average passage, as the first ones added had it.
    """

    exponent: float
    slope: float
    average: float

    def values(self, lengths: NDArray[np.uint32]) -> NDArray[np.float32]:
        """`(1 - slope + slope * length / average) ** -exponent`, f32 like lengths; 1 where the exponent is 0."""
        if self.exponent == 0:
            return np.ones(len(lengths), np.float32)
        kept = np.maximum(lengths, 1).astype(np.float64)
        return np.asarray((1.0 - self.slope + self.slope * (kept / self.average)) ** -self.exponent, np.float32)

    def most_over(self, weighting: Weighting, average: float, longest: int) -> float:
        """The greatest s(d) of a weighting and average, divided by the value stored, over lengths 1 to `longest`."""
        old = (1.0 - self.slope, self.slope / self.average, self.exponent)
        new = (1.0 - weighting.length_slope, weighting.length_slope / max(average, 1e-9), weighting.length_exponent)
        (a, b, e), (c, d, f) = old, new
        lengths = [1.0, max(1.0, float(longest))]
        # The one length between at which the ratio's derivative is 0, if there is one.
        if (f - e) * b * d != 0:
            turning = (e * b * c - f * d * a) / ((f - e) * b * d)
            if 1.0 < turning < longest:
                lengths.append(turning)
        return float(max((a + b * n) ** e * (c + d * n) ** -f for n in lengths))


def reserved_dim(dim: int, n_levels: int) -> int:
    """The dimension that stands in an empty bag, since engines refuse a vector without entries; no query has it."""
    return dim * n_levels


def records_of(rows: Sequence[Row], counts: TokenCounts, thresholds: Sequence[int], scale: LengthScale) -> list[Record]:
    """Records of counted passages.

    Args:
        rows: with their seqs.
        counts: one row for each.
        thresholds: the levels' n_l, ascending.
        scale: what the values carry of the length.
    """
    values = scale.values(counts.lengths)
    records = []
    for i, row in enumerate(rows):
        entries = slice(int(counts.indptr[i]), int(counts.indptr[i + 1]))
        dims, times = counts.dims[entries].astype(np.int64), counts.counts[entries]
        levels = [dims[times >= n] + level * counts.dim for level, n in enumerate(thresholds)]
        every = np.concatenate(levels) if len(dims) else np.array([reserved_dim(counts.dim, len(thresholds))])
        records.append(Record(key_of(row.id), row, int(counts.lengths[i]), every, float(values[i])))
    return records


def bag_of(record: Record, dim: int) -> NDArray[np.int64]:
    """The record's distinct dimensions, ascending: its first level."""
    return record.dims[record.dims < dim]


def engine_query(
    dims: NDArray[np.int32], weights: NDArray[np.float32], weighting: Weighting, thresholds: Sequence[int], dim: int
) -> Query:
    """One query over all levels: dimension t of level l has weight `gain_l * w(t)`; zeros are left out."""
    gains = dict(zip(weighting.levels, weighting.gains, strict=True))
    kept = weights > 0
    dims, weights = dims[kept].astype(np.int64), weights[kept].astype(np.float64)
    levels = [(level, gains[n]) for level, n in enumerate(thresholds) if n in gains]
    all_weights = np.concatenate([gain * weights for _, gain in levels]).astype(np.float32)
    all_dims = np.concatenate([dims + level * dim for level, _ in levels])
    usable = all_weights > 0  # a product may be too small for float32
    return Query(all_dims[usable], all_weights[usable])


def index_of(
    records: Sequence[Record], thresholds: Sequence[int], dim: int, statistics: tuple[NDArray[np.int64], int, int]
) -> BotIndex:
    """Records as an index state whose statistics are the whole corpus's.

    Args:
        records: in ascending seq order.
        thresholds: the levels' n_l.
        dim: dimensions of the vocabulary space.
        statistics: df i64[dim], number of passages and total length of the corpus.
    """
    levels = len(thresholds)
    parts = [[r.dims[(r.dims >= i * dim) & (r.dims < (i + 1) * dim)] - i * dim for r in records] for i in range(levels)]
    lens = np.array([[len(bag) for bag in bags] for bags in parts], dtype=np.int64).reshape(-1)
    indptr = np.zeros(len(lens) + 1, dtype=np.int64)
    np.cumsum(lens, out=indptr[1:])
    kind = np.uint16 if dim <= 65_536 else np.int32
    flat = [bag.astype(kind) for bags in parts for bag in bags]
    segment = segment_from_forward(
        dim,
        np.array([r.row.seq for r in records], dtype=np.uint64),
        np.array([r.length for r in records], dtype=np.uint32),
        tuple(thresholds),
        indptr,
        np.concatenate(flat) if flat else np.empty(0, kind),
        Columns.of(metadata_of(r.row.metadata) for r in records),
    )
    df, n_live, total_length = statistics
    views = (SegmentView("candidates", segment),) if len(records) else ()
    return BotIndex(dim, views, df, n_live, total_length)


def queries_of(vectors: SparseVectors, weighting: Weighting, thresholds: Sequence[int]) -> list[Query]:
    """`engine_query` of every row."""
    return [engine_query(dims, weights, weighting, thresholds, vectors.dim) for dims, weights in vectors]
