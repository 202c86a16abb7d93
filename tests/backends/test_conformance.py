"""One suite for every backend: what the local engine gives, the others give, to the last bit of a score."""

import itertools
import random
import sys

import numpy as np
import pytest

from sidr_rag import InvalidInputError, Passage
from sidr_rag.listing import list_passages
from sidr_rag.search.weighting import BINARY

conftest = sys.modules[next(name for name in sys.modules if name.endswith("backends.conftest"))]
LEVELLED, REMOTE, mirror = conftest.LEVELLED, conftest.REMOTE, conftest.mirror

FILTERS = [
    {"owner": "amber"},
    {"owner": "café"},
    {"owner": 'qu"ote'},
    {"owner": ""},
    {"owner": None},
    {"owner": {"ne": "amber"}},
    {"owner": {"in": ["amber", "blue"]}},
    {"owner": {"in": ["amber", None]}},
    {"owner": {"nin": ["amber", "blue"]}},
    {"owner": {"exists": False}},
    {"owner": {"text_match": "AMB"}},
    {"owner": {"gt": "b"}},
    {"page": 3},
    {"page": "3"},
    {"page": True},
    {"page": {"gt": 3, "lte": 9}},
    {"page": {"gte": 38.5}},
    {"page": {"in": [1, 2, "5", True]}},
    {"tags": "a"},
    {"tags": ["b"]},
    {"tags": {"any": ["a", "c"]}},
    {"tags": {"all": ["a", "b"]}},
    {"tags": {"any": [3]}},
    {"tags": {"contains": "a"}},
    {"tags": {"is_empty": True}},
    {("nested", "deep", "n"): 3},
    {("nested", "deep", "flag"): True},
    {"dotted.key": 2},
    {"huge": {"gte": 2**60 + 150}},
    {"huge": 2**60 + 9},
    {"or": [{"owner": "amber"}, {"page": {"lt": 2}}]},
    {"and": [{"owner": "amber"}, {"not": {"page": 3}}]},
    {"not": {"owner": "amber"}},
    {"or": []},
    {"missing": "x"},
]


def equal(sidr, local, queries, **search):
    found, expected = sidr.search(queries, **search), local.search(queries, **search)
    assert found == expected
    return found


# What is searched


def test_the_best_ten_have_the_local_engines_bits(filled):
    found = equal(filled.sidr, filled.local, filled.queries)
    assert all(len(results) == 10 for results in found)


@pytest.mark.parametrize(
    "search",
    [
        {"k": 1},
        {"k": 150},
        {"first_stage": "lexical"},
        {"query_repr": "bin", "k": 25},
        {"max_active_dims": 8},
        {"min_score": 1.0, "k": 30},
        {"k": 0},
    ],
    ids=str,
)
def test_every_way_to_search(filled, search):
    found = equal(filled.sidr, filled.local, filled.queries[:3], **search)
    assert any(found) == (search.get("k") != 0)


def test_all_matches(filled):
    (found,) = equal(filled.sidr, filled.local, filled.queries[:1], k=10**6)
    assert len(found) > 1000


def test_raw_vectors(filled):
    vectors = filled.local.encode_queries(filled.queries[:3])
    found, expected = filled.sidr.search_vectors(vectors, 12), filled.local.search_vectors(vectors, 12)
    assert found.ids == expected.ids
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_late_reranking(filled):
    found = equal(filled.sidr, filled.local, filled.queries[:3], k=10, rerank=20)
    assert all(result.reranked for result in found[0])


@pytest.mark.parametrize("condition", FILTERS, ids=str)
def test_filters_mean_the_same(few, condition):
    equal(few.sidr, few.local, few.queries[:1], k=5, filter=condition)


def test_most_of_these_filters_find_something(few):
    found = [few.local.search(few.queries[0], k=1, filter=condition) for condition in FILTERS]
    assert sum(map(bool, found)) > len(FILTERS) * 3 // 4


