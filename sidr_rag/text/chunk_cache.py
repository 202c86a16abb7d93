"""What a tokenizer remembers: the dimensions of every white-space-separated chunk of text it has met."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.ragged import RaggedStore, sums_by_run
from sidr_rag.text.vocabulary import Vocabulary

_LONGEST_KEPT = 64  # longer strings rarely come twice and would fill the memory
_VALUES_PER_ENTRY = 8
_END = "\n"


class Numbering:
    """Strings to numbers: a string not met before gets the next number, without any Python code being run."""

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self._next = itertools.count()
        self._numbers: defaultdict[str, int] = defaultdict(self._next.__next__)
        self.number = self._numbers.__getitem__

    def __getitem__(self, key: str) -> int:
        return self._numbers[key]

    def take_new(self) -> list[str]:
        """The strings that got their numbers since the last call, in that order; the long ones are forgotten."""
        numbers = self._numbers
        n_new = next(reversed(numbers.values()), -1) + 1 - self.count
        new = list(itertools.islice(reversed(numbers), max(n_new, 0)))
        new.reverse()
        self.count += len(new)
        for key in new:
            if len(key) > _LONGEST_KEPT:
                del numbers[key]
        return new


class ChunkCache:
    """Chunks to dimensions through words to dimensions; used by one thread at a time."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        words_of_chunks: Callable[[list[str]], list[str]],
        ids_of_word: Callable[[str], list[int]],
        size: int,
    ) -> None:
        """Start empty.

        Args:
            vocabulary: maps token ids to dimensions.
            words_of_chunks: the words of all chunks in order, with "\\n" after each chunk's last one.
            ids_of_word: token ids of one word.
            size: how many chunks, and how many words, to remember before `full` says so.
        """
        self._vocabulary = vocabulary
        self._words_of_chunks = words_of_chunks
        self._ids_of_word = ids_of_word
        self._size = size
        self._chunks = Numbering()
        self._words = Numbering()
        dtype = np.uint16 if vocabulary.dim <= 1 << 16 else np.int32
        self._chunk_dims = RaggedStore(dtype)
        self._word_dims = RaggedStore(dtype)

    @property
    def full(self) -> bool:
        """Whether the cache has outgrown its size and should be replaced by a fresh one."""
        largest = max(self._chunks.count, self._words.count)
        values = self._chunk_dims.n_values + self._word_dims.n_values
        return largest > self._size or values > _VALUES_PER_ENTRY * self._size

    def dims(self, texts: Iterable[list[str]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The dimensions of texts that are given as lists of chunks.

        Returns:
            All texts' dimensions one after the other, with repetition; and i64[n], how many each text has.
        """
        number = self._chunks.number
        numbers: list[int] = []
        n_chunks: list[int] = []
        for chunks in texts:
            numbers += map(number, chunks)
            n_chunks.append(len(chunks))
        self._resolve_chunks()
        dims, lengths = self._chunk_dims.take(np.array(numbers, dtype=np.int64))
        return dims, sums_by_run(lengths, np.array(n_chunks, dtype=np.int64))

    def _resolve_chunks(self) -> None:
        pending = self._chunks.take_new()
        if not pending:
            return
        words = self._words_of_chunks(pending)
        numbers = np.fromiter(map(self._words.number, words), dtype=np.int64, count=len(words))
        self._resolve_words()
        dims, lengths = self._word_dims.take(numbers)
        ends = np.flatnonzero(numbers == self._words[_END])
        self._chunk_dims.append(dims, sums_by_run(lengths, np.diff(ends, prepend=-1)))

    def _resolve_words(self) -> None:
        pending = self._words.take_new()
        ids: list[int] = []
        ends: list[int] = []
        for word in pending:
            if word != _END:
                ids += self._ids_of_word(word)
            ends.append(len(ids))
        dims = self._vocabulary.token_to_dim[np.array(ids, dtype=np.int64)]
        is_dim = dims >= 0
        lengths = np.diff(np.array(ends, dtype=np.int64), prepend=0)
        self._word_dims.append(dims[is_dim], sums_by_run(is_dim.astype(np.int64), lengths))
