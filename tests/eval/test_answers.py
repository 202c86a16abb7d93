"""DPR's matching of answer strings: cases worked out by hand, and an independent implementation."""

import math
import random
import time
import unicodedata

import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError
from sidr_rag.eval import AnswerJudge, answer_tokens, has_answer, success_at_k


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The U.S. won 3-2!", ["the", "u", ".", "s", ".", "won", "3", "-", "2", "!"]),
        ("It's $5.00", ["it", "'", "s", "$", "5", ".", "00"]),
        ("snake_case", ["snake", "_", "case"]),
        ("Café", ["cafe\u0301"]),  # decomposed: the accent is a mark, part of the word
        ("\ufb01ne", ["\ufb01ne"]),  # a compatibility character stays: NFD is canonical
        ("a\u200bb\tc\u00a0d", ["a", "b", "c", "d"]),  # a format character, a tab and a no-break space separate
        ("北京 2008", ["北京", "2008"]),
        ("½ cup, x² ", ["½", "cup", ",", "x²"]),  # numbers of all kinds
        ("ΟΔΟΣ, ΟΔΟΣ'Α", ["οδος", ",", "οδος", "'", "α"]),  # a final sigma is final in its token
        ("", []),
        (" \n\u2028", []),
    ],
)
def test_tokens(text, tokens):
    assert answer_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "answers", "found"),
    [
        ("Paris is the capital of France.", ["paris"], True),
        ("Paris is the capital of France.", ["capital of france"], True),
        ("Paris is the capital of France.", ["capital France"], False),  # not in a row
        ("Paris is the capital of France.", ["France Paris"], False),  # not in this order
        ("Parisian cafés", ["Paris"], False),  # whole tokens
        ("Parisian cafe\u0301s", ["CAFÉS"], True),  # composed and decomposed are the same
        ("Parisian cafés", ["cafes"], False),  # but an accent is not dropped
        ("He scored 1,234 points", ["1,234"], True),
        ("He scored 1234 points", ["1,234"], False),
        ("the U.S.A. team", ["U.S.A"], True),
        ("the USA team", ["U.S.A"], False),
        ("It was in\n1999.", ["in 1999"], True),  # white space of any kind
        ("anything", ["nothing", "any", "anything"], True),  # any of the answers
        ("anything", [], False),
        ("anything", [""], False),  # an answer without tokens is never found
        ("anything", [" \t"], False),
        ("", ["anything"], False),
        ("a b", ["a b c"], False),
        ("state-of-the-art", ["of-the"], True),
        ("state of the art", ["of-the"], False),
        ("100%", ["100"], True),
    ],
)
def test_golden_cases(text, answers, found):
    assert has_answer(text, answers) is found


def test_tokens_equal_those_of_the_regular_expression_that_dpr_uses():
    regex = pytest.importorskip("regex")
    pattern = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", flags=regex.IGNORECASE | regex.UNICODE)
    # The two may know different versions of Unicode: characters that were assigned long ago are in both.
    pool = [chr(c) for c in range(0x3000) if unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
    pool += list("aZ9 .,-'\u4e00\uac00\ud800\U0001f600\U00010400\U00020000")
    chosen = random.Random(5)
    for _ in range(500):
        text = "".join(chosen.choices(pool, k=30))
        expected = [m.group().lower() for m in pattern.finditer(unicodedata.normalize("NFD", text))]
        assert answer_tokens(text) == expected


TEXTS = {"a": "Rome lies on the Tiber.", "b": "Paris lies on the Seine.", "c": "Berlin lies on the Spree."}
RUN = {"q1": [("a", 3.0), ("b", 2.0)], "q2": [("c", 1.0)], "q3": [("a", 2.0), ("c", 1.0), ("b", 0.5)]}
ANSWERS = {"q3": ["the Seine"], "q1": ["Tiber"], "q2": ["Seine"], "unasked": ["Rome"]}


def test_success_at_k():
    values = success_at_k(RUN, ANSWERS, TEXTS, ks=(1, 2, 3))
    assert {k: v.tolist() for k, v in values.items()} == {1: [0, 1, 0, 0], 2: [0, 1, 0, 0], 3: [1, 1, 0, 0]}
    with pytest.raises(InvalidInputError, match="ks=0"):
        success_at_k(RUN, ANSWERS, TEXTS, ks=(0,))


def test_each_passage_is_asked_for_once():
    asked = []

    def texts(ids):
        asked.extend(ids)
        return {i: TEXTS[i] for i in ids}

    judge = AnswerJudge(texts)
    assert judge.first_ranks(RUN, ANSWERS).tolist() == [3, 1, 0, 0]
    assert judge.first_ranks(RUN, ANSWERS).tolist() == [3, 1, 0, 0]
    assert sorted(asked) == ["a", "b", "c"]


def test_a_hundred_thousand_passages_take_seconds():
    words = [f"word{i}" for i in range(5000)] + ["Müller's", "co-operate", "3.5%"]
    chosen = np.random.default_rng(2)
    passages = [" ".join(chosen.choice(words, 100)) for _ in range(2_000)]
    run = {str(q): [(str(q * 100 + i), -float(i)) for i in range(100)] for q in range(20)}
    taken = math.inf
    for _ in range(6):  # the best of several, as a busy machine makes any one of them slow
        judge = AnswerJudge({str(i): text for i, text in enumerate(passages)})
        start = time.thread_time()
        ranks = judge.first_ranks(run, {q: ["nothing like it", "word1 word2 word3"] for q in run})
        taken = min(taken, time.thread_time() - start)
        assert (ranks == 0).all()
        if taken * 50 < 30:
            break
    # 100,000 passages at this rate: under 30 seconds even where all is slow; about 5 are usual.
    assert taken * 50 < 30
