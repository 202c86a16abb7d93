"""Which segments to merge, and their merging: neighbours only, so that rows stay in seq order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.builder import segment_from_forward
from sidr_rag.index.columns import Columns
from sidr_rag.index.segment import Level, Segment

_FANOUT = 8
_SMALLEST = 256
_READ_ROWS = 16_384
_FULL = 99  # the class of segments that are not merged any further
MOST_ROWS = 1 << 18  # more would make merges long and hungry, and searches no faster


def plan_merge(sizes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Choose the next range of neighbouring segments to merge, or None if none is due.

    A run of eight neighbours of one size class merges into the next class, up to `MOST_ROWS` rows, so that a store of
    n passages has about n / `MOST_ROWS` large segments and a few dozen small ones at most; a segment of which half is
    deleted is rewritten alone.

    Args:
        sizes: (rows, live rows) of every segment in seq order.
    """
    for i, (n_rows, n_live) in enumerate(sizes):
        if n_live * 2 < n_rows:
            return i, i + 1
    classes = [_size_class(n_live) for _, n_live in sizes]
    end = len(classes)
    while end:
        start = end - 1
        top = classes[start]
        # A smaller segment between larger ones joins them: it could otherwise hold its neighbours apart for ever.
        while start and top < _FULL and classes[start - 1] <= top:
            start -= 1
        if end - start >= _FANOUT:
            return start, start + _fitting([n_live for _, n_live in sizes[start:end]])
        end = start
    return None


def plan_compaction(sizes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first range of neighbours, at most `MOST_ROWS` together, that can be made one segment without deletions."""
    start = 0
    while start < len(sizes):
        count = _fitting([n_live for _, n_live in sizes[start:]])
        n_rows, n_live = sizes[start]
        if count > 1 or n_live < n_rows:
            return start, start + count
        start += 1
    return None


def _fitting(n_live: Sequence[int]) -> int:
    """How many of the first segments, at least one, hold at most `MOST_ROWS` passages together."""
    total = 0
    for i, count in enumerate(n_live):
        total += count
        if i and total > MOST_ROWS:
            return i
    return len(n_live)


def merge_segments(parts: Sequence[tuple[Segment, NDArray[np.bool_] | None]]) -> Segment:
    """Join neighbouring segments without their deleted rows.

    Args:
        parts: segments in seq order with their live masks (bool[n_rows]; None: all live); equal levels and dim.
    """
    first = parts[0][0]
    keeps = [np.ones(s.n_rows, dtype=np.bool_) if live is None else live for s, live in parts]
    seqs = np.concatenate([s.seqs[keep] for (s, _), keep in zip(parts, keeps, strict=True)])
    lengths = np.concatenate([s.lengths[keep] for (s, _), keep in zip(parts, keeps, strict=True)])
    n_levels = len(first.thresholds)
    lens = [
        np.diff(level.doc_indptr)[keep]
        for levels in zip(*(s.levels for s, _ in parts), strict=True)
        for level, keep in zip(levels, keeps, strict=True)
    ]
    indptr = np.zeros(n_levels * len(seqs) + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lens), out=indptr[1:])
    dims = np.empty(int(indptr[-1]), first.doc_dims.dtype)
    at = 0
    for i in range(n_levels):
        for (segment, live), keep in zip(parts, keeps, strict=True):
            for part in _kept_dims(segment.levels[i], None if live is None else keep):
                dims[at : at + len(part)] = part
                at += len(part)
    columns = Columns.joined([(segment.columns, keep) for (segment, _), keep in zip(parts, keeps, strict=True)])
    return segment_from_forward(first.dim, seqs, lengths, first.thresholds, indptr, dims, columns)


def _kept_dims(level: Level, keep: NDArray[np.bool_] | None) -> Iterator[NDArray[Any]]:
    """The lists of the rows to keep, read in parts, for the file may be larger than what memory is free."""
    n_rows = len(level.doc_indptr) - 1
    for a in range(0, n_rows, _READ_ROWS):
        b = min(n_rows, a + _READ_ROWS)
        indptr = level.doc_indptr[a : b + 1]
        part = level.doc_dims[indptr[0] : indptr[-1]]
        yield part if keep is None else part[np.repeat(keep[a:b], np.diff(indptr))]


def _size_class(n_live: int) -> int:
    if n_live * 2 > MOST_ROWS:
        return _FULL
    size_class = 0
    bound = _SMALLEST
    while n_live > bound:
        bound *= _FANOUT
        size_class += 1
    return size_class
