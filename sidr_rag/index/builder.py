"""Token counts to a segment: levelled bags, and postings by a stable counting sort in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.columns import Columns
from sidr_rag.index.segment import Level, Segment
from sidr_rag.types import TokenCounts

_CHUNK_ENTRIES = 4_000_000


def build_segment(
    counts: TokenCounts,
    seqs: NDArray[np.uint64],
    thresholds: Sequence[int],
    metadatas: Iterable[Mapping[str, Any]] | None = None,
) -> Segment:
    """Index the counted texts.

    Args:
        counts: one row per passage.
        seqs: u64[n], ascending: the passages' persistent order.
        thresholds: the levels' n_l, ascending, starting at 1.
        metadatas: one mapping for each passage; None for none at all.
    """
    levels = []
    for threshold in thresholds:
        indptr, dims = counts.indptr, counts.dims
        if threshold > 1:
            kept = np.flatnonzero(counts.counts >= threshold)
            indptr, dims = np.searchsorted(kept, indptr), dims[kept]
        levels.append(level_from_forward(threshold, indptr, dims, counts.dim))
    columns = Columns(len(counts)) if metadatas is None else Columns.of(metadatas)
    return Segment(counts.dim, seqs, counts.lengths, tuple(levels), columns)


def level_from_forward(threshold: int, indptr: NDArray[np.int64], dims: NDArray[Any], dim: int) -> Level:
    """Complete a level from its forward lists.

    Args:
        threshold: the level's n_l.
        indptr: i64[n + 1].
        dims: u16 or i32 [nnz], ascending within a row.
        dim: dimensions of the vocabulary space.
    """
    rows, term_dims, term_indptr, _ = invert(indptr, dims, dim)
    return Level(threshold, indptr, dims, term_dims, term_indptr, rows)


def invert(
    indptr: NDArray[np.int64], dims: NDArray[Any], dim: int, values: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[Any] | None]:
    """Turn forward lists into postings: time linear in the entries, memory beyond the result bounded.

    Returns:
        rows (u16 or u32 [nnz], ascending within a list), the dimensions that have lists, their i64 indptr, and the
        values in the lists' order if any were given.
    """
    n_rows = len(indptr) - 1
    row_type = np.uint16 if n_rows <= 65_536 else np.uint32
    total = np.zeros(dim, dtype=np.int64)
    for a, b in _chunks(indptr):
        total += np.bincount(dims[indptr[a] : indptr[b]], minlength=dim)
    term_dims = np.flatnonzero(total)
    term_indptr = np.zeros(len(term_dims) + 1, dtype=np.int64)
    np.cumsum(total[term_dims], out=term_indptr[1:])
    if values is None and row_type is np.uint16 and dims.dtype == np.uint16 and len(dims) <= _CHUNK_ENTRIES:
        return _sorted_rows(indptr, dims), term_dims.astype(dims.dtype), term_indptr, None
    next_slot = np.cumsum(total) - total
    rows = np.empty(len(dims), dtype=row_type)
    moved = None if values is None else np.empty_like(values)
    for a, b in _chunks(indptr):
        start, end = indptr[a], indptr[b]
        part = dims[start:end]
        order = np.argsort(part, kind="stable")
        ordered = part[order]
        here = np.bincount(part, minlength=dim)
        slots = (next_slot - (np.cumsum(here) - here))[ordered] + np.arange(len(part))
        rows[slots] = np.repeat(np.arange(a, b, dtype=row_type), np.diff(indptr[a : b + 1]))[order]
        if moved is not None and values is not None:
            moved[slots] = values[start:end][order]
        next_slot += here
    return rows, term_dims.astype(dims.dtype), term_indptr, moved


def _sorted_rows(indptr: NDArray[np.int64], dims: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The postings' rows by one sort of (dimension, row) keys: several times faster than moving them, if they fit."""
    keys = dims.astype(np.uint32)
    keys <<= np.uint32(16)
    keys |= np.repeat(np.arange(len(indptr) - 1, dtype=np.uint16), np.diff(indptr))
    keys.sort()
    return keys.astype(np.uint16)


def _chunks(indptr: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Row ranges of about `_CHUNK_ENTRIES` entries each."""
    n_rows = len(indptr) - 1
    bounds = np.searchsorted(indptr, np.arange(_CHUNK_ENTRIES, int(indptr[-1]), _CHUNK_ENTRIES))
    edges = sorted({0, *(int(b) for b in bounds), n_rows})
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]
