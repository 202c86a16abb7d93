"""Long texts to spans of a bounded number of tokens, cut where a reader would cut."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.text.tokenizer import BagTokenizer

_WORD = re.compile(r"\S+")
_INSIDE = re.compile(r"[^\W_]+|[\W_]")
_PARAGRAPH = re.compile(r"\n\s*?\n|\r\s*?\r|\r\n\s*?\r\n|[\f\u2029]")
_SENTENCE = re.compile(r"""[.!?…。！？।؟]["'”’»)\]]*\Z""")
_LONGEST_PIECE = 64  # characters; a word with too many tokens is tried in pieces of this size first
_INSIDE_WORD, _WORD_END, _SENTENCE_END, _PARAGRAPH_END = 0, 1, 2, 3


class _Unit(NamedTuple):
    """A part of the text that is not cut any further."""

    start: int
    end: int
    n_tokens: int
    break_after: int
    in_word: bool = False


def split_spans(
    text: str, tokenizer: BagTokenizer, *, max_tokens: int = 160, overlap: int = 0
) -> list[tuple[int, int]]:
    """Split a text into spans of at most `max_tokens` tokens.

    A span is filled as far as possible, then shortened to end at a paragraph, else at a sentence, if that leaves it
    at least half full, and otherwise at a word. Only a word that alone has too many tokens is cut inside. A single
    character that alone has too many tokens (possible for tiny limits) still makes a span.

    Args:
        text: any text.
        tokenizer: counts the tokens (`sequence_ids`, [UNK] included).
        max_tokens: the limit on each span's tokens, at least 1.
        overlap: how many tokens at the end of a span to repeat, at most and in whole words, at the start of the
            next one; 0 <= overlap < max_tokens.

    Returns:
        Character spans (start, end), none of them blank: starts and ends never decrease, and every character that
        is not white space lies in one. Blank texts have none.

    Raises:
        InvalidInputError: if `max_tokens` or `overlap` is out of range.
        InvalidTypeError: if an argument has the wrong type.
    """
    _check(text, max_tokens, overlap)
    chunkwise = tokenizer.chunk_pattern is not None
    units = list(_units(text, tokenizer, max_tokens))
    totals = [0, *accumulate(unit.n_tokens for unit in units)]
    n_in_word = [0, *accumulate(unit.in_word for unit in units)]
    spans: list[tuple[int, int]] = []
    first = last = 0  # the span holds units[first:last]
    while last < len(units):
        done = last
        first = _overlap_start(totals, first, done, max_tokens, overlap)
        last = max(bisect_right(totals, totals[first] + max_tokens) - 1, done + 1)
        last = _preferred_end(units, totals, (first, done, last), max_tokens)
        # Token numbers add up at white space only; elsewhere the span's own number decides.
        if not chunkwise or n_in_word[last] > n_in_word[first]:
            first, last = _fitted(text, tokenizer, units, totals, (first, done, last), max_tokens)
        spans.append((units[first].start, units[last - 1].end))
    return spans


def _check(text: str, max_tokens: int, overlap: int) -> None:
    if not isinstance(text, str):
        raise InvalidTypeError(f"text must be a str, not {type(text).__name__}")
    for name, value in (("max_tokens", max_tokens), ("overlap", overlap)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidTypeError(f"{name} must be an int, not {type(value).__name__}")
    if max_tokens < 1:
        raise InvalidInputError(f"max_tokens={max_tokens} must be at least 1")
    if not 0 <= overlap < max_tokens:
        raise InvalidInputError(f"overlap={overlap} must be at least 0 and less than max_tokens={max_tokens}")


def _units(text: str, tokenizer: BagTokenizer, max_tokens: int) -> Iterator[_Unit]:
    """Words, and pieces of words that have too many tokens; blank ones are left out."""
    known: dict[str, int] = {}

    def n_tokens(part: str) -> int:
        count = known.get(part)
        if count is None:
            count = len(tokenizer.sequence_ids(part))
            if len(part) <= _LONGEST_PIECE:
                known[part] = count
        return count

    words = (tokenizer.chunk_pattern or _WORD).finditer(text)
    word = next(words, None)
    while word is not None:
        following = next(words, None)
        start, end = word.span()
        gap_end = following.start() if following is not None else len(text)
        count = n_tokens(word.group())
        if count > max_tokens:
            yield from _pieces(text, start, end, max_tokens, n_tokens, _break(text, start, end, gap_end))
        elif not word.group().isspace():
            yield _Unit(start, end, count, _break(text, start, end, gap_end))
        word = following


def _break(text: str, start: int, end: int, gap_end: int) -> int:
    """How good a place for a cut the end of the word text[start:end] is."""
    if gap_end - end > 1 and _PARAGRAPH.search(text, end, gap_end):
        return _PARAGRAPH_END
    return _SENTENCE_END if _SENTENCE.search(text, max(start, end - 4), end) else _WORD_END


def _pieces(
    text: str, start: int, end: int, max_tokens: int, n_tokens: Callable[[str], int], break_after: int
) -> Iterator[_Unit]:
    """One long word as units: runs of letters and digits, single other characters, and parts of long runs."""
    for match in _INSIDE.finditer(text, start, end):
        for at in range(match.start(), match.end(), _LONGEST_PIECE):
            waiting = [(at, min(at + _LONGEST_PIECE, match.end()))]
            while waiting:
                a, b = waiting.pop()
                count = n_tokens(text[a:b])
                if count > max_tokens and b - a > 1:
                    middle = (a + b) // 2
                    waiting += [(middle, b), (a, middle)]
                elif not text[a:b].isspace():
                    inner_break = _SENTENCE_END if text[b - 1] in "。！？" else _INSIDE_WORD
                    yield _Unit(a, b, count, break_after if b == end else inner_break, in_word=True)


def _overlap_start(totals: list[int], first: int, done: int, max_tokens: int, overlap: int) -> int:
    """The first unit of the next span: as much overlap as is allowed and still lets a new unit in."""
    if not overlap or not done:
        return done
    wanted = max(totals[done] - overlap, totals[min(done + 1, len(totals) - 1)] - max_tokens)
    return min(max(bisect_left(totals, wanted), first + 1), done)


def _preferred_end(units: list[_Unit], totals: list[int], span: tuple[int, int, int], max_tokens: int) -> int:
    """Where to end a span (first, done, last) that could hold units[first:last], and has to hold units[done]."""
    first, done, last = span
    if last == len(units):
        return last
    best, best_break = last, units[last - 1].break_after
    for end in range(last - 1, done, -1):
        if best_break == _PARAGRAPH_END or 2 * (totals[end] - totals[first]) < max_tokens:
            break
        if units[end - 1].break_after > best_break:
            best, best_break = end, units[end - 1].break_after
    return best


def _fitted(
    text: str, tokenizer: BagTokenizer, units: list[_Unit], totals: list[int], span: tuple[int, int, int], limit: int
) -> tuple[int, int]:
    """Shorten a span until its text has at most `limit` tokens: at its end, then by its overlap.

    `span` is (first, done, last): it holds units[first:last] and has to hold units[done].
    """
    first, done, last = span
    while last - first > 1:
        excess = len(tokenizer.sequence_ids(text[units[first].start : units[last - 1].end])) - limit
        if excess <= 0:
            break
        if last > done + 1:
            shorter = bisect_right(totals, totals[last] - excess) - 1
            last = min(max(shorter, done + 1), last - 1)
        else:
            first = done
    return first, last
