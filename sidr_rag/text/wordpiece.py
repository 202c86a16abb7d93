"""Greedy longest-match WordPiece of single words, equal to the Hugging Face model of the same vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_KEY = 3  # leading characters that bound how long a matching token can be


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
        self._first_bounds = _length_bounds(self._first)
        self._next_bounds = _length_bounds(self._next)

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

    def _greedy(self, word: str) -> list[int]:
        ids: list[int] = []
        table, bounds = self._first, self._first_bounds
        start, length = 0, len(word)
        while start < length:
            end = min(length, start + bounds.get(word[start : start + _KEY], _KEY - 1))
            while end > start:
                found = table.get(word[start:end])
                if found is not None:
                    break
                end -= 1
            else:
                return self._unk
            ids.append(found)
            start, table, bounds = end, self._next, self._next_bounds
        return ids


def _length_bounds(texts: Iterable[str]) -> dict[str, int]:
    """The longest text for every leading `_KEY` characters: few candidates then have to be tried."""
    bounds: dict[str, int] = {}
    for text in texts:
        key = text[:_KEY]
        if len(text) > bounds.get(key, 0):
            bounds[key] = len(text)
    return bounds
