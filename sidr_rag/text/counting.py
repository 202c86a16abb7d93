"""Dimensions with repetition to distinct dimensions and their counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.ragged import places
from sidr_rag.types import TokenCounts


class CountsBuilder:
    """Collects the rows of a `TokenCounts`, a block of texts at a time."""

    def __init__(self, dim: int) -> None:
        """Start without rows, over `dim` dimensions."""
        self._dim = dim
        self._narrow = dim <= 1 << 16
        self._dtype = np.uint16 if self._narrow else np.int32
        self._dims: list[NDArray[Any]] = [np.empty(0, self._dtype)]
        self._counts = [np.empty(0, np.uint32)]
        self._sizes = [np.zeros(1, np.int64)]
        self._lengths = [np.empty(0, np.uint32)]

    def add_block(self, rows: NDArray[np.uint32], dims: NDArray[np.int32], n_rows: int) -> None:
        """Add at most 65,536 rows: row `rows[i]` of them has `dims[i]` once (more), for every i."""
        # One sort of (row, dimension) keys brings equal pairs together, rows and dimensions ascending.
        key_type: type[np.unsignedinteger[Any]] = np.uint32 if self._narrow else np.uint64
        shift = key_type(16 if self._narrow else 32)
        keys = rows.astype(key_type)
        keys <<= shift
        keys |= dims.astype(key_type)
        keys.sort()
        row_ends = np.arange(1, n_rows + 1, dtype=key_type) << shift
        row_ends -= key_type(1)  # the last row's end may not fit the type
        lengths = np.diff(np.searchsorted(keys, row_ends, side="right"), prepend=0)
        is_first = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        distinct = keys.take(firsts)
        self._dims.append(distinct.astype(self._dtype))  # drops the row
        self._counts.append(np.diff(firsts, append=len(keys)).astype(np.uint32))
        self._sizes.append(np.diff(np.searchsorted(distinct, row_ends, side="right"), prepend=0))
        self._lengths.append(lengths.astype(np.uint32))

    def add_row(self, histogram: NDArray[np.int64]) -> None:
        """Add one row: `histogram[d]` is the count of dimension d."""
        dims = np.flatnonzero(histogram)
        self._dims.append(dims.astype(self._dtype))
        self._counts.append(histogram[dims].astype(np.uint32))
        self._sizes.append(np.array([len(dims)]))
        self._lengths.append(np.array([histogram.sum()], dtype=np.uint32))

    def result(self) -> TokenCounts:
        """All rows added so far."""
        return TokenCounts(
            indptr=np.cumsum(np.concatenate(self._sizes), dtype=np.int64),
            dims=np.concatenate(self._dims),
            counts=np.concatenate(self._counts),
            lengths=np.concatenate(self._lengths),
            dim=self._dim,
        )


def gathered(parts: Sequence[TokenCounts], part: NDArray[np.int64], row: NDArray[np.int64]) -> TokenCounts:
    """New counts of which row i is row `row[i]` of `parts[part[i]]`; there is at least one part."""
    first_row = np.cumsum([0, *map(len, parts)])
    first_entry = np.cumsum([0, *(len(p.dims) for p in parts)])
    starts = np.concatenate([p.indptr[:-1] + at for p, at in zip(parts, first_entry, strict=False)])
    sizes = np.concatenate([np.diff(p.indptr) for p in parts])
    wanted = first_row[part] + row
    sizes = sizes[wanted]
    entries = places(starts[wanted], sizes)
    indptr = np.zeros(len(wanted) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return TokenCounts(
        indptr=indptr,
        dims=np.concatenate([p.dims for p in parts])[entries],
        counts=np.concatenate([p.counts for p in parts])[entries],
        lengths=np.concatenate([p.lengths for p in parts])[wanted],
        dim=parts[0].dim,
    )
