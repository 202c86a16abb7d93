"""What numba compiles of the scans by integers: serial functions without bounds checks or the interpreter's lock.

Their arguments are the arrays of `Postings` and `Segment`, validated where a segment is opened. This module imports
numba: import it only where a kernel is built.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from sidr_rag.index.postings import ABSENT, BLOCK_ROWS, CHUNK_ROWS, CHUNK_WORDS
from sidr_rag.search.vectors import (
    add_bitmaps,
    copy_chunk,
    fetch,
    highest,
    lowest_bit,
    mask_chunk,
    scale_chunk,
    sum_passage,
)

_BLOCK_CHUNKS = BLOCK_ROWS // CHUNK_ROWS
# Bitmaps are left out at first where posting lists weigh this many times as much.
_BITMAPS_LEFT_OUT = 2


@register_jitable
def push_low(lows: Any, value: Any) -> None:
    """Put a number in the place of the lowest of a heap whose root is the lowest; it is higher than the root."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= len(lows):
            break
        if child + 1 < len(lows) and lows[child + 1] < lows[child]:
            child += 1
        if value <= lows[child]:
            break
        lows[hole] = lows[child]
        hole = child
    lows[hole] = value


@register_jitable
def chunk_keys(sums: Any, at: Any, row: Any, steps: Any, allowed: Any, keys: Any) -> None:
    """The K of the chunk that begins at `row`, and 0 for rows that may not be found."""
    if len(steps):
        scale_chunk(sums, at, steps, row, keys)
    else:
        copy_chunk(sums, at, keys)
    if len(allowed):
        mask_chunk(keys, allowed, row)


