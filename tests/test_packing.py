"""The best passages within a budget, whole unless asked, counted without any download."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidr_rag import InvalidInputError, InvalidTypeError, Passage, SearchResult
from sidr_rag.packing import pack


def words(text):
    return len(text.split())


def passages(*texts, **more):
    return [Passage(f"p{i}", text, **more) for i, text in enumerate(texts)]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a test tried to reach the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_passages_are_numbered_with_title_and_source():
    given = [
        Passage("a", "Falcons hunt.", "Birds", {"source": "/x/birds.txt"}),
        Passage("b", "Copper conducts.", None, {"source": 7}),
    ]
    packed = pack(given, max_tokens=100, counter=words)
    assert packed.text == "[1] Birds (/x/birds.txt)\nFalcons hunt.\n\n[2]\nCopper conducts."
    assert packed.passages == tuple(given)
    assert packed.n_tokens == words(packed.text)
    assert (packed.left_out, packed.cut, packed.counted_by) == ((), None, "words")


def test_a_passage_that_does_not_fit_is_left_out_whole_and_the_next_is_tried():
    packed = pack(passages("one two", "one two three four", "one"), max_tokens=6, counter=words)
    assert packed.text == "[1]\none two\n\n[2]\none"
    assert packed.left_out == ("p1",)
    assert packed.cut is None


def test_cut_only_when_asked_at_a_word_and_then_no_more():
    packed = pack(passages("one two", "one two three four", "one"), max_tokens=7, counter=words, cut=True)
    assert packed.text == "[1]\none two\n\n[2]\none two …"
    assert packed.n_tokens == 7
    assert (packed.cut, packed.left_out) == ("p1", ("p2",))
    assert packed.passages[1].text == "one two three four"


def test_a_part_of_no_word_is_no_part():
    packed = pack(passages("one two three", "one"), max_tokens=2, counter=words, cut=True)
    assert (packed.text, packed.cut, packed.left_out) == ("[1]\none", None, ("p0",))


def test_results_of_a_search_and_duplicates():
    (a, b) = passages("one", "two")
    results = [SearchResult(a, 2.0, 1), SearchResult(b, 1.0, 2), SearchResult(a, 0.5, 3)]
    assert pack(results, max_tokens=10, counter=words).passages == (a, b)


def test_own_headings():
    packed = pack(passages("one"), max_tokens=10, counter=words, heading=lambda n, p: f"Source {n}, {p.id}:")
    assert packed.text == "Source 1, p0:\none"


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_nothing_fits(max_tokens):
    packed = pack(passages("one"), max_tokens=max_tokens, counter=words)
    assert (packed.text, packed.n_tokens, packed.left_out) == ("", 0, ("p0",))
    assert pack([], max_tokens=max_tokens, counter=words).passages == ()


def test_the_budget_holds_where_joined_texts_have_more_tokens_than_their_parts():
    def dear_seams(text):
        return len(text.split()) + 5 * text.count("\n\n[")

    def counter(text):
        return dear_seams(text) if not text.startswith("\n\n") else len(text.split())

    packed = pack(passages(*["one two"] * 5), max_tokens=16, counter=counter)
    assert packed.n_tokens == dear_seams(packed.text) <= 16
    assert packed.left_out == ("p2", "p3", "p4")


@pytest.mark.parametrize("counter", ["auto", "checkpoint", "cl100k_base"])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=8), budget=st.integers(0, 80), cut=st.booleans())
def test_the_budget_always_holds_and_nothing_is_lost(counter, texts, budget, cut):
    given = passages(*texts)
    packed = pack(given, max_tokens=budget, counter=counter, cut=cut)
    assert packed.n_tokens <= budget
    assert sorted([*(p.id for p in packed.passages), *packed.left_out]) == sorted(p.id for p in given)
    for passage in packed.passages:
        assert passage.id == packed.cut or passage.text in packed.text
    assert cut or packed.cut is None


@pytest.mark.parametrize(
    ("results", "arguments", "error", "named"),
    [
        ("a text", {}, InvalidTypeError, "results is a str"),
        (3, {}, InvalidTypeError, "results is a int"),
        (["a secret text"], {}, InvalidTypeError, r"results\[0\] is a str"),
        ([], {"max_tokens": -1}, InvalidInputError, "max_tokens=-1"),
        ([], {"max_tokens": "9"}, InvalidTypeError, "max_tokens='9'"),
        ([], {"counter": "cl200k"}, InvalidInputError, "counter='cl200k' is not known"),
        ([], {"counter": 3}, InvalidTypeError, "counter is a int"),
    ],
)
def test_bad_arguments_are_named(results, arguments, error, named):
    with pytest.raises(error, match=named) as caught:
        pack(results, **{"max_tokens": 10, "counter": words, **arguments})
    assert "secret" not in str(caught.value)
