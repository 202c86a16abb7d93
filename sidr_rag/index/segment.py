"""A segment: the bags of tokens of some passages, forward and inverted, one bag for each level."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError
from sidr_rag.index.arrays import read_arrays, write_arrays
from sidr_rag.index.columns import Columns
from sidr_rag.index.postings import BLOCK_ROWS, CHUNK_ROWS, CHUNK_WORDS, Postings, blocks_of, chunks_of

FORMAT = "sidr-segment-2"
_COUNTS = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


@dataclass(frozen=True)
class Level:
    """The tokens that occur at least `threshold` times: a binary bag for each passage.

    Attributes:
        threshold: n_l of the scoring contract.
        doc_indptr: i64[n_rows + 1] into `doc_dims`.
        doc_dims: u16 or i32 [nnz], ascending within a row.
    """

    threshold: int
    doc_indptr: NDArray[np.int64]
    doc_dims: NDArray[Any]

    def dims_of(self, row: int) -> NDArray[Any]:
        """The bag of one row, ascending."""
        return self.doc_dims[self.doc_indptr[row] : self.doc_indptr[row + 1]]


@dataclass(frozen=True)
class Segment:
    """Immutable index of consecutive passages.

    Attributes:
        dim: dimensions of the vocabulary space.
        seqs: u64[n_rows], ascending; the passages' persistent order.
        lengths: u32[n_rows]; tokens of each passage, with repetition.
        thresholds: the levels' n_l, ascending.
        doc_indptr: i64[n_levels * n_rows + 1] into `doc_dims`: row r of level l is list `l * n_rows + r`.
        doc_dims: u16 or i32 [nnz]; the bags of all levels, ascending within a row.
        postings: the same inverted.
        columns: the rows' metadata, for filters.
    """

    dim: int
    seqs: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    thresholds: tuple[int, ...]
    doc_indptr: NDArray[np.int64]
    doc_dims: NDArray[Any]
    postings: Postings
    columns: Columns

    @property
    def n_rows(self) -> int:
        """Number of passages, deleted ones included."""
        return len(self.seqs)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: list[NDArray[Any]] = [self.seqs, self.lengths, self.doc_indptr, self.doc_dims]
        return sum(a.nbytes for a in arrays) + self.postings.nbytes

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The forward lists of each level by themselves."""
        levels = []
        for i, threshold in enumerate(self.thresholds):
            indptr = self.doc_indptr[i * self.n_rows : (i + 1) * self.n_rows + 1]
            first, last = int(indptr[0]), int(indptr[-1])
            levels.append(Level(threshold, indptr - first if first else indptr, self.doc_dims[first:last]))
        return tuple(levels)

    @cached_property
    def longest(self) -> NDArray[np.int64]:
        """i64[n_levels]: the most dimensions that a row holds in each level."""
        lens = np.diff(self.doc_indptr).reshape(len(self.thresholds), self.n_rows)
        longest: NDArray[np.int64] = lens.max(axis=1, initial=0)
        return longest

    @cached_property
    def distinct_lengths(self) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.int64]]:
        """Lengths, at least 1, among which every row's is; where each row's is; and which of them any row has.

        A passage without tokens is never scored, and 0 has no negative power.
        """
        top = int(self.lengths.max(initial=0))
        if top <= 4 * self.n_rows + 4096:
            at: NDArray[Any] = self.lengths
            distinct = np.arange(top + 1, dtype=np.float64)
            present = np.flatnonzero(np.bincount(at, minlength=1))
        else:
            found, at = np.unique(self.lengths, return_inverse=True)
            distinct, present = found.astype(np.float64), np.arange(len(found))
        return np.maximum(distinct, 1.0), at, present

    def level_bytes(self) -> list[tuple[int, int]]:
        """Of each level: bytes of the forward lists and of the inverted ones in a segment's file, their lengths too."""
        sizes = []
        postings = self.postings
        lens = np.diff(self.doc_indptr)
        list_lens = postings.list_starts[:, 1:] - postings.list_starts[:, :-1]
        for i, level in enumerate(self.levels):
            own = slice(*np.searchsorted(postings.list_keys, (i * self.dim, (i + 1) * self.dim)))
            n_bitmaps = int(np.diff(np.searchsorted(postings.bitmap_keys, (i * self.dim, (i + 1) * self.dim)))[0])
            forward = level.doc_dims.nbytes + _narrow(lens).itemsize * self.n_rows
            lists = list_lens[:, own]
            inverted = 2 * int(lists.sum()) + _narrow(list_lens).itemsize * lists.size + 4 * lists.shape[1]
            inverted += n_bitmaps * (postings.n_chunks * CHUNK_WORDS * 4 + 4 + _narrow(postings.bitmap_counts).itemsize)
            sizes.append((forward, inverted))
        return sizes

    def df(self) -> NDArray[np.int64]:
        """How many rows, deleted ones included, hold each dimension; i64[dim]."""
        return self.postings.counts(0, self.dim)

    def rows_of(self, seqs: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Rows of those of the given seqs that are here."""
        if not self.n_rows or not len(seqs):
            return np.empty(0, np.int64)
        at = np.searchsorted(self.seqs, seqs)
        at[at == self.n_rows] = 0
        rows: NDArray[np.int64] = at[self.seqs[at] == seqs]
        return rows

    def save(self, path: Path) -> None:
        """Write to a file; list lengths are kept in the narrowest type, since they are most of the overhead."""
        postings = self.postings
        starts = postings.list_starts
        arrays: dict[str, NDArray[Any]] = {
            "seqs": self.seqs,
            "lengths": _narrow(self.lengths),
            "doc_lens": _narrow(np.diff(self.doc_indptr)),
            "doc_dims": self.doc_dims,
            "list_keys": postings.list_keys,
            "list_lens": _narrow(starts[:, 1:] - starts[:, :-1]).reshape(-1),
            "rows": postings.rows,
            "bitmap_keys": postings.bitmap_keys,
            "bitmap_counts": _narrow(postings.bitmap_counts),
            "bitmaps": postings.bitmaps.reshape(-1),
            **self.columns.arrays(),
        }
        thresholds = ",".join(map(str, self.thresholds))
        write_arrays(path, arrays, {"format": FORMAT, "dim": str(self.dim), "levels": thresholds})

    @classmethod
    def open(cls, path: Path, *, own: bool = False) -> Segment:
        """Map a segment file.

        Args:
            path: the file.
            own: whether this process has just written it; its lists are then not read now.

        Raises:
            IndexFormatError: if the file is missing or damaged, or its lists point outside themselves; nothing of it
                has then reached a compiled kernel.
        """
        found, meta = read_arrays(path, own=own)
        # Compiled code wants its numbers aligned, as `save` writes them.
        arrays = {name: array if array.flags.aligned else array.copy() for name, array in found.items()}
        try:
            if meta["format"] != FORMAT:
                raise IndexFormatError(f"{path}: format {meta['format'][:40]!r}; this version reads {FORMAT!r}")
            dim = int(meta["dim"])
            thresholds = tuple(int(t) for t in meta["levels"].split(","))
            seqs, lengths = arrays["seqs"], arrays["lengths"]
            if (
                seqs.dtype != np.uint64
                or lengths.dtype not in _COUNTS
                or len(lengths) != len(seqs)
                or np.any(seqs[1:] <= seqs[:-1])
            ):
                raise IndexFormatError(f"{path}: rows are not in order")
            if not 0 <= dim * len(thresholds) < 1 << 31:
                raise IndexFormatError(
                    f"{path}: {len(thresholds)} levels of {meta['dim'][:20]} dimensions are too many"
                )
            doc_indptr = _forward(path, arrays, len(seqs), thresholds, dim, own)
            postings = _postings(path, arrays, len(seqs), dim * len(thresholds), own)
            columns = Columns.of_arrays(arrays, len(seqs))
        except (KeyError, ValueError, OverflowError, RecursionError) as e:
            raise IndexFormatError(f"{path}: a part of the segment is missing or unreadable") from e
        return cls(dim, seqs, lengths.astype(np.uint32), thresholds, doc_indptr, arrays["doc_dims"], postings, columns)


def _forward(
    path: Path, arrays: dict[str, NDArray[Any]], n_rows: int, thresholds: tuple[int, ...], dim: int, own: bool
) -> NDArray[np.int64]:
    lens, dims = arrays["doc_lens"], arrays["doc_dims"]
    ok = (
        # A negative length would let a list begin or end outside `doc_dims` although their sum is right.
        lens.dtype in _COUNTS
        and len(lens) == n_rows * len(thresholds)
        and all(b > a for a, b in itertools.pairwise(thresholds))
        and dims.dtype in (np.uint16, np.int32)
        and lens.sum(dtype=np.uint64) == len(dims)
        and (own or not len(dims) or (dims.min() >= 0 and dims.max() < dim))
    )
    if not ok:
        raise IndexFormatError(f"{path}: the passages' lists point outside the segment")
    return _indptr(lens)


def _postings(path: Path, arrays: dict[str, NDArray[Any]], n_rows: int, n_keys: int, own: bool) -> Postings:
    lens, rows, bitmaps = arrays["list_lens"], arrays["rows"], arrays["bitmaps"]
    list_keys, bitmap_keys, counts = arrays["list_keys"], arrays["bitmap_keys"], arrays["bitmap_counts"]
    n_blocks, n_chunks = blocks_of(n_rows), chunks_of(n_rows)
    ok = (
        lens.dtype in _COUNTS
        and counts.dtype in _COUNTS
        and _ascending(list_keys, n_keys)
        and _ascending(bitmap_keys, n_keys)
        and _disjoint(list_keys, bitmap_keys)
        and len(counts) == len(bitmap_keys)
        and (not len(counts) or int(counts.max()) <= n_rows)
        and len(lens) == n_blocks * len(list_keys)
        and rows.dtype == np.uint16
        and bitmaps.dtype == np.uint32
        and len(bitmaps) == n_chunks * len(bitmap_keys) * CHUNK_WORDS
        and len(rows) + int(counts.sum(dtype=np.uint64)) == len(arrays["doc_dims"])
    )
    if ok:
        block_lens = lens.reshape(n_blocks, len(list_keys))
        totals = block_lens.sum(axis=1, dtype=np.uint64)
        ok = int(totals.sum(dtype=np.uint64)) == len(rows) and (not len(totals) or int(totals.max()) < 1 << 32)
    if not ok:
        raise IndexFormatError(f"{path}: posting lists or bitmaps point outside the segment")
    block_starts = _indptr(totals)
    starts = np.zeros((n_blocks, len(list_keys) + 1), np.uint32)
    np.cumsum(block_lens, axis=1, out=starts[:, 1:])
    postings = Postings(
        n_rows,
        n_keys,
        list_keys,
        starts,
        block_starts[:-1],
        rows,
        bitmap_keys,
        counts.astype(np.int64),
        bitmaps.reshape(n_chunks, len(bitmap_keys), CHUNK_WORDS),
    )
    if not own and not _inside(postings):
        raise IndexFormatError(f"{path}: posting lists or bitmaps hold rows that are not there")
    return postings


def _ascending(keys: NDArray[Any], n_keys: int) -> bool:
    return keys.dtype == np.int32 and (
        not len(keys) or bool(keys[0] >= 0 and keys[-1] < n_keys and np.all(keys[1:] > keys[:-1]))
    )


def _disjoint(keys: NDArray[np.int32], others: NDArray[np.int32]) -> bool:
    """Whether no number is in both; both ascend."""
    at = np.searchsorted(keys, others)
    return not np.any(keys[at[at < len(keys)]] == others[at < len(keys)])


def _inside(postings: Postings) -> bool:
    """Whether every row is there; only the last block and the last chunk have room for others."""
    n_rows = postings.n_rows
    last = postings.rows[postings.block_starts[-1] :] if n_rows % BLOCK_ROWS else postings.rows[:0]
    if len(last) and int(last.max()) >= n_rows % BLOCK_ROWS:
        return False
    if not len(postings.bitmap_keys) or not n_rows % CHUNK_ROWS:
        return True
    bits = np.unpackbits(postings.bitmaps[-1].view(np.uint8), axis=1, bitorder="little")
    return not bits[:, n_rows % CHUNK_ROWS :].any()


def _indptr(lens: NDArray[Any]) -> NDArray[np.int64]:
    indptr = np.zeros(len(lens) + 1, dtype=np.int64)
    np.cumsum(lens, out=indptr[1:])
    return indptr


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    top = int(values.max()) if values.size else 0
    return values.astype(np.uint8 if top < 256 else np.uint16 if top < 65_536 else np.uint32)
