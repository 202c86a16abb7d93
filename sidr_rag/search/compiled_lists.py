"""What numba compiles of building: the inversion of forward lists, as `sidr_rag.index.builder` does it in NumPy.

Serial functions without bounds checks or the interpreter's lock. Their first arguments are the same: doc_indptr and
doc_dims as in `Segment`, codes as in `Postings`, the segment's rows, and the first row to read and the one after the
last. This module imports numba: import it only where a kernel is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sidr_rag.index.postings import ABSENT, CHUNK_ROWS


def count_lists(indptr: Any, dims: Any, codes: Any, n_rows: Any, first: Any, last: Any, lens: Any) -> None:
    """Add to `lens`, i64[n_lists], how many of the rows are in each posting list."""
    n_levels = (len(indptr) - 1) // n_rows
    n_keys = len(codes) // n_levels
    for level in range(n_levels):
        for j in range(indptr[level * n_rows + first], indptr[level * n_rows + last]):
            code = codes[level * n_keys + dims[j]]
            if code >= 0:
                lens[code] += 1


def fill_lists(
    indptr: Any, dims: Any, codes: Any, n_rows: Any, first: Any, last: Any, next_slot: Any, rows: Any
) -> None:
    """Write the posting lists of a block, u16; `next_slot`, i64[n_lists], says where each begins, and is moved on."""
    n_levels = (len(indptr) - 1) // n_rows
    n_keys = len(codes) // n_levels
    for level in range(n_levels):
        for row in range(first, last):
            for j in range(indptr[level * n_rows + row], indptr[level * n_rows + row + 1]):
                code = codes[level * n_keys + dims[j]]
                if code >= 0:
                    rows[next_slot[code]] = np.uint16(row - first)
                    next_slot[code] += 1


def fill_bitmaps(indptr: Any, dims: Any, codes: Any, n_rows: Any, first: Any, last: Any, bitmaps: Any) -> None:
    """Set the bits of whole chunks, u32[n_chunks, n_bitmaps, 16]."""
    n_levels = (len(indptr) - 1) // n_rows
    n_keys = len(codes) // n_levels
    for level in range(n_levels):
        for row in range(first, last):
            chunk = (row - first) // CHUNK_ROWS
            word = (row - first) % CHUNK_ROWS // 32
            bit = np.uint32(1) << np.uint32((row - first) % 32)
            for j in range(indptr[level * n_rows + row], indptr[level * n_rows + row + 1]):
                code = codes[level * n_keys + dims[j]]
                if code < ABSENT:
                    bitmaps[chunk, -2 - code, word] |= bit
