"""What numba compiles of the exact arithmetic: serial functions without bounds checks or the interpreter's lock.

Their arguments are the arrays of `Postings` and `Segment`, validated where a segment is opened. This module imports
numba: import it only where a kernel is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sidr_rag.index.postings import ABSENT, BLOCK_ROWS, CHUNK_ROWS, CHUNK_WORDS
from sidr_rag.search.vectors import lowest_bit

_BLOCK_CHUNKS = BLOCK_ROWS // CHUNK_ROWS


def score_rows(
    dims: Any,
    weights: Any,
    gains: Any,
    codes: Any,
    list_starts: Any,
    block_starts: Any,
    rows: Any,
    bitmaps: Any,
    first_block: Any,
    scores: Any,
) -> None:
    """Plain accumulation in the canonical order: f64 `scores` of the rows from `first_block` on."""
    n_keys = len(codes) // len(gains)
    n_bitmaps = bitmaps.shape[1]
    for base in range(0, len(scores), BLOCK_ROWS):
        block = first_block + base // BLOCK_ROWS
        starts = list_starts[block]
        first = block_starts[block]
        last_chunk = min(bitmaps.shape[0], (block + 1) * _BLOCK_CHUNKS) if n_bitmaps else 0
        for level in range(len(gains)):
            gain = gains[level]
            if gain == 0.0:
                continue
            for i in range(len(dims)):
                code = codes[level * n_keys + dims[i]]
                weight = gain * weights[i]
                if code >= 0:
                    for j in range(first + starts[code], first + starts[code + 1]):
                        scores[base + rows[j]] += weight
                elif code < ABSENT:
                    for chunk in range(block * _BLOCK_CHUNKS, last_chunk):
                        at = base + (chunk - block * _BLOCK_CHUNKS) * CHUNK_ROWS
                        for j in range(CHUNK_WORDS):
                            word = bitmaps[chunk, -2 - code, j]
                            while word != 0:
                                scores[at + 32 * j + lowest_bit(word)] += weight
                                word = word & np.uint32(word - np.uint32(1))


def rescore(doc_indptr: Any, doc_dims: Any, gains: Any, table: Any, factors: Any, rows: Any, values: Any) -> int:
    """Canonical scores of rows into `values`; rows whose sum is 0 are dropped. How many are left.

    Args:
        doc_indptr: as in `Segment`.
        doc_dims: as in `Segment`.
        gains: f64[n_levels].
        table: f64[dim]; the query's weights.
        factors: f64[m], of these rows, or empty.
        rows: i64[m]; changed.
        values: f32[m].
    """
    n_rows = (len(doc_indptr) - 1) // len(gains)
    count = 0
    for c in range(len(rows)):
        row = rows[c]
        total = 0.0
        for level in range(len(gains)):
            gain = gains[level]
            if gain == 0.0:
                continue
            for j in range(doc_indptr[level * n_rows + row], doc_indptr[level * n_rows + row + 1]):
                total += gain * table[doc_dims[j]]
        if total > 0.0:
            rows[count] = row
            values[count] = np.float32(total * factors[c] if len(factors) else total)
            count += 1
    return count


def accumulate_weighted(rows: Any, values: Any, starts: Any, ends: Any, weights: Any, scores: Any) -> None:
    """`NumpyKernel.accumulate_weighted`."""
    for i in range(len(starts)):
        weight = weights[i]
        for j in range(starts[i], ends[i]):
            scores[rows[j]] += weight * np.float64(values[j])


def select(
    scores: Any, factors: Any, has_factors: bool, allowed: Any, has_allowed: bool, best: Any, best_rows: Any
) -> None:
    """`NumpyKernel.select`, unsorted.

    `best` and `best_rows` are a heap whose root is the worst hit kept (lowest value, then highest row); it starts full
    of -inf. Rows come in ascending order, so a value that only equals the root's never displaces it.
    """
    size = len(best)
    worst = np.float64(best[0])
    for row in range(len(scores)):
        score = scores[row]
        if not score > 0.0:
            continue
        if has_factors:
            score = score * factors[row]
        if not score > worst:  # rounding to float32 keeps order, so this row could not win
            continue
        value = np.float32(score)
        if not value > best[0] or (has_allowed and not allowed[row]):
            continue
        hole = 0
        while True:
            child = 2 * hole + 1
            if child >= size:
                break
            other = child + 1
            if other < size and (
                best[other] < best[child] or (best[other] == best[child] and best_rows[other] > best_rows[child])
            ):
                child = other
            if value < best[child] or (value == best[child] and row > best_rows[child]):
                break
            best[hole] = best[child]
            best_rows[hole] = best_rows[child]
            hole = child
        best[hole] = value
        best_rows[hole] = row
        worst = np.float64(best[0])
