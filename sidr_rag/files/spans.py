"""Splitting texts of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

# The splitter keeps some forty bytes per character while it works.
BLOCK_CHARS = 1_000_000

Split = Callable[[str], list[tuple[int, int]]]


def spans(text: str, split: Split, block_chars: int = BLOCK_CHARS) -> Iterator[tuple[int, int]]:
    """Spans of `text` as `split` gives them, a block at a time.

    A text of at most `block_chars` characters goes to `split` whole. A longer one is first cut, where possible
    between paragraphs, else between lines or words; spans do not overlap across these cuts.

    Args:
        text: any text.
        split: gives character spans of a text.
        block_chars: the longest text to give to `split`.
    """
    start = 0
    while start < len(text):
        end = _cut(text, start, block_chars)
        block = text if end - start == len(text) else text[start:end]
        for a, b in split(block):
            yield start + a, start + b
        start = end


def _cut(text: str, start: int, block_chars: int) -> int:
    end = start + block_chars
    if end >= len(text):
        return len(text)
    for separator in ("\n\n", "\n", " "):
        # Not in the first half, lest blocks become too many.
        at = text.rfind(separator, start + block_chars // 2, end)
        if at >= 0:
            return at + len(separator)
    return end
