"""The inverted lists of a segment: bitmaps for the dimensions that many passages hold, posting lists for the rest.

A key is a (level, dimension) pair as one number, `level_position * dim + dimension`; ascending keys are the canonical
order of a score's sum. Rows come in blocks of 65,536, so that a posting is a u16 and the lists of a block are a range
of memory; bitmaps come in chunks of 512 rows (a line of the processor's cache for each key), one key after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 1 << 16
CHUNK_ROWS = 512
CHUNK_WORDS = CHUNK_ROWS // 32
ABSENT = -1  # in `Postings.codes`
_BLOCK_CHUNKS = BLOCK_ROWS // CHUNK_ROWS


@dataclass(frozen=True)
class Postings:
    """Which rows hold which key.

    Attributes:
        n_rows: rows of the segment.
        n_keys: levels times dimensions.
        list_keys: i32[n_lists], ascending: the keys with posting lists.
        list_starts: u32[n_blocks, n_lists + 1], ascending along a row: where the lists of a block begin (and the last
            one ends), counted from `block_starts`.
        block_starts: i64[n_blocks]: where a block's lists begin in `rows`.
        rows: u16[postings], rows counted from the block's first one; ascending within a list.
        bitmap_keys: i32[n_bitmaps], ascending, distinct from `list_keys`.
        bitmap_counts: i64[n_bitmaps]: how many rows hold each.
        bitmaps: u32[n_chunks, n_bitmaps, 16]: row r is bit r % 32 of word r % 512 // 32 in chunk r // 512.
    """

    n_rows: int
    n_keys: int
    list_keys: NDArray[np.int32]
    list_starts: NDArray[np.uint32]
    block_starts: NDArray[np.int64]
    rows: NDArray[np.uint16]
    bitmap_keys: NDArray[np.int32]
    bitmap_counts: NDArray[np.int64]
    bitmaps: NDArray[np.uint32]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return blocks_of(self.n_rows)

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return chunks_of(self.n_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: list[NDArray[Any]] = [self.list_keys, self.list_starts, self.block_starts, self.rows]
        arrays += [self.bitmap_keys, self.bitmap_counts, self.bitmaps]
        return sum(a.nbytes for a in arrays)

    def codes_of(self, keys: NDArray[np.int32]) -> NDArray[np.int32]:
        """`codes[keys]`, without making `codes`."""
        found = np.full(len(keys), ABSENT, np.int32)
        for own, first, step in ((self.list_keys, 0, 1), (self.bitmap_keys, -2, -1)):
            if len(own):
                at = np.searchsorted(own, keys)
                at[at == len(own)] = 0
                here = own[at] == keys
                found[here] = first + step * at[here]
        return found

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """i32[n_keys]: where a key is: list i as i, bitmap i as -2 - i, or `ABSENT`."""
        codes = np.full(self.n_keys, ABSENT, np.int32)
        codes[self.list_keys] = np.arange(len(self.list_keys), dtype=np.int32)
        codes[self.bitmap_keys] = -2 - np.arange(len(self.bitmap_keys), dtype=np.int32)
        return codes

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What a compiled kernel reads: codes, list_starts, block_starts, rows, bitmaps."""
        return self.codes, self.list_starts, self.block_starts, self.rows, self.bitmaps

    def counts(self, first_key: int, n_keys: int) -> NDArray[np.int64]:
        """How many rows hold each key of a range, i64[n_keys]."""
        counts = np.zeros(n_keys, np.int64)
        starts = self.list_starts.astype(np.int64)
        lens = (starts[:, 1:] - starts[:, :-1]).sum(axis=0)
        for keys, values in ((self.list_keys, lens), (self.bitmap_keys, self.bitmap_counts)):
            a, b = np.searchsorted(keys, (first_key, first_key + n_keys))
            counts[keys[a:b] - first_key] = values[a:b]
        return counts

    def rows_of(self, key: int) -> NDArray[np.int64]:
        """The rows that hold a key, ascending."""
        code = int(self.codes_of(np.array([key], np.int32))[0])
        if code < ABSENT:
            return np.flatnonzero(self.flags_of(-2 - code))
        blocks = range(self.n_blocks if code >= 0 else 0)
        return np.concatenate(
            [np.empty(0, np.int64), *(b * BLOCK_ROWS + self.list_of(b, code).astype(np.int64) for b in blocks)]
        )

    def flags_of(self, i: int) -> NDArray[np.bool_]:
        """Which rows bitmap i names, bool[n_rows]."""
        packed = np.ascontiguousarray(self.bitmaps[:, i]).reshape(-1).view(np.uint8)
        return np.unpackbits(packed, count=self.n_rows, bitorder="little").view(np.bool_)

    def list_of(self, block: int, i: int) -> NDArray[np.uint16]:
        """Posting list i of one block."""
        first, starts = self.block_starts[block], self.list_starts[block]
        return self.rows[first + int(starts[i]) : first + int(starts[i + 1])]

    def rows_in(self, block: int, codes: NDArray[np.int32]) -> Iterator[NDArray[Any]]:
        """Which rows of a block, counted from its first one, hold the key of each code; none is `ABSENT`."""
        starts = self.list_starts[block].astype(np.int64) + self.block_starts[block]
        lists = np.maximum(codes, 0)
        ends = starts[1:][lists] if len(starts) > 1 else lists
        chunks = self.bitmaps[block * _BLOCK_CHUNKS : (block + 1) * _BLOCK_CHUNKS]
        for code, start, end in zip(codes.tolist(), starts[lists].tolist(), ends.tolist(), strict=True):
            if code >= 0:
                yield self.rows[start:end]
            else:  # the bits past the last row are 0
                packed = np.ascontiguousarray(chunks[:, -2 - code]).reshape(-1).view(np.uint8)
                yield np.flatnonzero(np.unpackbits(packed, bitorder="little").view(np.bool_))


def blocks_of(n_rows: int) -> int:
    """How many blocks so many rows take."""
    return -(-n_rows // BLOCK_ROWS)


def chunks_of(n_rows: int) -> int:
    """How many chunks so many rows take."""
    return -(-n_rows // CHUNK_ROWS)


def packed(flags: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """One bit for each row, u32[n_chunks * 16], as in `Postings.bitmaps`."""
    bits = np.zeros(chunks_of(len(flags)) * CHUNK_WORDS * 4, np.uint8)
    bits[: -(-len(flags) // 8)] = np.packbits(flags, bitorder="little")
    return bits.view(np.uint32)
