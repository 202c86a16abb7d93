"""Greedy longest-match WordPiece, equal to the Hugging Face model of the same vocabulary; of one word or of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sidr_rag.text.piece_table import PieceTable

_KEY = 4  # leading characters by which the lengths of the tokens that can match are known
_MANY = 2000  # so many words, of one call or several, repay the making of the piece table
_SEVERAL = 300  # so many are found out faster by a table that is there than one by one


class WordPiece:
    """Words to token ids; a word is what the pre-tokenizer leaves: no white space, normalized."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        *,
        unk_id: int,
        prefix: str = "##",
        max_word_chars: int = 100,
        cut_long_words: bool = True,
    ) -> None:
        """Take over a vocabulary.

        Args:
            vocab: token text to id; continuations carry `prefix`.
            unk_id: the id of a word that cannot be composed.
            prefix: what marks a token that continues a word.
            max_word_chars: longer words are cut, or unknown.
            cut_long_words: whether a longer word is cut into words of `max_word_chars`; otherwise it is unknown.
        """
        self._unk = [unk_id]
        self._max_chars = max_word_chars
        self._cut = cut_long_words
        self._first = {text: i for text, i in vocab.items() if len(text) <= max_word_chars}
        self._next = {text[len(prefix) :]: i for text, i in vocab.items() if text.startswith(prefix)}
        self._first_lengths = _lengths(self._first)
        self._next_lengths = _lengths(self._next)
        self._pieces: PieceTable | None = None  # made when it is first needed
        self._n_asked = 0

    def ids(self, word: str) -> list[int]:
        """The token ids of one word, never to be modified; a word that cannot be composed is the unknown id alone."""
        whole = self._first.get(word)
        if whole is not None:
            return [whole]
        size = self._max_chars
        if len(word) <= size:
            return self._greedy(word)
        if not self._cut:
            return self._unk
        pieces: dict[str, list[int]] = {}
        ids: list[int] = []
        for start in range(0, len(word), size):
            piece = word[start : start + size]
            if piece not in pieces:
                pieces[piece] = self._greedy(piece)
            ids += pieces[piece]
        return ids

    def ids_of_spans(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The token ids of many words, given as places in UTF-8 text that goes on for `PADDING_BYTES` after them.

        Returns:
            The order in which the words were found out, as their positions in `starts`; and in that order all words'
            ids one after the other, and how many each has.
        """
        self._n_asked += len(starts)
        if len(starts) < _SEVERAL or self._n_asked < _MANY:
            together, alone = np.empty(0, np.int64), np.arange(len(starts))
        else:
            is_short = lengths <= self._max_chars  # in bytes, so surely in characters
            together, alone = np.flatnonzero(is_short), np.flatnonzero(~is_short)
        ids, n_ids = np.empty(0, np.int64), np.empty(0, np.int64)
        if len(together):
            if self._pieces is None:
                self._pieces = PieceTable(self._first, self._next, self._unk[0])
            ids, n_ids = self._pieces.ids(data, starts[together], lengths[together])
            is_done = n_ids > 0
            alone = np.concatenate([alone, together[~is_done]])
            together, n_ids = together[is_done], n_ids[is_done]
        lists = [
            self.ids(data[start : start + length].decode("utf-8"))
            for start, length in zip(starts[alone].tolist(), lengths[alone].tolist(), strict=True)
        ]
        return (
            np.concatenate([together, alone]),
            np.concatenate([ids, np.fromiter(chain.from_iterable(lists), dtype=np.int64)]),
            np.concatenate([n_ids, np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))]),
        )

    def _greedy(self, word: str) -> list[int]:
        ids: list[int] = []
        table, lengths = self._first, self._first_lengths
        start, end = 0, len(word)
        while start < end:
            found = None
            size = 0
            for size in lengths.get(word[start : start + _KEY], ()):
                if start + size <= end:
                    found = table.get(word[start : start + size])
                    if found is not None:
                        break
            else:
                for size in range(_KEY - 1, 0, -1):
                    found = table.get(word[start : start + size])
                    if found is not None:
                        break
                else:
                    return self._unk
            ids.append(found)
            start, table, lengths = start + size, self._next, self._next_lengths
        return ids


def _lengths(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The lengths of the texts with each beginning of `_KEY` characters, longest first: only those need be tried."""
    found: dict[str, set[int]] = {}
    for text in texts:
        if len(text) >= _KEY:
            found.setdefault(text[:_KEY], set()).add(len(text))
    return {key: tuple(sorted(sizes, reverse=True)) for key, sizes in found.items()}
