"""What a tokenizer remembers: the dimensions of every white-space-separated chunk of text it has met."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import KeyTable
from sidr_rag.text.ragged import RaggedStore, sums_by_run
from sidr_rag.text.vocabulary import Vocabulary

_KEY_BYTES = 16
_LONGEST_KEPT = 64  # longer strings rarely come twice and would fill the memory
_VALUES_PER_ENTRY = 8
_END = "\n"

_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_IS_SEPARATOR = np.zeros(33, dtype=np.bool_)
_IS_SEPARATOR[[0x09, 0x0A, 0x0D, 0x20]] = True


class Numbering:
    """Strings to numbers: a string not met before gets the next number, without any Python code being run."""

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self._next = itertools.count()
        self._numbers: defaultdict[str, int] = defaultdict(self._next.__next__)
        self.number = self._numbers.__getitem__

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
    """Chunks to dimensions through words to dimensions; used by one thread at a time.

    Chunks are separated by space, tab, line feed and carriage return, which separate words under every rule; other
    white space inside a chunk is left to the tokenizer. Chunks of up to 16 bytes, nearly all, are looked up as arrays
    of keys; NUL, which no tokenizer here reads, pads the keys.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        words_of_chunks: Callable[[list[str]], list[str]],
        ids_of_word: Callable[[str], list[int]],
        *,
        ignore_ascii_case: bool,
        size: int,
    ) -> None:
        r"""Start empty.

        Args:
            vocabulary: maps token ids to dimensions.
            words_of_chunks: the words of all chunks in order, with "\n" after each chunk's last one.
            ids_of_word: token ids of one word.
            ignore_ascii_case: whether texts that differ in the case of ASCII letters have the same dimensions.
            size: how many chunks, and how many words, to remember before `full` says so.
        """
        self._vocabulary = vocabulary
        self._words_of_chunks = words_of_chunks
        self._ids_of_word = ids_of_word
        self._ignore_ascii_case = ignore_ascii_case
        self._size = size
        self._n_chunks = 0
        self._short_chunks = KeyTable()
        self._long_chunks: dict[bytes, int] = {}
        self._words = Numbering()
        dtype = np.uint16 if vocabulary.dim <= 1 << 16 else np.int32
        self._chunk_dims = RaggedStore(dtype)
        self._word_dims = RaggedStore(dtype)

    @property
    def full(self) -> bool:
        """Whether the cache has outgrown its size and should be replaced by a fresh one."""
        values = self._chunk_dims.n_values + self._word_dims.n_values
        return max(self._n_chunks, self._words.count) > self._size or values > _VALUES_PER_ENTRY * self._size

    def dims(self, texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The dimensions of texts.

        Returns:
            All texts' dimensions one after the other, with repetition; and i64[len(texts)], how many each has.
        """
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        text_ends = np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) + 1)
        data = b"\n".join([*encoded, bytes(_KEY_BYTES)])
        if self._ignore_ascii_case:
            data = data.lower()  # of ASCII letters only
        starts, lengths = _chunk_bounds(data, int(text_ends[-1]) if len(texts) else 0)
        numbers = self._numbers(data, starts, lengths)
        dims, n_dims = self._chunk_dims.take(numbers)
        return dims, sums_by_run(n_dims, _differences(np.searchsorted(starts, text_ends)))

    def _numbers(self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each chunk, after the dimensions of new ones have been found out."""
        is_long = lengths > _KEY_BYTES
        short = np.flatnonzero(~is_long)
        numbers = np.empty(len(starts), dtype=np.int64)
        low, high = _keys(data, starts[short], lengths[short])
        numbers[short], new_at = self._short_chunks.numbers(low, high, self._n_chunks)
        first = starts[short[new_at]]
        last = first + lengths[short[new_at]]
        new = [data[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        known = self._long_chunks
        for i in np.flatnonzero(is_long).tolist():
            chunk = data[starts[i] : starts[i] + lengths[i]]
            number = known.get(chunk)
            if number is None:
                number = self._n_chunks + len(new)
                new.append(chunk)
                if len(chunk) <= _LONGEST_KEPT:
                    known[chunk] = number
            numbers[i] = number
        if new:
            self._n_chunks += len(new)
            self._resolve_chunks(b"\n".join(new).decode("utf-8", "surrogatepass").split("\n"))
        return numbers

    def _resolve_chunks(self, chunks: list[str]) -> None:
        words = self._words_of_chunks(chunks)
        numbers = np.fromiter(map(self._words.number, words), dtype=np.int64, count=len(words))
        self._resolve_words()
        dims, lengths = self._word_dims.take(numbers)
        ends = np.flatnonzero(numbers == self._words.number(_END)) + 1
        self._chunk_dims.append(dims, sums_by_run(lengths, _differences(ends)))

    def _resolve_words(self) -> None:
        ids: list[int] = []
        ends: list[int] = []
        for word in self._words.take_new():
            if word != _END:
                ids += self._ids_of_word(word)
            ends.append(len(ids))
        dims = self._vocabulary.token_to_dim[np.array(ids, dtype=np.int64)]
        is_dim = dims >= 0
        lengths = _differences(np.array(ends, dtype=np.int64))
        self._word_dims.append(dims[is_dim], sums_by_run(is_dim.astype(np.int64), lengths))


def _chunk_bounds(data: bytes, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and lengths of the chunks in the first `size` bytes, the last of which is a separator."""
    codes = np.frombuffer(data, dtype=np.uint8, count=size)
    ends = np.flatnonzero(codes <= 0x20)
    is_separator = _IS_SEPARATOR[codes[ends]]
    if not is_separator.all():
        ends = ends[is_separator]
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    lengths = ends - starts
    filled = lengths > 0
    return starts[filled], lengths[filled]


def _keys(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Bytes 0-7 and 8-15 of each chunk, NUL after its end; `data` goes on for 16 bytes after the last chunk."""
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))  # the 8 bytes from each place on
    low = words[starts] & _FIRST_BYTES[np.minimum(lengths, 8)]
    high = np.zeros(len(starts), dtype=np.uint64)
    longer = np.flatnonzero(lengths > 8)
    high[longer] = words[starts[longer] + 8] & _FIRST_BYTES[lengths[longer] - 8]
    return low, high


def _differences(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths of the consecutive runs that end before `ends`."""
    lengths: NDArray[np.int64] = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths
