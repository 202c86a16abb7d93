"""A vector store's promises over the engine, and lists of passages by their metadata."""

from __future__ import annotations

import pytest

from sidr_rag import InvalidInputError, InvalidTypeError
from sidr_rag.listing import list_passages, text_values
from sidr_rag.search.weighting import Weighting
from sidr_rag.similarity import search_diverse, search_filled, search_relevance

TEXTS = ["river stone", "copper is a metal", "copper wire copper", "copper wire", "falcon"]
IDS = ["r", "m", "c", "w", "f"]
OWN = {"first_stage": "lexical"}


@pytest.fixture
def store(make):
    sidr = make()
    sidr.add(TEXTS, ids=IDS, metadatas=[{"n": i, "even": i % 2 == 0} for i in range(5)])
    return sidr


def ids(results):
    return [r.passage.id for r in results]


def test_filled_up_with_the_oldest_others(store):
    results = search_filled(store, "copper wire", k=5, **OWN)
    assert ids(results) == ["c", "w", "m", "r", "f"]
    assert [r.score for r in results] == [2.0, 2.0, 1.0, 0.0, 0.0]
    assert [r.rank for r in results] == [1, 2, 3, 4, 5]
    assert ids(search_filled(store, "copper wire", k=4, **OWN)) == ["c", "w", "m", "r"]
    assert len(search_filled(store, "copper", k=99, **OWN)) == 5
    assert search_filled(store, "copper", k=0, **OWN) == []


def test_filled_up_within_the_filter_and_after_changes(store):
    assert ids(search_filled(store, "copper", k=5, filter={"even": True}, **OWN)) == ["c", "r", "f"]
    assert search_filled(store, "copper", k=5, filter={"n": 99}, **OWN) == []
    store.add(["slate"], ids=["r"], metadatas=[{"n": 0}])
    store.delete(["f"])
    assert ids(search_filled(store, "copper", k=9, **OWN)) == ["m", "c", "w", "r"]
    assert ids(search_filled(store, "", k=9)) == ["m", "c", "w", "r"]


def test_a_least_score_is_not_undercut(store):
    assert ids(search_filled(store, "copper wire", k=5, min_score=1.5, **OWN)) == ["c", "w"]
    assert len(search_filled(store, "copper wire", k=5, min_score=0, **OWN)) == 5


def test_filled_up_after_reranking_and_full_search(store):
    assert sorted(ids(search_filled(store, "copper", k=5, rerank=2))) == sorted(IDS)
    results = search_filled(store, "copper", k=5, search="full")
    assert sorted(ids(results)) == sorted(IDS)


def test_diverse_results(store):
    assert ids(search_diverse(store, "copper wire", k=3, **OWN))[0] == "c"
    assert ids(search_diverse(store, "copper wire", k=3, relevance_weight=1.0, **OWN)) == ["c", "w", "m"]
    assert ids(search_diverse(store, "copper wire", k=2, relevance_weight=0.3, **OWN)) == ["c", "r"]
    assert ids(search_diverse(store, "copper wire", k=9, fetch_k=2, **OWN)) == ["c", "w"]
    assert search_diverse(store, "copper", k=0) == []
    with pytest.raises(InvalidInputError, match="rerank=5"):
        search_diverse(store, "copper", k=2, rerank=5)
    with pytest.raises(InvalidInputError, match="fetch_k=-1"):
        search_diverse(store, "copper", k=2, fetch_k=-1)


def test_diverse_results_of_an_empty_store(make):
    assert search_diverse(make(), "copper", k=3) == []


def test_relevance_is_the_share_of_the_query_that_a_passage_holds(store):
    found = [(p.id, share) for p, share in search_relevance(store, "copper wire", k=5, **OWN)]
    assert found == [("c", 1.0), ("w", 1.0), ("m", 0.5), ("r", 0.0), ("f", 0.0)]
    found = [(p.id, share) for p, share in search_relevance(store, "copper wire", k=2, filter={"even": False}, **OWN)]
    assert found == [("w", 1.0), ("m", 0.5)]
    assert search_relevance(store, "copper", k=0) == []
    assert [share for _, share in search_relevance(store, "", k=2)] == [0.0, 0.0]


def test_relevance_of_an_encoders_weights_is_exact_at_its_bound(store):
    results = store.search("copper wire metal", k=5)
    shares = {p.id: share for p, share in search_relevance(store, "copper wire metal", k=5)}
    bound = float(store.encode_queries(["copper wire metal"]).weights.sum())
    for result in results:
        assert shares[result.passage.id] == pytest.approx(result.score / bound, rel=1e-6)
    whole = " ".join(TEXTS)
    store.add([whole], ids=["all"])
    (passage, share), *_ = search_relevance(store, whole, k=1, query_repr="lex")
    assert (passage.id, share) == ("all", 1.0)


def test_relevance_without_an_exact_bound_is_an_error(make):
    levelled = make(weighting=Weighting((1, 2), (1.0, 0.5), 0.5, 0.25, 0.5))
    levelled.add(TEXTS)
    with pytest.raises(InvalidInputError, match="weighting"):
        search_relevance(levelled, "copper")
    binary = make()
    for options in ({"search": "full"}, {"rerank": 3}, {"min_score": 0.1}):
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            search_relevance(binary, "copper", **options)
    with pytest.raises(InvalidTypeError, match="k='3'"):
        search_relevance(binary, "copper", k="3")


@pytest.mark.parametrize("search", [search_filled, search_diverse, search_relevance])
def test_a_query_is_one_string(store, search):
    with pytest.raises(InvalidTypeError, match="query"):
        search(store, ["copper"], k=2)


def test_passages_by_their_metadata(store):
    assert [p.id for p in list_passages(store)] == IDS
    assert [p.id for p in list_passages(store, filter={"even": True}, limit=2)] == ["r", "c"]
    assert [p.id for p in list_passages(store, filter={"even": True}, without={"r"})] == ["c", "f"]
    assert list_passages(store, limit=0) == []
    with pytest.raises(InvalidInputError, match="limit=-1"):
        list_passages(store, limit=-1)
    store.delete(["r"])
    store.add(["x"], ids=["w"], metadatas=[{"name": "x", "n": [1]}])
    assert [p.id for p in list_passages(store)] == ["m", "c", "f", "w"]
    assert text_values(store._store.current(), "name") == {"x"}
    assert text_values(store._store.current(), "n") == set()
