"""WordPiece of thousands of short words at once: every step is an array operation on all words not yet done."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import KEY_BYTES, KeyTable, span_keys

PIECE_BYTES = KEY_BYTES - 1
"""The longest word in bytes; the last byte of a key says whether the piece continues a word."""

_CONTINUES = np.uint64(1 << 56)
_LEAD = 4  # leading bytes by which the lengths of the pieces that can match are known
_SHORTER = np.uint16((1 << _LEAD - 1) - 1)  # shorter pieces are always tried
_SPREAD = np.uint32(0x9E3779B1)
_BIT = np.array([0, *(1 << n - 1 for n in range(1, 16))], dtype=np.uint16)  # of a length
_UP_TO = np.array([(1 << n) - 1 for n in range(16)], dtype=np.uint16)  # all lengths up to one
_LONGEST = np.repeat(np.arange(16, dtype=np.int8), [1, *(1 << n - 1 for n in range(1, 16))])  # of a set


class PieceTable:
    """The pieces of a vocabulary of up to 15 bytes, those that begin a word and those that continue one.

    Bit n - 1 of a 16-bit set of lengths stands for the length n.
    """

    def __init__(self, first: Mapping[str, int], following: Mapping[str, int], unk_id: int) -> None:
        """Take over the ids of the pieces that begin and that continue a word, and that of a word that is unknown."""
        self._table = KeyTable()
        self._ids = np.empty(0, dtype=np.int64)
        self._unk_id = unk_id
        self._lengths = np.full((2, 1 << 16), _SHORTER, dtype=np.uint16)  # by the hash of the leading bytes
        for continues, ids in enumerate((first, following)):
            # NUL pads the keys, and no word holds it.
            pieces = {text.encode("utf-8", "surrogatepass"): i for text, i in ids.items() if "\0" not in text}
            pieces = {piece: i for piece, i in pieces.items() if 0 < len(piece) <= PIECE_BYTES}
            data = b"".join([*pieces, bytes(KEY_BYTES)])
            sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
            starts = np.cumsum(sizes) - sizes
            low, high = span_keys(data, starts, sizes)
            _, order = self._table.numbers(low, high | _CONTINUES * np.uint64(continues), len(self._ids))
            self._ids = np.append(self._ids, np.fromiter(pieces.values(), dtype=np.int64)[order])
            long = np.flatnonzero(sizes >= _LEAD)
            np.bitwise_or.at(self._lengths[continues], _lead_hashes(data, starts[long]), _BIT[sizes[long]])

    def ids(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The token ids of words of up to 15 bytes; `data` goes on for 16 bytes after the last one.

        Returns:
            All words' ids one after the other, the unknown id alone for a word that cannot be composed; and
            i64[len(starts)], how many each has.
        """
        is_unknown = np.zeros(len(starts), dtype=np.bool_)
        found_words, found_ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        # Of the words not yet done: which, where the rest begins, its length, its mark, the lengths still to be tried.
        word, at, rest = np.arange(len(starts)), starts.copy(), lengths.copy()
        mark = np.zeros(len(starts), dtype=np.uint64)
        untried = self._possible(0, data, at, rest)
        while len(word):
            size = _LONGEST.take(untried)
            low, high = span_keys(data, at, size)
            high |= mark
            number = self._table.find(low, high)
            untried ^= _BIT.take(size)
            hits = np.flatnonzero(number >= 0)
            found_words.append(word[hits])
            found_ids.append(self._ids[number[hits]])
            at[hits] += size[hits]
            rest[hits] -= size[hits]
            mark[hits] = _CONTINUES
            untried[hits] = self._possible(1, data, at[hits], rest[hits])
            is_unknown[word[(untried == 0) & (rest > 0)]] = True
            left = np.flatnonzero(untried)
            word, at, rest, mark, untried = word[left], at[left], rest[left], mark[left], untried[left]
        words, ids = np.concatenate(found_words), np.concatenate(found_ids)
        unknown = np.flatnonzero(is_unknown)
        if len(unknown):
            is_known = ~is_unknown[words]
            words = np.concatenate([words[is_known], unknown])
            ids = np.concatenate([ids[is_known], np.full(len(unknown), self._unk_id)])
        return ids[np.argsort(words, kind="stable")], np.bincount(words, minlength=len(starts))

    def _possible(
        self, continues: int, data: bytes, at: NDArray[np.int64], rest: NDArray[np.int64]
    ) -> NDArray[np.uint16]:
        """The lengths of the pieces that may begin each rest, none longer than the rest."""
        lengths: NDArray[np.uint16] = self._lengths[continues][_lead_hashes(data, at)]
        lengths &= _UP_TO.take(rest)
        return lengths


def _lead_hashes(data: bytes, starts: NDArray[np.int64]) -> NDArray[np.uint32]:
    leads = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    hashes: NDArray[np.uint32] = (leads[starts] * _SPREAD) >> np.uint32(16)
    return hashes