def test_explanations(filled):
    for result in filled.local.search(filled.queries[0], k=3):
        assert filled.sidr.explain(filled.queries[0], result.passage.id) == filled.local.explain(
            filled.queries[0], result.passage.id
        )


def test_passages_come_back_as_they_were(filled):
    assert len(filled.sidr) == len(filled.passages)
    ids = [p.id for p in filled.passages]
    assert filled.sidr.get([*ids[:1200], "no such id"]) == filled.passages[:1200]
    assert sorted(filled.sidr.ids()) == sorted(ids)
    if filled.kind != "sharded":
        assert filled.sidr.ids() == ids


def test_a_copy_is_the_same_store(filled, tmp_path, tokenizer):
    if filled.kind == "sharded":
        pytest.skip("a sharded store is copied folder by folder")
    filled.sidr.save(tmp_path / "copy")
    with conftest.stubs.stub_sidr(tokenizer, tmp_path / "copy") as copy:
        assert copy.ids() == filled.sidr.ids()
        assert copy.get(copy.ids()[:50]) == filled.sidr.get(copy.ids()[:50])


# What is changed


def texts_of(n, seed=0):
    words = ["refund", "parcel", "gift", "card", "late", "paid", "days", "help", "form", "office"]
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(words, k=chooser.randint(1, 12))) for _ in range(n)]


@pytest.mark.parametrize("weighting", [BINARY, LEVELLED], ids=["binary", "levelled"])
def test_after_any_history_it_is_a_fresh_index_over_what_is_left(kind, empty, tokenizer, weighting):
    sidr = empty(weighting=weighting)
    chooser = random.Random(5)
    expected = {}
    for step, block in enumerate(itertools.batched(texts_of(120), 20) if sys.version_info >= (3, 12) else _blocks()):
        ids = [str(chooser.randrange(60)) for _ in block]
        sidr.add(block, ids=ids, metadatas=[{"step": step}] * len(block))
        expected.update(zip(ids, block, strict=True))
        gone = chooser.sample(sorted(expected), 4)
        assert sidr.delete([*gone, "unknown"]) == 4
        for i in gone:
            del expected[i]
        assert {p.id: p.text for p in sidr.get(sidr.ids())} == expected
        assert len(sidr) == len(expected)
        local = mirror(sidr, tokenizer, weighting)
        equal(sidr, local, ["refund of a gift card", "parcel days"], k=12)
        equal(sidr, local, ["late form"], k=12, filter={"step": step}, rerank=4)
        local.close()


def _blocks():
    texts = texts_of(120)
    return [texts[i : i + 20] for i in range(0, 120, 20)]


def test_ties_go_to_the_oldest(kind, empty, tokenizer):
    sidr = empty()
    for start in range(0, 90, 30):
        sidr.add(["the same words"] * 30, ids=[f"p{i}" for i in range(start, start + 30)])
    sidr.add(["the same words"], ids=["p3"])  # replaced: the youngest of its store now
    found = [r.passage.id for r in sidr.search("same words", k=40)]
    assert found == sidr.ids()[:40]
    if kind != "sharded":
        assert found == [f"p{i}" for i in range(41) if i != 3]


def test_conflicts(empty):
    sidr = empty()
    sidr.add(["one", "two"], ids=["1", "2"])
    with pytest.raises(InvalidInputError, match="1 of them exist"):
        sidr.add(["three", "uno"], ids=["3", "1"], on_conflict="error")
    with pytest.raises(InvalidInputError, match="given twice"):
        sidr.add(["four", "five"], ids=["4", "4"], on_conflict="error")
    assert len(sidr) == 2
    sidr.add(["uno", "six"], ids=["1", "6"], on_conflict="skip")
    assert [p.text for p in sidr.get(["1", "6"])] == ["one", "six"]
    sidr.add(["first", "last"], ids=["7", "7"])
    assert [p.text for p in sidr.get(["7"])] == ["last"]


