"""Texts respelled character by character give the words of the whole text."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag.text import BagTokenizer
from sidr_rag.text.pipelines import BertPipeline
from sidr_rag.text.plain import BREAK, LETTER, PUNCTUATION, PlainText

WORD = re.compile(rb"[A-Za-z0-9\x80-\xff]+|[\x21-\x7e]")

# Beside each other, some of these compose, merge into one word, or are kept apart.
ODD = [
    *"aZ0.-=\t \x00\x0b\x1f\x7f\x85\xa0\xad",
    *"éßİıŉﬁﬀ½⅓¾²³⁴₂Ⅷⅳ㎡㎥㍘①⑽…’“—€™ªº·¨´",
    *"\u0301\u0338\u0345\u030c\u200b\u200d\ufeff\ufe0f\u20e3\U000e0101",
    *"中字\u3099ハﾊﾞ한글\u1100\u1161\u11a8\uac00ั\u0e31\u094d\u093c\u09be\u09c7\u05bf\u064e\u06dd",
    *"\ufffd\ue000\ud800\udc00\U0001f600\U0001f3fd\U0001f1e9\U0001d165\u2028\u3000\u1680\U0002f800\ufdfa",
]


def pipelines(bert_json: Path) -> dict[str, BertPipeline]:
    text = bert_json.read_text(encoding="utf-8")
    cased = json.loads(text)
    cased["normalizer"].update(lowercase=False, strip_accents=False, handle_chinese_chars=False)
    return {
        "nfkc": BagTokenizer(text)._pipeline,
        "none": BagTokenizer(text, normalization="none")._pipeline,
        "cased": BagTokenizer(json.dumps(cased))._pipeline,
        "cased none": BagTokenizer(json.dumps(cased), normalization="none")._pipeline,
    }


@pytest.fixture(scope="module", params=["nfkc", "none", "cased", "cased none"])
def pipeline(request, bert_json) -> BertPipeline:
    return pipelines(bert_json)[request.param]


@pytest.fixture(scope="module")
def plain_text(pipeline) -> PlainText:
    return PlainText(pipeline._words, lowercase=pipeline._lowercase, size=100)


def words_by_line(plain_text: PlainText, texts: list[str]) -> list[list[bytes]]:
    """Sorted words, after checking the form of the lines."""
    data, kinds, ends = plain_text.lines(texts)
    assert data[:1] == b"\n"
    codes = np.frombuffer(data, dtype=np.uint8)
    assert len(kinds) == len(data)
    assert (kinds[ends] == BREAK).all()
    assert np.array_equal(kinds == BREAK, np.isin(codes, list(b"\t\n\r ")))
    marks = [code for code in range(0x21, 0x7F) if not chr(code).isalnum()]
    assert np.array_equal(kinds == PUNCTUATION, np.isin(codes, marks))
    assert set(kinds.tolist()) <= {BREAK, LETTER, PUNCTUATION}
    starts = [1, *(ends + 1).tolist()][: len(ends)]
    return [sorted(WORD.findall(data[a:b])) for a, b in zip(starts, ends.tolist(), strict=True)]


def expected(pipeline: BertPipeline, text: str) -> list[bytes]:
    return sorted(word.encode("utf-8") for word in pipeline._words(text))


def test_pairs_of_odd_characters(pipeline, plain_text) -> None:
    pairs = list(itertools.product(ODD, repeat=2))
    texts = [f"{a}{b} x{a}{b} {a}y{b} {a}{b}7" for a, b in pairs]
    for text, found in zip(texts, words_by_line(plain_text, texts), strict=True):
        assert found == expected(pipeline, text), ascii(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(ODD) | st.characters(), max_size=10).map("".join), max_size=5))
def test_any_texts(pipeline, plain_text, texts) -> None:
    assert words_by_line(plain_text, texts) == [expected(pipeline, text) for text in texts]


def test_most_characters_need_no_second_look(bert_json) -> None:
    """Only marks, indices and the like leave the fast path: texts in these languages do not."""
    pipeline = pipelines(bert_json)["nfkc"]
    asked: list[str] = []

    def words_of(text: str) -> list[str]:
        asked.append(text)
        return pipeline._words(text)

    plain_text = PlainText(words_of, lowercase=True, size=100)
    texts = [
        "« L’été », dit-elle — déjà ! – œuvre de l’Église, naïve…",
        "Straßenbahnhöfe über „Größenmaße“: 20 €, 5½ m",
        "机器学习是人工智能的一个分支。日本語のテキスト、",
        "Съешь же ещё этих мягких французских булок",
        "Hello 👋🏽 world ❤️ 🇩🇪 👩‍🚀",
    ]
    plain_text.lines(texts)
    characters = {c for text in texts for c in text if not c.isascii()}
    (question,) = asked
    assert {f"a{c}b" for c in characters} == set(question.split()[::2])
    asked.clear()
    plain_text.lines([text[::-1].replace("\ufe0f", "") for text in texts])
    assert asked == []
    plain_text.lines(["cafe\u0301 x² Ⅷ", "cafe\u0301"])
    assert {"cafe\u0301", "x²", "Ⅷ"} <= set(asked)
    assert asked.count("cafe\u0301") == 1


def test_chunks_are_forgotten_when_there_are_too_many(bert_json) -> None:
    pipeline = pipelines(bert_json)["nfkc"]
    plain_text = PlainText(pipeline._words, lowercase=True, size=5)
    texts = ["e\u0301" + f"{i} " + "o\u0308" * (i % 50) + str(i) for i in range(100)]
    for _ in range(2):
        assert words_by_line(plain_text, texts) == [expected(pipeline, text) for text in texts]
        assert len(plain_text._chunks) <= 5
