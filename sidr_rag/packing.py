"""The best passages of a search as one numbered text that fits a language model's budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sidr_rag.errors import InvalidTypeError
from sidr_rag.inputs import as_count
from sidr_rag.token_counting import Counter, token_counter
from sidr_rag.types import Passage, SearchResult

Heading = Callable[[int, Passage], str]
_SEPARATOR = "\n\n"
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Packed:
    """What `pack` assembled.

    Attributes:
        text: the passages with their numbered headings, for a prompt.
        passages: those in the text, in its order: number n is `passages[n - 1]`.
        n_tokens: tokens of `text`, at most the budget.
        left_out: ids of the passages that did not fit.
        cut: id of the passage that was cut to fit; None if all are whole.
        counted_by: name of what counted the tokens.
    """

    text: str
    passages: tuple[Passage, ...]
    n_tokens: int
    left_out: tuple[str, ...]
    cut: str | None
    counted_by: str


def pack(
    results: Iterable[SearchResult | Passage],
    *,
    max_tokens: int,
    counter: Counter = "auto",
    heading: Heading | None = None,
    cut: bool = False,
) -> Packed:
    """Assemble passages, best first, until the budget is used up.

    A passage that does not fit is left out whole and the next ones are tried. Of equal ids the first is taken.

    Args:
        results: of a search, or passages; best first.
        max_tokens: the budget for the whole text, headings included.
        counter: what counts tokens, see `sidr_rag.token_counting.token_counter`; nothing is ever downloaded.
        heading: called with number and passage; the default is "[1] title (source)" with what the passage has.
        cut: cut the first passage that does not fit, after a word, and stop there.

    Raises:
        InvalidInputError, InvalidTypeError: for arguments that cannot be used.
        MissingExtraError, ModelNotFoundError: if an encoding is named that is not on this machine.
    """
    budget = as_count("max_tokens", max_tokens)
    counted_by, count = token_counter(counter)
    page = _Page(budget, count, heading or default_heading)
    left_out: list[Passage] = []
    cut_id: str | None = None
    for passage in _distinct(results):
        if cut_id is None and page.add(passage):
            continue
        if cut_id is None and cut and page.add_part(passage):
            cut_id = passage.id
        else:
            left_out.append(passage)
    for passage in page.trim():
        cut_id = None if passage.id == cut_id else cut_id
        left_out.insert(0, passage)
    text = page.text()
    return Packed(text, tuple(page.passages), count(text), tuple(p.id for p in left_out), cut_id, counted_by)


def default_heading(number: int, passage: Passage) -> str:
    """The number in brackets, then title and source as far as the passage has them."""
    source = passage.metadata.get("source")
    parts = [f"[{number}]", passage.title or "", f"({source})" if isinstance(source, str) and source else ""]
    return " ".join(part for part in parts if part)


class _Page:
    """Blocks of heading and text, and the tokens they use together."""

    def __init__(self, budget: int, count: Callable[[str], int], heading: Heading) -> None:
        self.passages: list[Passage] = []
        self._blocks: list[str] = []
        self._budget = budget
        self._count = count
        self._heading = heading
        self._used = 0

    def text(self) -> str:
        return _SEPARATOR.join(self._blocks)

    def add(self, passage: Passage) -> bool:
        """Take a whole passage, if it fits."""
        return self._take(passage, passage.text)

    def add_part(self, passage: Passage) -> bool:
        """Take as many of a passage's first words as fit, if any do."""
        ends = [match.end() for match in _WORD.finditer(passage.text)]
        low, high = 0, len(ends)  # how many words surely fit, and how many surely do not, or are all
        while low + 1 < high:
            middle = (low + high) // 2
            if self._size(passage, _cut_text(passage.text, ends[middle - 1])) + self._used <= self._budget:
                low = middle
            else:
                high = middle
        return low > 0 and self._take(passage, _cut_text(passage.text, ends[low - 1]))

    def trim(self) -> list[Passage]:
        """Give back the last passages until the joined text keeps the budget; almost always none."""
        dropped = []
        while self._blocks and self._count(self.text()) > self._budget:
            self._blocks.pop()
            dropped.append(self.passages.pop())
        return dropped

    def _take(self, passage: Passage, text: str) -> bool:
        # Joined texts rarely have more tokens than their parts, so the sum is checked only once, by `trim`.
        size = self._size(passage, text)
        if self._used + size > self._budget:
            return False
        self._used += size
        self._blocks.append(self._block(passage, text))
        self.passages.append(passage)
        return True

    def _size(self, passage: Passage, text: str) -> int:
        block = self._block(passage, text)
        return self._count(f"{_SEPARATOR}{block}" if self._blocks else block)

    def _block(self, passage: Passage, text: str) -> str:
        return f"{self._heading(len(self.passages) + 1, passage)}\n{text}"


def _cut_text(text: str, end: int) -> str:
    return f"{text[:end]} …"


def _distinct(results: Iterable[SearchResult | Passage]) -> Iterator[Passage]:
    if isinstance(results, (str, bytes)) or not isinstance(results, Iterable):
        raise InvalidTypeError(f"results is a {type(results).__name__}; give the results of a search")
    seen: set[str] = set()
    for i, result in enumerate(results):
        passage = result.passage if isinstance(result, SearchResult) else result
        if not isinstance(passage, Passage):
            raise InvalidTypeError(f"results[{i}] is a {type(result).__name__}; give search results or passages")
        if passage.id not in seen:
            seen.add(passage.id)
            yield passage