def test_nothing_is_legal(empty):
    sidr = empty()
    assert sidr.search("anything", k=3) == []
    assert (len(sidr), sidr.ids(), sidr.get(["x"]), sidr.delete(["x"]), sidr.add([])) == (0, [], [], 0, [])
    sidr.add(["", "\u200b", "words here"], ids=["empty", "invisible", "words"])
    assert [r.passage.id for r in sidr.search("words", k=3)] == ["words"]
    assert sidr.search("", k=3) == []
    assert [p.text for p in sidr.get(["empty", "invisible"])] == ["", "\u200b"]
    sidr.delete(["words"])
    assert sidr.search("words", k=3) == []


def test_a_passage_without_a_match_is_not_found(empty):
    sidr = empty(encoder=conftest.stubs.StubEncoder(conftest.stubs.default_tokenizer()))
    sidr.add(["red apples", "green pears"])
    assert [r.passage.text for r in sidr.search("red", k=5)] == ["red apples"]


HARD = ["é", "e\u0301", "日本語", "a/b?c#d", " ", "", "\ud800", "x\0y", "\x01b64:AAAA", "\x01none", "😀", "x" * 300]


def test_any_string_is_an_id_a_title_and_a_text(empty):
    sidr = empty()
    passages = [Passage(i, f"words {i}", i, {"key": i, i or "none": [i, {"deep": i}]}) for i in HARD]
    sidr.add_passages(passages)
    assert sidr.get(HARD) == passages
    assert set(sidr.ids()) == set(HARD)
    found = sidr.search("words", k=20)
    assert {r.passage.id for r in found} == set(HARD)
    assert [r.passage for r in sidr.search("words", k=20, filter={"key": "\ud800"})] == sidr.get(["\ud800"])
    assert sidr.delete(HARD[:6]) == 6
    assert len(sidr) == len(HARD) - 6


def test_metadata_keep_their_types(empty):
    sidr = empty()
    metadata = {"b": 1, "a": 1.0, "n": None, "big": 10**30, "small": 1e-300, "list": [1, 1.0, True], "m": {"z": 1}}
    sidr.add(["a text"], ids=["1"], metadatas=[metadata])
    (passage,) = sidr.get(["1"])
    assert repr(passage.metadata) == repr(metadata)
    assert [r.passage.id for r in sidr.search("text", filter={"big": {"gt": 10**29}})] == ["1"]
    assert sidr.search("text", filter={"big": 10**30 + 1}) == []
    assert [r.passage.id for r in sidr.search("text", filter={"small": 1e-300})] == ["1"]


def test_what_is_stored_is_there_after_opening_again(kind, empty, tmp_path):
    first = empty()
    first.add(["red apples", "green pears"], ids=["a", "b"])
    first.close()
    again = empty()
    assert again.ids() == ["a", "b"]
    again.add(["more apples"], ids=["c"])
    assert sorted(r.passage.id for r in again.search("apples", k=5)) == ["a", "c"]


def test_bad_arguments_are_named(empty):
    sidr = empty()
    with pytest.raises(InvalidInputError, match="k="):
        sidr.search("x", k=-1)
    with pytest.raises(InvalidInputError, match="operator"):
        sidr.search("x", filter={"a": {"like": 1}})
    with pytest.raises(InvalidInputError, match="no such passage"):
        sidr.explain("x", "nothing")


def test_listing_by_filter(kind, empty):
    sidr = empty()
    sidr.add(texts_of(30), ids=[f"{i:02}" for i in range(30)], metadatas=[{"n": i} for i in range(30)])
    lister = sidr.list_passages if kind in REMOTE else lambda **arguments: list_passages(sidr, **arguments)
    assert [p.id for p in lister(filter={"n": {"gte": 10}}, limit=3, without={"11"})] == ["10", "12", "13"]
    assert [p.id for p in lister(limit=2)] == ["00", "01"]
    assert lister(limit=0) == []