def scan_rows(
    dims: Any,
    weights: Any,
    gains: Any,
    scale: Any,
    codes: Any,
    list_starts: Any,
    block_starts: Any,
    rows: Any,
    bitmaps: Any,
    first_block: Any,
    last_block: Any,
    steps: Any,
    allowed: Any,
    doc_indptr: Any,
    sums: Any,
    lows: Any,
    found: Any,
) -> int:
    """Rows that can be among the best, ascending, into `found`; how many, or -1 if that is too small.

    See `sidr_rag.search.bounds` for what the integers mean. `steps` and `allowed` may be empty. `lows` holds k zeros.
    """
    n_levels = len(gains)
    n_keys = len(codes) // n_levels
    n_rows = (len(doc_indptr) - 1) // n_levels
    chunk_words = bitmaps.shape[1] * CHUNK_WORDS
    flat = bitmaps.reshape(bitmaps.size)

    lists = np.empty(n_levels * len(dims), np.int64)
    list_weights = np.empty(len(lists), np.uint16)
    weights_here = np.empty(len(lists), np.uint16)
    begins = np.empty(len(lists), np.int64)
    ends = np.empty(len(lists), np.int64)
    n_lists = 0
    words = np.empty(len(lists), np.int64)
    word_weights = np.empty(len(lists), np.uint16)
    n_words = 0
    for level in range(n_levels):
        if gains[level] == 0.0:
            continue
        for i in range(len(dims)):
            code = codes[level * n_keys + dims[i]]
            if code == ABSENT:
                continue
            weight = np.uint16(max(1.0, np.ceil(gains[level] * weights[i] * scale)))
            if code >= 0:
                lists[n_lists] = code
                list_weights[n_lists] = weight
                n_lists += 1
            else:
                words[n_words] = (-2 - code) * CHUNK_WORDS
                word_weights[n_words] = weight
                n_words += 1
    words = words[:n_words]
    word_weights = word_weights[:n_words]

    first_chunk = first_block * _BLOCK_CHUNKS
    last_chunk = min(last_block * _BLOCK_CHUNKS, (n_rows + CHUNK_ROWS - 1) // CHUNK_ROWS)
    tops = np.empty(last_chunk - first_chunk, np.uint16)
    by_bitmaps = np.int64(0)
    for i in range(n_words):
        by_bitmaps += word_weights[i]
    by_lists = np.int64(0)
    for i in range(n_lists):
        by_lists += list_weights[i]

    for block in range(first_block, last_block):
        base = (block - first_block) * BLOCK_ROWS
        here = sums[base : base + min(BLOCK_ROWS, len(tops) * CHUNK_ROWS - base)]
        here[:] = 0
        starts = list_starts[block]
        first = block_starts[block]
        n_here = 0
        for i in range(n_lists):
            begin = first + starts[lists[i]]
            end = first + starts[lists[i] + 1]
            fetch(rows, begin)
            begins[n_here] = begin
            ends[n_here] = end
            weights_here[n_here] = list_weights[i]
            n_here += end > begin
        for i in range(n_here):
            weight = weights_here[i]
            for j in range(begins[i], ends[i]):
                here[rows[j]] += weight

    # First without the bitmaps, if all of them together can hardly lift a row among the best; then with them.
    keys = np.empty(CHUNK_ROWS, np.uint16)
    for with_bitmaps in range(0 if 0 < _BITMAPS_LEFT_OUT * by_bitmaps <= by_lists else 1, 2):
        lows[:] = 0
        for chunk in range(len(tops)):
            at = chunk * CHUNK_ROWS
            row = (first_chunk + chunk) * CHUNK_ROWS
            if with_bitmaps and n_words:
                first = (first_chunk + chunk) * chunk_words
                add_bitmaps(flat, first, words, word_weights, 2 * chunk_words, sums, at)
            chunk_keys(sums, at, row, steps, allowed, keys)
            top = highest(keys)
            tops[chunk] = top
            if top <= lows[0]:
                continue
            for r in range(CHUNK_ROWS):
                value = np.int64(keys[r])
                if value <= lows[0]:
                    continue
                for level in range(n_levels):
                    if gains[level] != 0.0:
                        i = level * n_rows + row + r
                        value -= min(len(dims), doc_indptr[i + 1] - doc_indptr[i])
                if value - 2 > lows[0]:
                    push_low(lows, value - 2)

        bound = lows[0] - 2
        most = len(found)
        if with_bitmaps:
            bound = max(1, bound)
        else:
            bound -= by_bitmaps + 1
            most = min(most, 64 + len(tops))
            if bound < 1:
                continue
        count = 0
        for chunk in range(len(tops)):
            if tops[chunk] < bound:
                continue
            row = (first_chunk + chunk) * CHUNK_ROWS
            chunk_keys(sums, chunk * CHUNK_ROWS, row, steps, allowed, keys)
            for r in range(CHUNK_ROWS):
                if keys[r] >= bound:
                    if count < most:
                        found[count] = row + r
                    count += 1
            if count > most:
                break
        if count <= most:
            return count
    return -1


def scan_batch(
    doc_indptr: Any,
    doc_dims: Any,
    gains: Any,
    table: Any,
    sizes: Any,
    first_row: Any,
    last_row: Any,
    steps: Any,
    allowed: Any,
    lows: Any,
    found: Any,
    keys: Any,
    counts: Any,
) -> None:
    """The forward lists of some rows against 32 queries at once: for each, the rows that can be among its best.

    Args:
        doc_indptr: as in `Segment`.
        doc_dims: as in `Segment`.
        gains: f64[n_levels]; only whether one is 0 matters.
        table: u16[n_levels * dim + 1, 32]; the queries' integer weights, zeros for levels that do not count, and a last
            row of zeros.
        sizes: i64[32]; how many dimensions a query has.
        first_row: where to begin.
        last_row: where to end.
        steps: u16[n_rows], or empty.
        allowed: u32 bits of the rows, or empty.
        lows: i64[32, k]; zeros.
        found: i64[32, capacity]; the rows, ascending.
        keys: u16[32, capacity]; their scaled sums.
        counts: i64[32]; how many, or -1 if the capacity is too small.
    """
    n_levels = len(gains)
    n_rows = (len(doc_indptr) - 1) // n_levels
    capacity = found.shape[1]
    shape = np.empty(3, np.int64)
    shape[0] = n_rows
    shape[1] = n_levels
    shape[2] = len(table) // n_levels
    while shape[1] > 1 and gains[shape[1] - 1] == 0.0:
        shape[1] -= 1
    sums = np.zeros(32, np.uint16)
    bounds = np.ones(32, np.uint16)
    counts[:] = 0
    for row in range(first_row, last_row):
        if len(allowed) and not (allowed[row >> 5] >> np.uint32(row & 31)) & np.uint32(1):
            continue
        step = steps[row] if len(steps) else np.uint16(0)
        hits = sum_passage(doc_dims, doc_indptr, row, shape, table, step, bounds, sums)
        while hits != 0:
            q = lowest_bit(hits)
            hits = hits & np.uint32(hits - np.uint32(1))
            count = counts[q]
            if count < 0:
                continue
            if count == capacity:
                kept = 0
                for c in range(count):
                    if keys[q, c] >= bounds[q]:
                        found[q, kept] = found[q, c]
                        keys[q, kept] = keys[q, c]
                        kept += 1
                count = kept
                if 2 * kept > capacity:
                    counts[q] = -1
                    bounds[q] = 65_535
                    continue
            found[q, count] = row
            keys[q, count] = sums[q]
            counts[q] = count + 1
            low = np.int64(sums[q]) - 2
            for level in range(n_levels):
                if gains[level] != 0.0:
                    i = level * n_rows + row
                    low -= min(sizes[q], doc_indptr[i + 1] - doc_indptr[i])
            if low > lows[q, 0]:
                push_low(lows[q], low)
                bounds[q] = max(1, lows[q, 0] - 2)
    for q in range(32):
        kept = 0
        for c in range(counts[q]):
            if keys[q, c] >= bounds[q]:
                found[q, kept] = found[q, c]
                kept += 1
        if counts[q] >= 0:
            counts[q] = kept
