"""Dimensions with repetition to distinct dimensions and their counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def add_block(self, dims: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Add `len(lengths)` rows, at most 65,536: row r has the next `lengths[r]` of `dims`, in any order."""
        # One sort of (row, dimension) keys brings equal pairs together, rows and dimensions ascending.
        key_type: type[np.unsignedinteger[Any]] = np.uint32 if self._narrow else np.uint64
        shift = key_type(16 if self._narrow else 32)
        keys = np.repeat(np.arange(len(lengths), dtype=key_type) << shift, lengths)
        keys |= dims.astype(key_type)
        keys.sort()
        is_first = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
        firsts = np.flatnonzero(is_first)
        distinct = keys[firsts]
        self._dims.append((distinct & ((key_type(1) << shift) - key_type(1))).astype(self._dtype))
        self._counts.append(np.diff(firsts, append=len(keys)).astype(np.uint32))
        self._sizes.append(np.bincount((distinct >> shift).astype(np.int64), minlength=len(lengths)))
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
