"""WordPiece of thousands of words at once: every step is an array operation on all words not yet done."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.key_table import PADDING_BYTES, KeyTable, span_keys

_KEY_BYTES = 16
_PIECE_BYTES = _KEY_BYTES - 1  # the last byte of a key says whether the piece continues a word

_CONTINUES = np.uint64(1 << 56)
_FEW = 50  # so few words are found out faster one by one
_LEAD = 4  # leading bytes by which the lengths of the pieces that can match are known
_SHORTER = np.uint16((1 << _LEAD - 1) - 1)  # shorter pieces are always tried
_SPREAD = np.uint32(0x9E3779B1)
_BIT = np.array([0, *(1 << n - 1 for n in range(1, 16))], dtype=np.uint16)  # of a length
_LONGER = np.uint16(1 << 15)  # stands for all lengths that no key holds
_UP_TO = np.array([(1 << n) - 1 for n in range(17)], dtype=np.uint16)  # all lengths up to one
_LONGEST = np.repeat(np.arange(16, dtype=np.int8), [1, *(1 << n - 1 for n in range(1, 16))])  # of a set


class PieceTable:
    """The pieces of a vocabulary, those that begin a word and those that continue one.

    Those of up to 15 bytes are found here; words in which a longer one could be are left to others. Bit n - 1 of a
    16-bit set of lengths stands for the length n, the last bit for all from 16 on.
    """

    def __init__(self, first: Mapping[str, int], following: Mapping[str, int], unk_id: int) -> None:
        """Take over the ids of the pieces that begin and that continue a word, and that of a word that is unknown."""
        self._table = KeyTable(_KEY_BYTES)
        self._ids = np.empty(0, dtype=np.int64)
        self._unk_id = unk_id
        self._lengths = np.full((2, 1 << 16), _SHORTER, dtype=np.uint16)  # by the hash of the leading bytes
        for continues, ids in enumerate((first, following)):
            pieces = [text.encode("utf-8", "surrogatepass") for text in ids]
            data = b"".join([*pieces, bytes(PADDING_BYTES)])
            sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
            starts = np.cumsum(sizes) - sizes
            fits = (sizes > 0) & (sizes <= _PIECE_BYTES)
            if data.count(b"\0") > PADDING_BYTES:  # NUL pads the keys, and no word holds it
                fits &= [b"\0" not in piece for piece in pieces]
            long = np.flatnonzero(sizes > _PIECE_BYTES)
            np.bitwise_or.at(self._lengths[continues], _lead_hashes(data, starts[long]), _LONGER)
            starts, sizes = starts[fits], sizes[fits]
            low, high = span_keys(data, starts, sizes, _KEY_BYTES)
            _, order = self._table.numbers((low, high | _CONTINUES * np.uint64(continues)), len(self._ids))
            self._ids = np.append(self._ids, np.fromiter(ids.values(), dtype=np.int64)[fits][order])
            long = np.flatnonzero(sizes >= _LEAD)
            np.bitwise_or.at(self._lengths[continues], _lead_hashes(data, starts[long]), _BIT[sizes[long]])

    def ids(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The token ids of words; `data` goes on for `PADDING_BYTES` after the last one.

        Returns:
            All words' ids one after the other, the unknown id alone for a word that cannot be composed; and
            i64[len(starts)], how many each has: none, if a long piece could be in it, or if it is one of the last few,
            which are not worth the arrays.
        """
        is_unknown, is_left = (np.zeros(len(starts), dtype=np.bool_) for _ in range(2))
        found_words, found_ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        # Of the words not yet done: which, where the rest begins, its length, its mark, the lengths still to be tried.
        word, at, rest = np.arange(len(starts)), starts.copy(), lengths.copy()
        mark = np.zeros(len(starts), dtype=np.uint64)
        untried = self._possible(0, data, at, rest)
        while True:
            is_left[word[untried >= _LONGER]] = True
            going = np.flatnonzero((untried > 0) & (untried < _LONGER))
            word, at, rest, mark, untried = word[going], at[going], rest[going], mark[going], untried[going]
            if len(word) <= _FEW:
                is_left[word] = True
                break
            size = _LONGEST.take(untried)
            low, high = span_keys(data, at, size, _KEY_BYTES)
            high |= mark
            number = self._table.find((low, high))
            untried ^= _BIT.take(size)
            hits = np.flatnonzero(number >= 0)
            found_words.append(word[hits])
            found_ids.append(self._ids[number[hits]])
            at[hits] += size[hits]
            rest[hits] -= size[hits]
            mark[hits] = _CONTINUES
            untried[hits] = self._possible(1, data, at[hits], rest[hits])
            is_unknown[word[(untried == 0) & (rest > 0)]] = True
        words, ids = np.concatenate(found_words), np.concatenate(found_ids)
        unknown = np.flatnonzero(is_unknown)
        is_kept = ~(is_unknown | is_left)[words]
        words = np.concatenate([words[is_kept], unknown])
        ids = np.concatenate([ids[is_kept], np.full(len(unknown), self._unk_id)])
        return ids[np.argsort(words, kind="stable")], np.bincount(words, minlength=len(starts))

    def _possible(
        self, continues: int, data: bytes, at: NDArray[np.int64], rest: NDArray[np.int64]
    ) -> NDArray[np.uint16]:
        """The lengths of the pieces that may begin each rest, none longer than the rest."""
        lengths: NDArray[np.uint16] = self._lengths[continues][_lead_hashes(data, at)]
        lengths &= _UP_TO.take(rest, mode="clip")
        return lengths


def _lead_hashes(data: bytes, starts: NDArray[np.int64]) -> NDArray[np.uint32]:
    leads = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    hashes: NDArray[np.uint32] = (leads[starts] * _SPREAD) >> np.uint32(16)
    return hashes
