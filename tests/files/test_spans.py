from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sidr_rag.files.spans import spans


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def test_short_text_goes_to_the_splitter_whole():
    seen: list[str] = []
    text = "one two"
    assert list(spans(text, lambda part: seen.append(part) or words(part), 7)) == [(0, 3), (4, 7)]
    assert seen == [text]


def test_cuts_prefer_paragraphs_then_lines_then_words():
    def parts(text: str) -> list[str]:
        seen: list[str] = []
        list(spans(text, lambda part: seen.append(part) or [], 10))
        return seen

    assert parts("aaaaa\n\nb\nc d e f") == ["aaaaa\n\n", "b\nc d e f"]
    assert parts("aaaaaa\nb c d e f") == ["aaaaaa\n", "b c d e f"]
    assert parts("aaaaaaa b ccccc") == ["aaaaaaa b ", "ccccc"]
    assert parts("a" * 25) == ["a" * 10, "a" * 10, "a" * 5]


@given(st.text(alphabet="ab \n", max_size=200), st.integers(8, 40))
def test_every_word_is_covered_once(text, block_chars):
    found = list(spans(text, words, block_chars))
    assert "".join(text[a:b] for a, b in found) == "".join(text.split())
    assert all(a < b for a, b in found)
