"""Token counts to a segment: levelled bags, and their inversion in linear time and bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.columns import Columns
from sidr_rag.index.postings import ABSENT, BLOCK_ROWS, CHUNK_ROWS, CHUNK_WORDS, Postings, blocks_of, chunks_of
from sidr_rag.index.segment import Segment
from sidr_rag.search.cpu import NumbaKernel
from sidr_rag.search.kernels import kernel_for_building
from sidr_rag.types import TokenCounts

# One row in so many must hold a dimension for it to have a bitmap. By size, one in 16 would do (a bitmap takes a bit of
# every row, a posting 16 bits); by time, one in 90. The first level, where most of the bytes are, goes by size, and the
# further ones, which are small, by time.
_FIRST_BITMAP_SHARE, _BITMAP_SHARE = 20, 48
_BITMAPS_FROM_ROWS = 2_048
_CHUNK_ENTRIES = 1_000_000
_STRIPE_ROWS = 8_192


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
    indptrs, dims, total = [counts.indptr], [counts.dims], len(counts.dims)
    for threshold in thresholds[1:]:
        kept = np.flatnonzero(counts.counts >= threshold)
        indptrs.append(np.searchsorted(kept, counts.indptr)[1:] + total)
        dims.append(counts.dims[kept])
        total += len(kept)
    columns = Columns(len(counts)) if metadatas is None else Columns.of(metadatas)
    forward = np.concatenate(indptrs), np.concatenate(dims) if len(dims) > 1 else counts.dims
    return segment_from_forward(counts.dim, seqs, counts.lengths, thresholds, *forward, columns)


def segment_from_forward(
    dim: int,
    seqs: NDArray[np.uint64],
    lengths: NDArray[np.uint32],
    thresholds: Sequence[int],
    doc_indptr: NDArray[np.int64],
    doc_dims: NDArray[Any],
    columns: Columns,
) -> Segment:
    """Complete a segment from its forward lists; the arguments are the attributes of `Segment`."""
    postings = build_postings(doc_indptr, doc_dims, len(seqs), len(thresholds), dim)
    return Segment(dim, seqs, lengths, tuple(thresholds), doc_indptr, doc_dims, postings, columns)


def build_postings(
    doc_indptr: NDArray[np.int64], doc_dims: NDArray[Any], n_rows: int, n_levels: int, dim: int
) -> Postings:
    """Invert forward lists: time linear in the entries, a few megabytes beside the result.

    Args:
        doc_indptr: i64[n_levels * n_rows + 1], as in `Segment`.
        doc_dims: u16 or i32 [nnz], ascending within a row.
        n_rows: rows of the segment.
        n_levels: its levels.
        dim: dimensions of the vocabulary space.
    """
    if n_rows < _BITMAPS_FROM_ROWS:
        return _sorted_postings(doc_indptr, doc_dims, n_rows, n_levels, dim)
    n_keys = n_levels * dim
    counts = np.concatenate(
        [_counts(doc_dims, doc_indptr[i * n_rows : (i + 1) * n_rows + 1], dim) for i in range(n_levels)]
    )
    often = counts * np.repeat([_FIRST_BITMAP_SHARE, _BITMAP_SHARE], [dim, n_keys - dim]) > n_rows
    list_keys = np.flatnonzero((counts > 0) & ~often).astype(np.int32)
    bitmap_keys = np.flatnonzero(often).astype(np.int32)
    codes = np.full(n_keys, ABSENT, np.int32)
    codes[list_keys] = np.arange(len(list_keys))
    codes[bitmap_keys] = -2 - np.arange(len(bitmap_keys))

    n_blocks = blocks_of(n_rows)
    starts = np.zeros((n_blocks, len(list_keys) + 1), np.uint32)
    block_starts = np.zeros(n_blocks + 1, np.int64)
    rows = np.empty(int(counts[list_keys].sum()), np.uint16)
    bitmaps = np.zeros((chunks_of(n_rows), len(bitmap_keys), CHUNK_WORDS), np.uint32)
    inverter = _Inverter(doc_indptr, doc_dims, n_rows, codes, dim)
    for block in range(n_blocks):
        first, last = block * BLOCK_ROWS, min(n_rows, (block + 1) * BLOCK_ROWS)
        lens = counts[list_keys] if n_blocks == 1 else inverter.list_lens(first, last, len(list_keys))
        np.cumsum(lens, out=starts[block, 1:])
        block_starts[block + 1] = block_starts[block] + lens.sum()
        inverter.fill_lists(first, last, starts[block, :-1], rows[block_starts[block] : block_starts[block + 1]])
    for first in range(0, n_rows if len(bitmap_keys) else 0, _STRIPE_ROWS):
        last = min(n_rows, first + _STRIPE_ROWS)
        inverter.fill_bitmaps(first, last, bitmaps[first // CHUNK_ROWS : chunks_of(last)])
    return Postings(
        n_rows, n_keys, list_keys, starts, block_starts[:-1], rows, bitmap_keys, counts[bitmap_keys], bitmaps
    )


def _sorted_postings(
    doc_indptr: NDArray[np.int64], doc_dims: NDArray[Any], n_rows: int, n_levels: int, dim: int
) -> Postings:
    """`build_postings` of few rows, by one sort of (key, row) pairs: nothing here is as long as the vocabulary."""
    lens = np.diff(doc_indptr).reshape(n_levels, n_rows)
    pairs = np.repeat(np.arange(n_levels, dtype=np.uint64) * np.uint64(dim), lens.sum(axis=1)) + doc_dims
    pairs *= np.uint64(_BITMAPS_FROM_ROWS)
    pairs += np.repeat(np.tile(np.arange(n_rows, dtype=np.uint64), n_levels), lens.reshape(-1))
    if n_levels * dim * _BITMAPS_FROM_ROWS < 1 << 32:
        pairs = pairs.astype(np.uint32)
    pairs.sort()
    keys = (pairs // pairs.dtype.type(_BITMAPS_FROM_ROWS)).astype(np.int32)
    begins = np.flatnonzero(np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]]))
    starts = np.append(begins, len(keys)).astype(np.uint32)
    return Postings(
        n_rows,
        n_levels * dim,
        keys[begins],
        starts.reshape(1, -1)[: blocks_of(n_rows)],
        np.zeros(blocks_of(n_rows), np.int64),
        (pairs % pairs.dtype.type(_BITMAPS_FROM_ROWS)).astype(np.uint16),
        np.empty(0, np.int32),
        np.empty(0, np.int64),
        np.zeros((chunks_of(n_rows), 0, CHUNK_WORDS), np.uint32),
    )


class _Inverter:
    """Reads the entries of ranges of rows, all levels; in compiled code, where that is loaded."""

    def __init__(
        self, indptr: NDArray[np.int64], dims: NDArray[Any], n_rows: int, codes: NDArray[np.int32], dim: int
    ) -> None:
        self._indptr = indptr
        self._dims = dims
        self._n_rows = n_rows
        self._codes = codes
        self._dim = dim
        self._n_levels = len(codes) // dim if dim else 0
        kernel = kernel_for_building(n_rows) if dims.dtype == np.uint16 else None
        able = isinstance(kernel, NumbaKernel) and kernel.has("count_lists", "fill_lists", "fill_bitmaps")
        self._kernel = kernel if isinstance(kernel, NumbaKernel) and able else None
        self._forward = (np.ascontiguousarray(indptr), np.ascontiguousarray(dims), codes, n_rows)

    def list_lens(self, first: int, last: int, n_lists: int) -> NDArray[np.int64]:
        """How many of the rows are in each posting list, i64[n_lists]."""
        lens = np.zeros(n_lists, np.int64)
        if self._kernel is not None:
            self._kernel.count_lists(*self._forward, first, last, lens)
            return lens
        for level, a, b in self._ranges(first, last):
            codes = self._codes_of(level, a, b)
            lens += np.bincount(codes[codes >= 0], minlength=n_lists)
        return lens

    def fill_lists(self, first: int, last: int, starts: NDArray[np.uint32], out: NDArray[np.uint16]) -> None:
        """Write the posting lists of one block."""
        if self._kernel is not None:
            self._kernel.fill_lists(*self._forward, first, last, starts.astype(np.int64), out)
            return
        # The lists of a level are neighbours: one sort of (list, row) pairs puts every posting in its place.
        begin = 0
        for level in range(self._n_levels):
            parts = [self._pairs(level, a, b, first) for own, a, b in self._ranges(first, last) if own == level]
            pairs = np.concatenate(parts) if parts else np.empty(0, np.uint32)
            pairs.sort()
            out[begin : begin + len(pairs)] = pairs.astype(np.uint16)
            begin += len(pairs)

    def _pairs(self, level: int, a: int, b: int, block: int) -> NDArray[Any]:
        """List (of this level) and row (of this block) of each posting as one number."""
        own = self._codes[level * self._dim : (level + 1) * self._dim]
        codes = self._codes_of(level, a, b)
        kept = codes >= 0
        pairs: NDArray[Any] = (codes[kept] - own[own >= 0].min(initial=len(self._codes))).astype(
            np.uint32 if self._dim <= 1 << 16 else np.uint64
        )
        pairs <<= pairs.dtype.type(16)
        pairs |= self._rows_in_block(level, a, b, block)[kept]
        return pairs

    def fill_bitmaps(self, first: int, last: int, out: NDArray[np.uint32]) -> None:
        """Write whole chunks, u32[n_chunks, n_bitmaps, CHUNK_WORDS]."""
        if self._kernel is not None:
            self._kernel.fill_bitmaps(*self._forward, first, last, out)
            return
        n_chunks, n_bitmaps = out.shape[:2]
        width = n_chunks * CHUNK_ROWS
        flags = np.zeros(n_bitmaps * width, np.uint8)
        for level, a, b in self._ranges(first, last):
            codes = self._codes_of(level, a, b)
            kept = codes < ABSENT
            places = (-2 - codes[kept]).astype(np.int64)
            places *= width
            places += self._rows_in_block(level, a, b, first)[kept]
            flags[places] = 1
        words = np.packbits(flags.reshape(n_bitmaps, width), axis=1, bitorder="little").view(np.uint32)
        out[:] = words.reshape(n_bitmaps, n_chunks, CHUNK_WORDS).transpose(1, 0, 2)

    def _ranges(self, first: int, last: int) -> Iterable[tuple[int, int, int]]:
        """(level, first row, last row) in parts of about `_CHUNK_ENTRIES` entries."""
        for level in range(self._n_levels):
            base = level * self._n_rows
            for a, b in _chunks(self._indptr[base + first : base + last + 1]):
                yield level, first + a, first + b

    def _codes_of(self, level: int, a: int, b: int) -> NDArray[np.int32]:
        base = level * self._n_rows
        dims = self._dims[self._indptr[base + a] : self._indptr[base + b]]
        codes: NDArray[np.int32] = self._codes[level * self._dim : (level + 1) * self._dim][dims]
        return codes

    def _rows_in_block(self, level: int, a: int, b: int, block: int) -> NDArray[np.uint16]:
        """The row of each entry, counted from a block's first one."""
        base = level * self._n_rows
        rows = np.arange(a - block, b - block, dtype=np.uint16)
        return np.repeat(rows, np.diff(self._indptr[base + a : base + b + 1]))


