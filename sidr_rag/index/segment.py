"""A segment: the bags of tokens of some passages, forward and inverted, one pair of lists for each level."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import IndexFormatError
from sidr_rag.index.arrays import read_arrays, write_arrays
from sidr_rag.index.columns import Columns

_LENGTHS = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


@dataclass(frozen=True)
class Level:
    """The tokens that occur at least `threshold` times: a binary bag for each passage.

    Attributes:
        threshold: n_l of the scoring contract.
        doc_indptr: i64[n_rows + 1] into `doc_dims`.
        doc_dims: u16 or i32 [nnz], ascending within a row.
        term_dims: the dimensions that have postings, ascending, same dtype as `doc_dims`.
        term_indptr: i64[len(term_dims) + 1] into `rows`.
        rows: u16 (at most 65,536 rows) or u32 [nnz], ascending within a posting list.
    """

    threshold: int
    doc_indptr: NDArray[np.int64]
    doc_dims: NDArray[Any]
    term_dims: NDArray[Any]
    term_indptr: NDArray[np.int64]
    rows: NDArray[Any]

    def postings_of(self, dims: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Which of the given dimensions have postings here: their positions in `dims`, list starts and list ends."""
        if not len(self.term_dims):
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        at = np.searchsorted(self.term_dims, dims)
        at[at == len(self.term_dims)] = 0
        found = np.flatnonzero(self.term_dims[at] == dims)
        at = at[found]
        return found, self.term_indptr[at], self.term_indptr[at + 1]

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
        levels: one `Level` per threshold, thresholds ascending.
        columns: the rows' metadata, for filters.
    """

    dim: int
    seqs: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    levels: tuple[Level, ...]
    columns: Columns

    @property
    def n_rows(self) -> int:
        """Number of passages, deleted ones included."""
        return len(self.seqs)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: list[NDArray[Any]] = [self.seqs, self.lengths]
        for level in self.levels:
            arrays += [level.doc_indptr, level.doc_dims, level.term_dims, level.term_indptr, level.rows]
        return sum(a.nbytes for a in arrays)

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
        arrays: dict[str, NDArray[Any]] = {"seqs": self.seqs, "lengths": _narrow(self.lengths), **self.columns.arrays()}
        for i, level in enumerate(self.levels):
            arrays[f"{i}.doc_lens"] = _narrow(np.diff(level.doc_indptr))
            arrays[f"{i}.doc_dims"] = level.doc_dims
            arrays[f"{i}.term_lens"] = _narrow(np.diff(level.term_indptr))
            arrays[f"{i}.term_dims"] = level.term_dims
            arrays[f"{i}.rows"] = level.rows
        thresholds = ",".join(str(level.threshold) for level in self.levels)
        write_arrays(path, arrays, {"format": "sidr-segment-1", "dim": str(self.dim), "levels": thresholds})

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
        arrays, meta = read_arrays(path, own=own)
        try:
            if meta["format"] != "sidr-segment-1":
                raise IndexFormatError(f"{path}: format {meta['format'][:40]!r}; this version reads 'sidr-segment-1'")
            dim = int(meta["dim"])
            thresholds = [int(t) for t in meta["levels"].split(",")]
            seqs = arrays["seqs"]
            levels = tuple(_level(path, arrays, i, t, len(seqs), dim, own) for i, t in enumerate(thresholds))
            lengths = arrays["lengths"]
            columns = Columns.of_arrays(arrays, len(seqs))
        except (KeyError, ValueError, OverflowError, RecursionError) as e:
            raise IndexFormatError(f"{path}: a part of the segment is missing or unreadable") from e
        if (
            seqs.dtype != np.uint64
            or lengths.dtype not in _LENGTHS
            or len(lengths) != len(seqs)
            or np.any(seqs[1:] <= seqs[:-1])
        ):
            raise IndexFormatError(f"{path}: rows are not in order")
        return cls(dim, seqs, lengths.astype(np.uint32), levels, columns)


def _level(
    path: Path, arrays: dict[str, NDArray[Any]], i: int, threshold: int, n_rows: int, dim: int, own: bool
) -> Level:
    doc_dims, term_dims, rows = arrays[f"{i}.doc_dims"], arrays[f"{i}.term_dims"], arrays[f"{i}.rows"]
    doc_lens, term_lens = arrays[f"{i}.doc_lens"], arrays[f"{i}.term_lens"]
    if doc_lens.dtype not in _LENGTHS or term_lens.dtype not in _LENGTHS:
        # A negative length would let a list begin or end outside `rows` although their sum is right.
        raise IndexFormatError(f"{path}: list lengths of level {threshold} are not unsigned integers")
    doc_indptr, term_indptr = _indptr(doc_lens), _indptr(term_lens)
    ok = (
        len(doc_indptr) == n_rows + 1
        and len(term_indptr) == len(term_dims) + 1
        and doc_indptr[-1] == len(doc_dims)
        and term_indptr[-1] == len(rows)
        and len(rows) == len(doc_dims)
        and rows.dtype in (np.uint16, np.uint32)
        and doc_dims.dtype in (np.uint16, np.int32)
        and term_dims.dtype == doc_dims.dtype
        and (own or not len(rows) or rows.max() < n_rows)
        and (own or not len(doc_dims) or (doc_dims.min() >= 0 and doc_dims.max() < dim))
        and (not len(term_dims) or (term_dims.min() >= 0 and term_dims.max() < dim))
        and bool(np.all(term_dims[1:] > term_dims[:-1]))
    )
    if not ok:
        raise IndexFormatError(f"{path}: lists of level {threshold} point outside the segment")
    return Level(threshold, doc_indptr, doc_dims, term_dims, term_indptr, rows)


def _indptr(lens: NDArray[Any]) -> NDArray[np.int64]:
    indptr = np.zeros(len(lens) + 1, dtype=np.int64)
    np.cumsum(lens, out=indptr[1:])
    return indptr


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    top = int(values.max()) if len(values) else 0
    return values.astype(np.uint8 if top < 256 else np.uint16 if top < 65_536 else np.uint32)
