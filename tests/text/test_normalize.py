from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidr_rag.text import normalize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ASCII, tabs\tand\nlines", "plain ASCII, tabs\tand\nlines"),
        ("3½ cups", "3 1⁄2 cups"),
        ("½cup", "1⁄2 cup"),
        ("10²", "10 2"),
        ("2³¹", "2 31"),
        ("m² CO₂", "m2 CO2"),
        ("x²₁", "x2 1"),
        ("5㎡3", "5m2 3"),
        ("①②First", "1 2 First"),
        ("chapterⅧ", "chapter VIII"),
        ("ⅩⅢ", "XIII"),
        ("１２３４", "1234"),
        ("𝟏𝟐", "12"),
        ("eﬃcient", "efficient"),
        ("cafe\u0301", "café"),
        ("a\x0bb\x0cc\x1cd\x1fe", "a b c d e"),
        ("a\x85b\ufffdc\ue000d\U000f0000e", "a b c d e"),
        ("i\0n\0v", "inv"),
        ("é\0½", "é 1⁄2"),
        ("co\u00adop", "coop"),
        ("a\ud800b", "a b"),
        ("", ""),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert normalize(text) == expected


def test_clean_ascii_is_returned_itself() -> None:
    text = "nothing to change [MASK] 3/4"
    assert normalize(text) is text


def test_no_character_merges_its_digits_with_its_neighbours() -> None:
    for code in range(0x80, 0x110000):
        char = chr(code)
        expanded = unicodedata.normalize("NFKC", char)
        if unicodedata.category(char) == "Nd" or expanded == char or not re.search(r"^\d|\d$", expanded):
            continue
        assert re.findall(r"\d+", normalize(f"5{char}5")) == ["5", *re.findall(r"\d+", expanded), "5"], hex(code)


_texts = st.text(st.characters() | st.sampled_from("3½²₂ⅧX①㎡\u0301\x0b\x85\xad\0\ud800 \u3000"))


@given(_texts)
def test_the_result_is_a_fixed_point(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once


@given(_texts)
def test_a_text_is_the_sum_of_its_words(text: str) -> None:
    assert normalize(text).split() == [word for chunk in text.split() for word in normalize(chunk).split()]
