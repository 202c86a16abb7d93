"""What a tokenizer remembers: the dimensions of every white-space-separated chunk of text it has met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import KEY_BYTES, SpanNumbering
from sidr_rag.text.ragged import RaggedStore, places, sums_by_run
from sidr_rag.text.vocabulary import Vocabulary
from sidr_rag.text.wordpiece import WordPiece

_VALUES_PER_ENTRY = 8
_PADDING = bytes(KEY_BYTES)

_IS_SEPARATOR = np.zeros(33, dtype=np.bool_)
_IS_SEPARATOR[[0x09, 0x0A, 0x0D, 0x20]] = True

# What a byte is to the words of a chunk: BERT takes every printable ASCII character but letters and digits for
# punctuation, a word of its own.
_BREAK, _PUNCTUATION, _LETTER = range(3)
_KIND = np.full(256, _LETTER, dtype=np.uint8)
_KIND[:0x21] = _BREAK
_KIND[0x21:0x7F] = [_LETTER if chr(code).isalnum() else _PUNCTUATION for code in range(0x21, 0x7F)]
_IS_ODD = np.ones(256, dtype=np.bool_)  # needs more than ASCII's rules
_IS_ODD[0x21:0x7F] = _IS_ODD[0x0A] = False


class ChunkCache:
    """Chunks to dimensions through words to dimensions; used by one thread at a time.

    Chunks are separated by space, tab, line feed and carriage return, which separate words under every rule; other
    white space inside a chunk is left to the tokenizer.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        words_of_chunk: Callable[[str], list[str]],
        word_piece: WordPiece,
        *,
        lowercase: bool,
        ignore_ascii_case: bool,
        size: int,
    ) -> None:
        r"""Start empty.

        Args:
            vocabulary: maps token ids to dimensions.
            words_of_chunk: the words of a chunk that holds other characters than printable ASCII.
            word_piece: the words' token ids.
            lowercase: whether words of ASCII letters are looked up in small letters.
            ignore_ascii_case: whether texts that differ in the case of ASCII letters have the same dimensions.
            size: how many chunks, and how many words, to remember before `full` says so.
        """
        self._vocabulary = vocabulary
        self._words_of_chunk = words_of_chunk
        self._word_piece = word_piece
        self._lowercase = lowercase
        self._ignore_ascii_case = ignore_ascii_case
        self._size = size
        self._chunks = SpanNumbering()
        self._words = SpanNumbering()
        dtype = np.uint16 if vocabulary.dim <= 1 << 16 else np.int32
        self._chunk_dims = RaggedStore(dtype)
        self._word_dims = RaggedStore(dtype)
        for store in (self._chunk_dims, self._word_dims):
            store.append(np.empty(0, dtype), np.zeros(1, np.int64))  # of the empty string

    @property
    def full(self) -> bool:
        """Whether the cache has outgrown its size and should be replaced by a fresh one."""
        values = self._chunk_dims.n_values + self._word_dims.n_values
        return max(self._chunks.count, self._words.count) > self._size or values > _VALUES_PER_ENTRY * self._size

    def dims(self, texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The dimensions of texts.

        Returns:
            All texts' dimensions one after the other, with repetition; and i64[len(texts)], how many each has.
        """
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        text_ends = np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) + 1)
        data = b"\n".join([*encoded, _PADDING])
        if self._ignore_ascii_case:
            data = data.lower()  # of ASCII letters only
        starts, lengths = _chunk_bounds(data, int(text_ends[-1]) if len(texts) else 0)
        numbers, new = self._chunks.numbers(data, starts, lengths)
        if len(new):
            self._resolve_chunks(data, starts[new], lengths[new])
        dims, n_dims = self._chunk_dims.take(numbers)
        return dims, sums_by_run(n_dims, _differences(np.searchsorted(starts, text_ends)))

    def _resolve_chunks(self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Find out the dimensions of new chunks, which get the next numbers."""
        # Every chunk with the separator that follows it, as a line feed.
        codes = np.frombuffer(data, dtype=np.uint8)[places(starts, lengths + 1)]
        ends = np.cumsum(lengths + 1) - 1
        codes[ends] = 0x0A
        odd_chunks = np.unique(np.searchsorted(ends, np.flatnonzero(_IS_ODD[codes])))
        is_odd = np.zeros(len(starts), dtype=np.bool_)
        is_odd[odd_chunks] = True
        lines = []
        for start, length in zip(starts[odd_chunks].tolist(), lengths[odd_chunks].tolist(), strict=True):
            chunk = data[start : start + length].decode("utf-8", "surrogatepass")
            lines.append(" ".join(self._words_of_chunk(chunk)) + "\n")
        plain = codes[np.repeat(~is_odd, lengths + 1)].tobytes() if lines else codes.tobytes()
        if self._lowercase:
            plain = plain.lower()
        text = plain + "".join(lines).encode("utf-8") + _PADDING
        word_starts, word_lengths, n_words = _words_of_lines(text)
        numbers, new = self._words.numbers(text, word_starts, word_lengths)
        if len(new):
            self._resolve_words(text, word_starts[new], word_lengths[new])
        dims, n_dims = self._word_dims.take(numbers)
        order = self._chunk_dims.n_entries + np.concatenate([np.flatnonzero(~is_odd), odd_chunks])
        self._chunk_dims.put(order, dims, sums_by_run(n_dims, n_words))

    def _resolve_words(self, text: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        order, ids, n_ids = self._word_piece.ids_of_spans(text, starts, lengths)
        dims = self._vocabulary.token_to_dim[ids]
        is_dim = dims >= 0
        self._word_dims.put(self._word_dims.n_entries + order, dims[is_dim], sums_by_run(is_dim, n_ids))


def _chunk_bounds(data: bytes, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and lengths (0 allowed) of the chunks in the first `size` bytes, the last of which is a separator."""
    codes = np.frombuffer(data, dtype=np.uint8, count=size)
    ends = np.flatnonzero(codes <= 0x20)
    is_separator = _IS_SEPARATOR.take(codes.take(ends))
    if not is_separator.all():
        ends = ends[is_separator]
    starts = np.zeros_like(ends)
    np.add(ends[:-1], 1, out=starts[1:])
    return starts, ends - starts


def _words_of_lines(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Starts and lengths of the words, and how many each line has, its end "\n" included; padding follows the last."""
    codes = np.frombuffer(text, dtype=np.uint8, count=len(text) - len(_PADDING))
    kinds = _KIND[codes]
    is_start = kinds != _BREAK
    is_end = is_start.copy()
    is_apart = (kinds[1:] != _LETTER) | (kinds[:-1] != _LETTER)
    is_start[1:] &= is_apart
    is_end[:-1] &= is_apart
    starts = np.flatnonzero(is_start)
    line_ends = np.flatnonzero(codes == 0x0A)
    return starts, np.flatnonzero(is_end) + 1 - starts, _differences(np.searchsorted(starts, line_ends))


def _differences(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths of the consecutive runs that end before `ends`."""
    lengths: NDArray[np.int64] = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths
