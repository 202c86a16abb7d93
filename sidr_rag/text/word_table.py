"""What a tokenizer remembers: the dimensions of every word it has met."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import SpanNumbering
from sidr_rag.text.plain import LETTER, PUNCTUATION, PlainLines
from sidr_rag.text.ragged import RaggedStore, sums_by_run, with_room
from sidr_rag.text.vocabulary import Vocabulary
from sidr_rag.text.wordpiece import WordPiece

_VALUES_PER_ENTRY = 4


class WordTable:
    """Words to dimensions; used by one thread at a time."""

    def __init__(self, vocabulary: Vocabulary, word_piece: WordPiece, *, size: int) -> None:
        """Start empty.

        Args:
            vocabulary: maps token ids to dimensions.
            word_piece: the words' token ids.
            size: how many words to remember before `full` says so.
        """
        self._vocabulary = vocabulary
        self._word_piece = word_piece
        self._size = size
        self._words = SpanNumbering()
        self._single = np.full(1 << 10, -1, dtype=np.int32)  # a word's dimension, if it has just one; else -1 - entry
        self._several = RaggedStore(np.int32)
        self._several.append(np.empty(0, np.int32), np.zeros(1, np.int64))  # of words that have none
        self._n_words = 1
        self._punctuation = np.full(128, -1, dtype=np.int32)
        for code in range(0x21, 0x7F):
            if not chr(code).isalnum():
                (token,) = word_piece.ids(chr(code))
                self._punctuation[code] = vocabulary.token_to_dim[token]

    @property
    def full(self) -> bool:
        """Whether the table has outgrown its size and should be replaced by a fresh one."""
        return self._words.count > self._size or self._several.n_values > _VALUES_PER_ENTRY * self._size

    def occurrences(self, lines: PlainLines) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Line and dimension of every occurrence of a dimension, in no particular order."""
        data, kinds, ends = lines
        is_letter = kinds == LETTER
        edges = np.flatnonzero(is_letter[1:] != is_letter[:-1])
        starts = edges[::2] + 1
        lengths = edges[1::2] - edges[::2]
        numbers, new = self._words.numbers(data, starts, lengths)
        if len(new):
            self._resolve(data, starts[new], lengths[new])
        dims = self._single.take(numbers)
        rows = _lines_of(starts, ends)
        parts = [(rows, dims)]
        others = np.flatnonzero(dims < 0)
        if len(others):
            several, n_several = self._several.take(-1 - dims.take(others))
            is_single = np.flatnonzero(dims >= 0)
            parts = [(rows.take(is_single), dims.take(is_single)), (np.repeat(rows.take(others), n_several), several)]
        marks = np.flatnonzero(kinds == PUNCTUATION)
        mark_dims = self._punctuation.take(np.frombuffer(data, dtype=np.uint8).take(marks))
        mark_rows = _lines_of(marks, ends)
        if (is_none := mark_dims < 0).any():
            mark_rows, mark_dims = mark_rows[~is_none], mark_dims[~is_none]
        parts.append((mark_rows, mark_dims))
        return np.concatenate([r for r, _ in parts]), np.concatenate([d for _, d in parts])

    def _resolve(self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Find out the dimensions of new words, which get the next numbers."""
        order, ids, n_ids = self._word_piece.ids_of_spans(data, starts, lengths)
        dims: NDArray[np.int32] = self._vocabulary.token_to_dim[ids]
        is_dim = dims >= 0
        n_dims = sums_by_run(is_dim, n_ids)
        dims = dims[is_dim]
        firsts = np.cumsum(n_dims) - n_dims
        single = np.full(len(starts), -1, dtype=np.int32)
        has_one = n_dims == 1
        single[order[has_one]] = dims[firsts[has_one]]
        has_several = n_dims > 1
        n_several = n_dims[has_several]
        single[order[has_several]] = -1 - self._several.n_entries - np.arange(len(n_several), dtype=np.int32)
        self._several.append(dims[np.repeat(has_several, n_dims)], n_several)
        end = self._n_words + len(single)
        self._single = with_room(self._single, self._n_words, end)
        self._single[self._n_words : end] = single
        self._n_words = end


def _lines_of(places: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
    """The line of each place, places ascending: u32."""
    counts = np.searchsorted(places, ends)
    counts[1:] -= counts[:-1].copy()
    return np.repeat(np.arange(len(ends), dtype=np.uint32), counts)