def invert(
    indptr: NDArray[np.int64], dims: NDArray[Any], dim: int, values: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[Any] | None]:
    """Turn forward lists into one list of rows for each dimension, in linear time and bounded memory.

    Returns:
        rows (u16 or u32 [nnz], ascending within a list), the dimensions that have lists, their i64 indptr, and the
        values in the lists' order if any were given.
    """
    n_rows = len(indptr) - 1
    row_type = np.uint16 if n_rows <= BLOCK_ROWS else np.uint32
    total = _counts(dims, indptr, dim)
    term_dims = np.flatnonzero(total)
    term_indptr = np.zeros(len(term_dims) + 1, dtype=np.int64)
    np.cumsum(total[term_dims], out=term_indptr[1:])
    next_slot = np.cumsum(total) - total
    rows = np.empty(len(dims), dtype=row_type)
    moved = None if values is None else np.empty_like(values)
    for a, b in _chunks(indptr):
        start, end = indptr[a], indptr[b]
        part = dims[start:end]
        order = _stable_order(part, dim)
        ordered = part[order]
        here = np.bincount(part, minlength=dim)
        slots = (next_slot - (np.cumsum(here) - here))[ordered] + np.arange(len(part))
        rows[slots] = np.repeat(np.arange(a, b, dtype=row_type), np.diff(indptr[a : b + 1]))[order]
        if moved is not None and values is not None:
            moved[slots] = values[start:end][order]
        next_slot += here
    return rows, term_dims.astype(dims.dtype), term_indptr, moved


def _counts(dims: NDArray[Any], indptr: NDArray[np.int64], dim: int) -> NDArray[np.int64]:
    total = np.zeros(dim, dtype=np.int64)
    for a, b in _chunks(indptr):
        total += np.bincount(dims[indptr[a] : indptr[b]], minlength=dim)
    return total


def _stable_order(numbers: NDArray[Any], bound: int) -> NDArray[np.int64]:
    """`argsort(kind="stable")` of numbers below `bound`; NumPy sorts 16 bits, and 16 alone, in linear time."""
    low = np.argsort(numbers.astype(np.uint16), kind="stable")
    if bound <= 1 << 16:
        return low
    return low[np.argsort((numbers >> 16).astype(np.uint16)[low], kind="stable")]


def _chunks(indptr: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Row ranges of about `_CHUNK_ENTRIES` entries each."""
    n_rows = len(indptr) - 1
    inner = np.arange(int(indptr[0]) + _CHUNK_ENTRIES, int(indptr[-1]), _CHUNK_ENTRIES)
    bounds = np.searchsorted(indptr, inner)
    edges = sorted({0, *(int(b) for b in bounds), n_rows})
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]
