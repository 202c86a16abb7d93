"""Texts to plain bytes: UTF-8 in which white space and ASCII punctuation alone separate words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import PADDING_BYTES
from sidr_rag.text.normalize import is_contextual
from sidr_rag.text.ragged import RaggedStore, places

# What a byte is to the words around it: BERT takes every printable ASCII character but letters and digits for
# punctuation, a word of its own. Of other characters only those that are parts of words stay in plain bytes.
BREAK, LETTER, PUNCTUATION, _ODD = range(4)

_SEPARATORS = b"\t\n\r "  # they separate words under every rule
_CHUNK = re.compile("[^\t\n\r ]+")
_CODES = 0x110000
_DIVIDER = "qqzzqq"  # a word that no single character is spelled as
_UNKNOWN, _SLOW = 255, 254  # in place of a size
_LONGEST_KEPT = 64  # longer chunks rarely come twice and would fill the memory
_PADDING = b"\n" * PADDING_BYTES


class PlainLines(NamedTuple):
    """One line for each text.

    Attributes:
        data: a line feed, then every line with the separator that ends it, then padding.
        kinds: u8[len(data)]; BREAK, LETTER or PUNCTUATION.
        ends: i64[n]; where in `data` the separator stands that ends each line.
    """

    data: bytes
    kinds: NDArray[np.uint8]
    ends: NDArray[np.int64]


class PlainText:
    """Makes plain bytes of texts; remembers characters and chunks; used by one thread at a time.

    Nearly every character is spelled in the same way wherever it stands ("É" as "e", "’" as a word of its own), so that
    texts are respelled as arrays of characters. A chunk, what lies between separators, that holds another character
    (an accent apart from its letter, an index, ...) is left to `words_of` as a whole.
    """

    def __init__(self, words_of: Callable[[str], list[str]], *, lowercase: bool, size: int) -> None:
        """Start without any knowledge.

        Args:
            words_of: the words of any text.
            lowercase: whether words of ASCII letters are looked up in small letters.
            size: how many chunks to remember.
        """
        self._words_of = words_of
        self._lowercase = lowercase
        self._size = size
        self._kinds = _kinds_of_bytes()
        self._sizes = np.full(_CODES, _UNKNOWN, dtype=np.uint8)  # bytes of each character's spelling
        self._firsts = np.zeros(_CODES, dtype=np.uint8)  # the only byte, of those that have one
        self._numbers = np.zeros(_CODES, dtype=np.uint32)  # in `_spellings`, of those that have several
        self._spellings = RaggedStore(np.uint8)
        for code in (*_SEPARATORS, *range(0x21, 0x7F)):
            self._sizes[code], self._firsts[code] = 1, code
        self._slow: set[str] = set()
        self._chunks: dict[str, bytes] = {}

    def lines(self, texts: Sequence[str]) -> PlainLines:
        """The texts as plain bytes."""
        others = [i for i, text in enumerate(texts) if not text.isascii()]
        lines = self._joined(texts, others)
        if (odd := np.flatnonzero(lines.kinds == _ODD)).size:  # control characters
            found = np.searchsorted(lines.ends, odd).tolist()
            lines = self._joined(texts, sorted({*others, *found}))
        return lines

    def _joined(self, texts: Sequence[str], others: list[int]) -> PlainLines:
        """Lines of which `others` are respelled."""
        ascii_texts = texts
        if others:
            ascii_texts = list(texts)
            for i in others:
                ascii_texts[i] = ""
        encoded = [text.encode() for text in ascii_texts]
        if others:
            for i, plain in zip(others, self._respelled([texts[i] for i in others]), strict=True):
                encoded[i] = plain
        ends = np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) + 1)
        data = b"\n".join([b"", *encoded, _PADDING])
        if self._lowercase:
            data = data.lower()  # of ASCII letters only
        return PlainLines(data, np.frombuffer(data.translate(self._kinds), dtype=np.uint8), ends)

    def _respelled(self, texts: list[str]) -> list[bytes]:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.intp)
        sizes = self._sizes.take(codes)
        if (is_unknown := sizes == _UNKNOWN).any():
            is_met = np.zeros(_CODES, dtype=np.bool_)
            is_met[codes[is_unknown]] = True
            self._learn(np.flatnonzero(is_met).tolist())
            sizes = self._sizes.take(codes)
        cuts = np.cumsum([0, *map(len, texts)])
        words: dict[int, bytes] = {}
        if (slow := np.flatnonzero(sizes == _SLOW)).size:
            for i in set((np.searchsorted(cuts, slow, side="right") - 1).tolist()):
                words[i] = self._without_slow(texts[i], sizes[cuts[i] : cuts[i + 1]])
        data = np.repeat(self._firsts.take(codes), sizes)
        others = np.flatnonzero(sizes != 1)
        other_sizes = sizes.take(others).astype(np.int64)
        shifts = np.zeros(len(others) + 1, dtype=np.int64)  # by how much what follows them moves
        np.cumsum(other_sizes - 1, out=shifts[1:])
        longer = np.flatnonzero(other_sizes > 1)
        values, lengths = self._spellings.take(self._numbers.take(codes.take(others.take(longer))))
        data[places((others + shifts[:-1]).take(longer), lengths)] = values
        cuts += shifts.take(np.searchsorted(others, cuts))
        plain = data.tobytes()
        parts = [plain[start:end] for start, end in itertools.pairwise(cuts.tolist())]
        for i, found in words.items():
            parts[i] += b" " + found
        return parts

    def _learn(self, codes: list[int]) -> None:
        """Find out how characters are spelled, from the words that they make between two letters."""
        found = iter(self._words_of(f" {_DIVIDER} ".join([*(f"a{chr(code)}b" for code in codes), ""])))
        several: list[bytes] = []
        for code in codes:
            words = " ".join(itertools.takewhile(_DIVIDER.__ne__, found))
            spelling = words[1:-1].encode("utf-8")
            if len(spelling) >= _SLOW or is_contextual(chr(code)):
                self._sizes[code] = _SLOW
                self._slow.add(chr(code))
                continue
            self._sizes[code] = len(spelling)
            if len(spelling) == 1:
                self._firsts[code] = spelling[0]
            elif spelling:
                self._numbers[code] = self._spellings.n_entries + len(several)
                several.append(spelling)
        lengths = np.array([len(spelling) for spelling in several], dtype=np.int64)
        self._spellings.append(np.frombuffer(b"".join(several), dtype=np.uint8), lengths)

    def _without_slow(self, text: str, sizes: NDArray[np.uint8]) -> bytes:
        """Take the chunks that hold slow characters out of a text, and give their words."""
        words = []
        for match in _CHUNK.finditer(text):
            chunk = match[0]
            if chunk.isascii() or self._slow.isdisjoint(chunk):
                continue
            sizes[slice(*match.span())] = 0
            found = self._chunks.get(chunk)
            if found is None:
                found = " ".join(self._words_of(chunk)).encode("utf-8")
                if len(chunk) <= _LONGEST_KEPT:
                    if len(self._chunks) >= self._size:
                        self._chunks.clear()
                    self._chunks[chunk] = found
            words.append(found)
        return b" ".join(words)


def _kinds_of_bytes() -> bytes:
    kinds = np.full(256, LETTER, dtype=np.uint8)
    kinds[:0x21] = kinds[0x7F] = _ODD
    kinds[list(_SEPARATORS)] = BREAK
    kinds[0x21:0x7F] = [LETTER if chr(code).isalnum() else PUNCTUATION for code in range(0x21, 0x7F)]
    return kinds.tobytes()
