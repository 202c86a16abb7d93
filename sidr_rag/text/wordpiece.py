"""Greedy longest-match WordPiece of single words, equal to the Hugging Face model of the same vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_KEY = 4  # leading characters by which the lengths of the tokens that can match are known


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
